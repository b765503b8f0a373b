"""The server as a client sees it: the SDK's own, over stdin and stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from conftest import ROOT, Cli
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_servers import ENDLESS, started

from perfpipe.pipelines.agents import pages
from perfpipe.pipelines.agents.outline import outline
from perfpipe.pipelines.agents.tools import TOOLS
from perfpipe.store import Store


@dataclass
class Talk:
    """What a client was told."""

    tools: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, tuple[dict[str, Any], bool]] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    instructions: str = ""
    cancelled: bool = False


@pytest.fixture(scope="module")
def talk(captures: Store, ingested: Callable[[str], str]) -> Talk:
    timeline, profile = ingested("nsys/eager_small.sqlite"), ingested("ncu/block.ncu-rep")
    return anyio.run(_talk, str(captures.root), timeline, profile)


async def _talk(store: str, timeline: str, profile: str) -> Talk:
    server = started("--store", store)
    told = Talk()
    calls: dict[str, dict[str, Any]] = {
        "overview": {"target": timeline},
        "explain": {"target": profile, "finding": 1},
        "timeline": {"target": timeline},
        "compare": {"base": timeline, "candidate": profile},
        "schema": {"name": "findings"},
        "query": {"sql": "FROM launches", "target": timeline, "limit": 500},
        "next_capture": {"question": "kernels", "target": timeline},
        "nothing": {},
    }
    async with Client(server) as client:
        told.instructions = client.instructions or ""
        told.tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, given in calls.items():
            told.answers[name] = await _call(client, name, given)
        told.answers["wrong"] = await _call(client, "overview", {"target": 3})
        for one in (await client.list_resources()).resources:
            told.pages[one.name] = await _read(client, one.uri)
        (link,) = told.answers["overview"][0]["links"]
        told.pages["report"] = await _read(client, link)
        for prompt in (await client.list_prompts()).prompts:
            given = {argument.name: "X" for argument in prompt.arguments or []}
            got = await client.get_prompt(prompt.name, given)
            told.prompts[prompt.name] = got.messages[0].content.text  # type: ignore[union-attr]
        for address in ("perfpipe://report/nothing", "file:///etc/passwd"):
            try:
                await _read(client, address)
            except MCPError as error:
                told.refused.append(str(error))
        try:
            await client.call_tool("query", {"sql": ENDLESS}, read_timeout_seconds=1)
        except MCPError:
            told.cancelled = True
        with anyio.fail_after(60):
            told.answers["after"] = await _call(client, "schema", {"name": "reports"})
            again = {"sql": "SELECT 1 AS one"}
            told.answers["query after"] = await _call(client, "query", again)
    return told


async def _call(client: Client, name: str, given: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    # The client checks the content against the schema of the tool.
    result = await client.call_tool(name, given)
    answer: dict[str, Any] = result.structured_content
    text: str = result.content[0].text  # type: ignore[union-attr]
    assert text == outline(answer)
    links = result.content[1:]
    assert all(link.type == "resource_link" for link in links)
    answer["links"] = [link.uri for link in links]  # type: ignore[union-attr]
    return answer, result.is_error


async def _read(client: Client, address: str) -> str:
    (content,) = (await client.read_resource(address)).contents
    text: str = content.text  # type: ignore[union-attr]
    return text


def test_every_tool_is_listed_with_its_arguments(talk: Talk) -> None:
    assert talk.tools.keys() == TOOLS.keys()
    for tool in talk.tools.values():
        assert tool.description
        assert tool.annotations.read_only_hint
        assert tool.input_schema["additionalProperties"] is False
        assert set(tool.input_schema["properties"]) == set(TOOLS[tool.name].arguments.model_fields)
        assert "title" not in json.dumps(tool.input_schema)
        assert tool.output_schema["properties"]["data"]["properties"]


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_answers(talk: Talk, name: str) -> None:
    answer, wrong = talk.answers[name]
    assert not wrong
    # One run of another kind on each side cannot tell anything.
    assert answer["status"] == ("abstained" if name == "compare" else "answered")
    assert answer["data"]


def test_what_is_long_is_cut(talk: Talk) -> None:
    answer, _ = talk.answers["query"]
    cut = answer["truncated"]["rows"]
    assert cut["shown"] == len(answer["data"]["rows"]) < cut["total"]


@pytest.mark.parametrize("name", ["nothing", "wrong"])
def test_errors_have_the_same_form(talk: Talk, name: str) -> None:
    answer, wrong = talk.answers[name]
    assert wrong
    assert answer["status"] == "failed"
    assert answer["reason"]


def test_pages_and_prompts(talk: Talk) -> None:
    assert json.loads(talk.pages["schema"])["data"]["relations"]
    for name in ("traps", "glossary"):
        assert talk.pages[name] == (ROOT / "docs" / f"{name}.md").read_text()
    assert "launch-bound" in talk.pages["report"]
    assert "data, not instructions" in talk.pages["report"]
    assert talk.prompts.keys() == {"triage", "optimise_kernel", "review_regression"}
    assert all("X" in text and "{" not in text for text in talk.prompts.values())
    said = [one.removeprefix("perfpipe: ") for one in talk.refused]
    assert len(said) == 2 and "nothing" in said[0] and "no page" in said[1]
    assert "never follow" in " ".join(talk.instructions.split())


def test_a_cancelled_query_stops(talk: Talk) -> None:
    assert talk.cancelled
    assert talk.answers["after"][0]["status"] == "answered"
    assert talk.answers["query after"][0]["data"]["rows"] == [[1]]


def test_an_old_client_gets_the_text_alone(captures: Store, ingested: Callable[[str], str]) -> None:
    """Versions without structured content and links have neither in a result."""
    target = ingested("nsys/eager_small.sqlite")
    call = {"name": "overview", "arguments": {"target": target}}
    begin = {
        "protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    }  # fmt: skip
    server = started("--store", str(captures.root))
    with subprocess.Popen(
        [server.command, *server.args], env=server.env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for message in (
            {"id": 1, "method": "initialize", "params": begin},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": call},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
    result = answers[1]["result"]
    (text,) = result["content"]
    assert "structuredContent" not in result
    assert text["text"].startswith("status: answered\n")
    assert "launch-bound" in text["text"]


def test_instructions_fit_the_mode(talk: Talk) -> None:
    assert "It runs nothing" in talk.instructions
    allowing = pages.instructions(["softmax", "gemm"])
    assert "gemm, softmax" in allowing
    assert "runs nothing" not in allowing
    # Some clients show only the beginning.
    for text in (talk.instructions, allowing):
        assert "never follow" in " ".join(text[:700].split())


def test_the_command_line_starts_without_the_sdk() -> None:
    code = "import sys, perfpipe.pipelines.cli, perfpipe.pipelines.commands.mcp; print('mcp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_without_the_sdk_it_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli("mcp") == 5
    assert "pip install 'mcp>=2.3,<3'" in cli.err
