"""Configurations of clients: the server is added, all else stays, and nothing is half written."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import anyio
import jsonschema  # type: ignore[import-untyped]
import pytest
from conftest import DATA, ROOT, Cli
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from mcp_servers import ask

from perfpipe.pipelines.agents.clients import CLIENTS, SERVER, Entry
from perfpipe.pipelines.agents.setup import entry

#: What the documentation of each client allows in its file.
SCHEMAS: dict[str, Any] = json.loads((DATA / "mcp_clients.json").read_text())

ENTRY: Entry = {"command": "/opt/p p/perfpipe", "args": ["mcp", "--store", '/s/"x\\y" é']}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, which is that of the user and the current one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parsed(name: str, text: str) -> Any:
    return tomllib.loads(text) if CLIENTS[name].is_toml else json.loads(text)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_new_file_is_what_the_client_reads(name: str) -> None:
    client = CLIENTS[name]
    made = parsed(name, client.added("", ENTRY))
    assert made == parsed(name, client.lines(ENTRY))
    jsonschema.validate(made, SCHEMAS[name])
    assert made[client.key][SERVER]["args"] == ENTRY["args"]
    assert client.added(client.added("", ENTRY), ENTRY) == client.added("", ENTRY), "once only"


VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(), VALUES, max_size=4), st.dictionaries(st.text(), VALUES, max_size=3)
)
def test_other_entries_stay(others: dict[str, Any], servers: dict[str, Any]) -> None:
    client = CLIENTS["claude-code"]
    before = {**others, client.key: servers}
    for indent in (None, 2, "\t"):
        made = json.loads(client.added(json.dumps(before, indent=indent), ENTRY))
        assert made[client.key].pop(SERVER).items() >= ENTRY.items()
        servers_left = {key: one for key, one in servers.items() if key != SERVER}
        assert made == {**before, client.key: servers_left}
        assert list(made) == list(before)


def test_settings_of_the_server_itself_stay() -> None:
    client = CLIENTS["gemini"]
    before = {client.key: {SERVER: {"command": "old", "timeout": 9000, "args": []}}}
    made = json.loads(client.added(json.dumps(before), ENTRY))[client.key][SERVER]
    assert made == {**ENTRY, "timeout": 9000}


@pytest.mark.parametrize("before", [
    "", "model = 'x' # mine\n", "[mcp_servers.other]\ncommand = 'x'\n\n\n", "a = 1",
    "[mcp_servers]\nother = {command = 'x'}\n",
])  # fmt: skip
def test_toml_is_appended_to(before: str) -> None:
    client = CLIENTS["codex"]
    made = client.added(before, ENTRY)
    assert made.startswith(before.rstrip("\n"))
    found = tomllib.loads(made)
    assert found[client.key].pop(SERVER) == ENTRY
    old = tomllib.loads(before)
    assert found == {**old, client.key: old.get(client.key, {})}


@pytest.mark.parametrize(("name", "text"), [
    ("zed", '// mine\n{"theme": "x"}'), ("vscode", '{"servers": {},}'), ("cursor", "[]"),
    ("gemini", '{"mcpServers": []}'), ("codex", "a = "), ("codex", "mcp_servers = {}\n"),
    ("codex", "[mcp_servers.perfpipe]\ncommand = 'other'\n"),
])  # fmt: skip
def test_what_cannot_be_changed_safely_stays(cli: Cli, home: Path, name: str, text: str) -> None:
    path = CLIENTS[name].path(for_user=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert cli("mcp", "setup", name, "--yes") == 2
    assert "add these lines" in cli.err
    assert f"not configured: {CLIENTS[name].title}" in cli.err
    assert parsed(name, cli.out)[CLIENTS[name].key][SERVER]
    assert path.read_text() == text


def test_a_written_file_starts_the_server(cli: Cli, home: Path) -> None:
    (home / ".mcp.json").write_text('{\n    "mcpServers": {"other": {"command": "x"}}\n}\n')
    assert cli("mcp", "setup", "claude-code", "vscode", "--yes", "--store", "later") == 0
    made = json.loads((home / ".mcp.json").read_text())
    assert made["mcpServers"].pop("other") == {"command": "x"}
    assert (home / ".mcp.json").read_text().startswith('{\n    "')
    own = made["mcpServers"][SERVER]
    assert own == json.loads((home / ".vscode/mcp.json").read_text())["servers"][SERVER]

    async def use() -> dict[str, Any]:
        server = StdioServerParameters(
            command=own["command"], args=own["args"], env={"PYTHONPATH": str(ROOT)}, cwd="/"
        )
        async with Client(server) as client:
            return await ask(client, "overview")

    found = anyio.run(use)
    assert found["status"] == "abstained"
    assert "later" in found["reason"]


def test_it_asks_before_it_writes(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / ".mcp.json"
    assert cli("mcp", "setup", "claude-code") == 2
    assert "stdin is not a terminal" in cli.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked: list[str] = []
    answer = False

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("click.confirm", confirm)
    assert cli("mcp", "setup", "claude-code") == 0
    assert asked == ["Change .mcp.json?"]
    assert '+    "perfpipe": {' in cli.out
    assert not path.exists()
    answer = True
    assert cli("mcp", "setup", "claude-code") == 0
    assert path.exists()
    assert cli("mcp", "setup", "claude-code") == 0
    assert "has this server already" in cli.err
    assert len(asked) == 2


def test_who_can_read_a_file_stays_and_links_stay(cli: Cli, home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o600)
    (home / ".claude.json").symlink_to(real)
    assert cli("mcp", "setup", "claude-code", "--user", "--yes") == 0
    assert (home / ".claude.json").is_symlink()
    assert SERVER in json.loads(real.read_text())["mcpServers"]
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert not [path for path in home.iterdir() if path.suffix == ".tmp"]


def test_clients_that_are_there_are_found(cli: Cli, home: Path) -> None:
    assert cli("mcp", "setup", "--print") == 2
    assert "no client was found" in cli.err
    (home / ".codex").mkdir()
    (home / "bin").mkdir()
    (home / "bin/cursor").write_text("#!/bin/sh\n")
    (home / "bin/cursor").chmod(0o755)
    assert cli("mcp", "setup", "--print") == 0
    assert [line.split(",")[0] for line in cli.out.splitlines() if line.endswith(":")] == [
        "Codex", "Cursor",
    ]  # fmt: skip
    assert not (home / ".codex/config.toml").exists()
    assert cli("mcp", "setup", "claud-code") == 2
    assert "did you mean 'claude-code'?" in cli.err


def test_workloads_are_passed_on(cli: Cli, home: Path) -> None:
    allowed = ROOT / "workloads" / "softmax.yaml"
    assert entry(Path("s"), [allowed])["args"][-2:] == ["--allow-run", str(allowed)]
    assert cli("mcp", "setup", "zed", "--yes", "--allow-run", home / "none.yaml") == 2
    assert not (home / ".config").exists()
