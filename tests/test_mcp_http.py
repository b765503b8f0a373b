"""The server over HTTP: for clients of this machine that have the token."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from conftest import Cli
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_servers import ENDLESS, ask, over_http

from perfpipe.store import Store

TOKEN = "a-token-that-nobody-can-guess"

BEGIN = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def url(captures: Store, ingested: Callable[[str], str]) -> Iterator[str]:
    """The address of a server."""
    ingested("nsys/memcpy.sqlite")
    with over_http(captures.root, PERFPIPE_MCP_TOKEN=TOKEN) as (at, said, _):
        assert TOKEN not in said, "who gave it knows it"
        yield at


def begin(url: str, **headers: str) -> int:
    """Return the status of a request that begins a session."""
    accepted = {"Accept": "application/json, text/event-stream", **headers}
    return httpx2.post(url, json=BEGIN, headers=accepted).status_code


def test_the_token_opens_a_session(url: str) -> None:
    assert begin(url, Authorization=f"Bearer {TOKEN}") == 200
    assert begin(url, Authorization=f"bearer {TOKEN}") == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": ""}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"},
     {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Bearer {TOKEN[:-1]}"},
     {"Authorization": "Bearer"}],
)  # fmt: skip
def test_without_the_token_nothing_is_answered(url: str, headers: dict[str, str]) -> None:
    assert begin(url, **headers) == 401
    response = httpx2.get(url, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in response.text


def test_a_page_of_another_site_is_refused(url: str) -> None:
    own = {"Authorization": f"Bearer {TOKEN}"}
    port = urlsplit(url).port
    assert begin(url, Host="attacker.example", **own) == 421
    assert begin(url, Host=f"attacker.example:{port}", **own) == 421
    assert begin(url, Origin="http://attacker.example", **own) == 403
    assert begin(url, Origin=f"http://attacker.example:{port}", **own) == 403
    assert begin(url, Origin=f"http://127.0.0.1:{port}", Host=f"localhost:{port}", **own) == 200


def test_only_the_loopback_interface_listens(url: str) -> None:
    port = urlsplit(url).port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), 5):
        pass
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", port), 5)


def test_clients_work_side_by_side(url: str) -> None:
    """The answer of one client does not wait for the endless query of another one."""
    anyio.run(_side_by_side, url)


async def _side_by_side(url: str) -> None:
    header = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=header, timeout=60) as web,
        Client(streamable_http_client(url, http_client=web)) as one,
        Client(streamable_http_client(url, http_client=web)) as other,
    ):
        await one.list_tools()
        running = anyio.Event()

        async def told(progress: float, total: float | None, message: str | None) -> None:
            running.set()

        async def endless() -> None:
            await one.call_tool("query", {"sql": ENDLESS}, progress_callback=told)

        async with anyio.create_task_group() as beside:
            beside.start_soon(endless)
            with anyio.fail_after(110):
                await running.wait()
                assert (await ask(other, "overview"))["data"]["targets"]
                assert (await ask(one, "schema", name="reports"))["status"] == "answered"
            beside.cancel_scope.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    with over_http(tmp_path / "none") as (url, said, process):
        token = said.rsplit(" ", 1)[1].strip()
        assert begin(url, Authorization=f"Bearer {token}") == 200
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err


@pytest.mark.parametrize(("mode", "token", "told"), [
    (0o644, TOKEN, "others can read it"), (0o600, "short", "at least 16"),
    (0o600, f"{TOKEN} x", "no spaces"),
])  # fmt: skip
def test_a_token_that_is_none_is_refused(
    cli: Cli, tmp_path: Path, mode: int, token: str, told: str
) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(mode)
    assert cli("mcp", "--http", "0", "--token-file", file) == 2
    assert told in cli.err
    assert TOKEN not in cli.err


def test_a_token_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    with over_http(tmp_path / "none", "--token-file", str(file)) as (url, said, _):
        assert TOKEN not in said
        assert begin(url, Authorization=f"Bearer {TOKEN}") == 200


def test_a_port_in_use_and_a_lonely_file_are_refused(cli: Cli, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli("mcp", "--http", taken.getsockname()[1]) == 2
        assert "cannot listen" in cli.err
    assert cli("mcp", "--token-file", tmp_path / "token") == 2
    assert "needs --http" in cli.err
