"""Calls run side by side, each with a session of its own, and report how far they are."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_servers import ENDLESS, ask, started

from perfpipe.analysis.session import Session
from perfpipe.database import open_database
from perfpipe.errors import InputError
from perfpipe.ingest.reading import ingest
from perfpipe.pipelines.agents.calls import Call
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.pool import Pool
from perfpipe.pipelines.memory import share_memory
from perfpipe.store import Store


@pytest.fixture
def desk(store: Store, expand: Callable[[str], Path]) -> Iterator[Desk]:
    for name in ("nsys/memcpy.sqlite", "nsys/ops.sqlite"):
        ingest(expand(name), store)
    made = Desk(store)
    yield made
    made.close()


def test_answers_do_not_wait_for_a_query(captures: Store, ingested: Callable[[str], str]) -> None:
    anyio.run(_beside_a_query, str(captures.root), ingested("nsys/memcpy.sqlite"))


async def _beside_a_query(store: str, target: str) -> None:
    said: list[tuple[float, str | None]] = []
    running = anyio.Event()

    async def told(progress: float, total: float | None, message: str | None) -> None:
        said.append((progress, message))
        running.set()

    async with Client(started("--store", store)) as client:
        await client.list_tools()

        async def endless() -> None:
            await client.call_tool("query", {"sql": ENDLESS}, progress_callback=told)
            pytest.fail("it was interrupted")

        async with anyio.create_task_group() as beside:
            beside.start_soon(endless)
            with anyio.fail_after(110):
                await running.wait()
                for tool in ("overview", "timeline"):
                    assert (await ask(client, tool, target=target))["status"] == "answered"
                several: list[Any] = []

                async def one(number: int) -> None:
                    found = await ask(client, "query", sql=f"SELECT {number} AS n")
                    several.append(found["data"]["rows"][0][0])

                async with anyio.create_task_group() as many:
                    for number in range(12):
                        many.start_soon(one, number)
                assert sorted(several) == list(range(12))
            beside.cancel_scope.cancel()
    assert [seconds for seconds, _ in said] == sorted(seconds for seconds, _ in said)
    assert "running" in str(said[0][1])


def test_a_call_stops_alone(desk: Desk) -> None:
    """Stopping one call interrupts its queries, and not those of another."""
    slow, reached = Call(), threading.Event()
    failed: list[InputError] = []

    def endless() -> None:
        def work() -> None:
            with desk.fresh(None) as session:
                reached.set()
                session.execute(ENDLESS).fetchall()

        try:
            desk.call(work, slow)
        except InputError as error:
            failed.append(error)

    thread = threading.Thread(target=endless)
    thread.start()
    assert reached.wait(60)
    target = desk.store.report_ids()[0]
    count = "SELECT count(*) FROM range(3000000) AS t(i), range(20) AS u(j)"

    def work() -> Any:
        slow.stop()
        return desk.session(desk.select(target)).execute(count).fetchall()

    assert desk.call(work) == [(60_000_000,)]
    thread.join(60)
    assert not thread.is_alive()
    assert "cancelled" in str(failed[0])


def test_a_time_limit_reaches_connections_that_a_call_opens(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFPIPE_QUERY_TIMEOUT", "0.2")

    def work() -> Any:
        with Session.open(desk.store) as session:
            return session.execute(ENDLESS).fetchall()

    with pytest.raises(InputError, match=r"longer than 0.2 s"):
        desk.call(work)


def test_a_session_is_used_by_one_call_at_a_time(desk: Desk) -> None:
    chosen = desk.select(desk.store.report_ids()[0])
    pool, key = Pool(), desk.key(chosen)
    made: list[Session] = []

    def make() -> Session:
        made.append(desk.opened(chosen))
        return made[-1]

    first, second, stopped = Call(), Call(), Call()
    own = pool.take(key, first, make)
    assert pool.take(key, first, make) is own, "it has it already"
    stopped.stop()
    with pytest.raises(InputError):
        pool.take(key, stopped, make)
    found: list[Session] = []
    waiting = threading.Thread(target=lambda: found.append(pool.take(key, second, make)))
    waiting.start()
    assert not found
    pool.give_back(first)
    waiting.join(60)
    assert found == [own]
    assert len(made) == 1
    other = pool.take(("other",), first, make)
    assert other is not own, "another key waits for nobody"
    # Whoever holds a session gets a second one of its own, since the other call might wait too.
    assert pool.take(key, first, make) not in (own, other)
    pool.give_back(first)
    pool.give_back(second)
    for number in range(9):
        call = Call()
        pool.take((number,), call, make)
        pool.give_back(call)
    assert sum(_is_open(session) for session in made) == 3, "only so many are kept"
    pool.close()
    assert not any(map(_is_open, made))


def _is_open(session: Session) -> bool:
    import duckdb

    try:
        session.con.execute("SELECT 1")
    except duckdb.Error:
        return False
    return True


def test_a_call_says_how_far_it_is(desk: Desk) -> None:
    call, said = Call(), []

    def work() -> None:
        session = desk.session(desk.select(desk.store.report_ids()[0]))
        assert call.doing() == "running"
        run = session._run

        def slowly(names: Any, step: Any) -> None:
            def told(name: str, con: Any) -> None:
                said.append(call.doing())
                step(name, con)

            run(names, told)

        session._run = slowly  # type: ignore[method-assign]
        session.use("steps")

    desk.call(work, call)
    assert said[0].startswith("preparing views: 0 of ")
    assert call.doing() == "running"


def test_a_client_that_is_gone_ends_its_queries(captures: Store) -> None:
    """The server ends with its client, although a query runs that would take hours."""
    server = started("--store", str(captures.root))
    with subprocess.Popen(
        [server.command, *server.args], env=server.env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        begin = {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }  # fmt: skip
        query = {
            "name": "query", "arguments": {"sql": ENDLESS}, "_meta": {"progressToken": "p"},
        }  # fmt: skip
        for message in (
            {"id": 1, "method": "initialize", "params": begin},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": query},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        assert "serverInfo" in process.stdout.readline()
        assert "notifications/progress" in process.stdout.readline(), "it runs"
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Traceback" not in err


def test_calls_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFPIPE_MEMORY", "2GB")
    share_memory(4)
    with open_database() as con:
        ((limit,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = limit.split()
    assert unit == "MiB"
    assert float(number) * 2**20 == pytest.approx(0.5e9, rel=0.06), "DuckDB rounds it"


def test_a_store_that_appears_later_is_used(tmp_path: Path, expand: Callable[[str], Path]) -> None:
    anyio.run(_later, Store(tmp_path / "later"), expand("nsys/memcpy.sqlite"))


async def _later(store: Store, capture: Path) -> None:
    async with Client(started("--store", str(store.root))) as client:
        for tool, given in (
            ("overview", {}), ("overview", {"target": "@1"}), ("timeline", {}),
            ("explain", {"finding": 1}), ("query", {"sql": "FROM runs"}),
            ("compare", {"base": "a", "candidate": "b"}), ("next_capture", {"question": "kernels"}),
        ):  # fmt: skip
            found = await ask(client, tool, **given)
            assert found["status"] == "abstained", tool
            assert "nothing has been profiled" in found["reason"]
            following = found["next"]
            assert (await ask(client, following["tool"], **following["arguments"]))["data"]
        assert (await ask(client, "schema", name="runs"))["status"] == "answered"
        assert not store.root.exists()
        report = ingest(capture, store).report_id
        found = await ask(client, "overview")
        assert [row["target"] for row in found["data"]["targets"]] == [report]
        assert (await ask(client, "overview", target=report))["status"] == "answered"
