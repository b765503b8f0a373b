"""Judging over the protocol: a job, its result, its end; and only for workloads that are allowed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import stand_ins
from mcp import Client
from mcp_servers import started
from scaled import RIGHT, candidate, scaled

from perfpipe.errors import InputError
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.judging import Jobs
from perfpipe.pipelines.agents.tools import RUNNING, TOOLS, call, offered
from perfpipe.store import Store

pytestmark = pytest.mark.usefixtures("needs_torch")

CHEAT = "import pipelines\n" + RIGHT
ENDLESS = "def run(x, y):\n    while True:\n        pass\n"


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaled")
    candidate(folder, "plain", RIGHT)
    return scaled(folder, "  baselines: {plain: plain}\n")


@dataclass
class Talk:
    """What a client was told."""

    tools: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    progress: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def talk(workload: Path, expand: Callable[[str], Path]) -> Talk:
    stand_ins(workload.parent / "bin", expand)
    return anyio.run(_talk, workload)


async def _talk(workload: Path) -> Talk:
    server = started(
        *("--allow-run", str(workload), "--store", str(workload.parent)),
        PATH=f"{workload.parent / 'bin'}:/usr/bin:/bin",
    )
    told = Talk()

    async def ask(client: Client, tool: str, **given: Any) -> dict[str, Any]:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            told.progress.append((tool, message or ""))

        result = await client.call_tool(tool, given, progress_callback=heard)
        answer: dict[str, Any] = result.structured_content
        return answer

    async with Client(server) as client:
        told.tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        begun = {}
        for name, source in (("right", RIGHT), ("cheat", CHEAT), ("endless", ENDLESS)):
            answer = await ask(
                client, "evaluate", workload="scaled", files={"kernel.py": source}, profile=True
            )
            told.answers[f"{name} begun"] = answer
            begun[name] = answer["data"]["job"]
        for name in ("right", "cheat"):
            answer = {"data": {"state": "queued"}}
            with anyio.fail_after(240):
                while answer["data"]["state"] in ("queued", "running"):
                    answer = await ask(client, "job", id=begun[name], wait_s=30)
            told.answers[name] = answer
        follow = told.answers["right"]["next"]
        told.answers["follow"] = await ask(client, follow["tool"], **follow["arguments"])
        told.answers["endless"] = await ask(
            client, "job", id=begun["endless"], cancel=True, wait_s=60
        )
        told.answers["unknown"] = await ask(client, "job", id="job-0")
    return told


def test_the_tools_are_offered_and_told_apart(talk: Talk) -> None:
    assert talk.tools.keys() == {*TOOLS, *RUNNING}
    for name, tool in talk.tools.items():
        assert tool.annotations.read_only_hint is (name not in RUNNING)


def test_a_job_is_told_how_to_follow(talk: Talk) -> None:
    answer = talk.answers["right begun"]
    assert answer["status"] == "answered"
    assert answer["next"]["tool"] == "job"
    assert answer["next"]["arguments"]["id"] == answer["data"]["job"]


def test_waiting_for_a_job_reports_progress(talk: Talk) -> None:
    assert {tool for tool, _ in talk.progress} >= {"job"}
    assert all(message.startswith("running, ") for tool, message in talk.progress if tool == "job")


def test_a_right_kernel_is_correct(talk: Talk) -> None:
    result = talk.answers["right"]["data"]["result"]
    assert (result["status"], result["evidence"]) == ("correct", [])
    assert result["deterministic"] is True
    assert result["no_scores"] == "the workload does not define sizes to time"


def test_the_profile_of_a_right_kernel_can_be_asked_about(talk: Talk) -> None:
    profile = talk.answers["right"]["data"]["profile"]
    assert profile["why"] is None
    assert all(
        kernel["bound"] and kernel["kernel_name"][0] == "\u27e6" for kernel in profile["kernels"]
    )
    assert any(kernel["headroom_pct"] is not None for kernel in profile["kernels"])
    told = talk.answers["follow"]
    assert told["status"] == "answered", told["reason"]
    assert profile["report"] in json.dumps(told)
    assert "profile" not in talk.answers["cheat"]["data"], "it is not correct"


def test_a_cheat_is_told_with_evidence_and_no_score(talk: Talk) -> None:
    data = talk.answers["cheat"]["data"]
    assert data["result"]["status"] == "cheating"
    assert data["result"]["evidence"][0]["kind"] == "harness"
    assert data["scores"] == []


def test_a_cancelled_job_says_nothing_of_its_candidate(talk: Talk) -> None:
    answer = talk.answers["endless"]
    assert answer["data"]["state"] == "cancelled"
    assert answer["status"] == "abstained"
    assert "result" not in answer["data"]
    assert talk.answers["unknown"]["status"] == "failed"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"workload": "other", "files": {"kernel.py": ""}}, "only scaled"),
        ({"workload": "scaled", "files": {"other.py": ""}}, "kernel.py"),
        ({"workload": "scaled", "files": {"kernel.py": "", "../x.py": ""}}, "relative"),
        ({"workload": "scaled", "files": {"kernel.py": "", "/etc/x": ""}}, "relative"),
        ({"workload": "scaled", "files": {"kernel.py": ""}, "baseline": "plane"}, "'plain'"),
        ({"workload": "scaled", "files": {}}, "files"),
    ],
    ids=["workload", "module", "above", "absolute", "baseline", "nothing"],
)
def test_what_may_not_be_run_is_refused(
    workload: Path, tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    desk = Desk(Store(tmp_path), Jobs.of((workload,)))
    text, wrong = call(desk, "evaluate", given)
    assert wrong
    assert says in json.loads(text)["reason"]


def test_without_permission_nothing_can_be_run(tmp_path: Path) -> None:
    desk = Desk(Store(tmp_path), Jobs.of(()))
    assert offered(desk).keys() == TOOLS.keys()
    assert call(desk, "evaluate", {"workload": "x", "files": {"kernel.py": ""}})[1]


def test_a_workload_without_a_reference_judges_no_kernel(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("version: 1\nname: w\ncommand: [x]\n")
    jobs = Jobs.of((tmp_path / "w.yaml",))
    assert jobs is not None
    with pytest.raises(InputError, match="no 'evaluate' block"):
        jobs.evaluate("w", {"kernel.py": ""})


def test_closing_ends_what_runs(workload: Path) -> None:
    jobs = Jobs({"scaled": workload})
    name = str(jobs.evaluate("scaled", {"kernel.py": ENDLESS}).data["job"])
    until = time.monotonic() + 60
    while jobs.job(name, 0, False).data["state"] == "queued" and time.monotonic() < until:
        time.sleep(0.01)
    jobs.close()
    assert jobs.job(name, 60, False).data["state"] == "cancelled"
