"""Queries run in a process that the system bounds: whatever function takes the time or the memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Cli
from kills import heed_signals

from perfpipe.database import open_database
from perfpipe.errors import InputError
from perfpipe.pipelines.agents import queries
from perfpipe.pipelines.agents.calls import Call
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.bounds import Bounds, Watched, query_memory
from perfpipe.pipelines.confined import confined, result_of
from perfpipe.pipelines.workers import Lost, end_idle_workers, spread
from perfpipe.store import Store

#: Takes minutes in one call, in which DuckDB asks for no interrupt; and little memory.
SLOW = "SELECT sum(levenshtein(a, a || 'x')) FROM (SELECT repeat('ab', 2000000) AS a)"

#: Builds a value of 2 GB in one call, which DuckDB does not count.
LARGE = (
    "SELECT length(format('{:>2000000000}', 1))",
    "SELECT length(printf('%2000000000d', 1))",
    "SELECT length(lpad('x', 2000000000, 'ab'))",
    "SELECT len(range(1000000000))",
)

NO_BOUNDS = Bounds(None, None)

#: Processes that earlier tests of this worker of pytest left, which may well live on.
_OTHERS: set[int] = set()


@pytest.fixture(autouse=True)
def _count_from_here() -> None:
    """Let a test count only its own processes: it gets no worker that waits for a task."""
    end_idle_workers()
    _OTHERS.clear()
    _OTHERS.update(_children())


@pytest.fixture
def one(stored: Callable[..., list[str]]) -> str:
    (report,) = stored("nsys/memcpy.sqlite")
    return report


def test_the_time_limit_ends_a_function_that_asks_for_no_interrupt(one: str, cli: Cli) -> None:
    before = threading.active_count()
    assert cli("query", SLOW, "--timeout", "0.3") == 2
    assert "stopped: the query took longer than 0.3 s" in cli.err
    assert cli.err.count("\n") == 1
    assert threading.active_count() == before, "nothing goes on"
    assert not _children()


@pytest.mark.parametrize("sql", LARGE)
def test_the_memory_limit_counts_what_duckdb_does_not(sql: str, one: str, cli: Cli) -> None:
    assert cli("query", sql, "--timeout", "0", "--memory", "100MB") == 2
    assert cli.err.startswith("perfpipe: SQL: the query needs more memory")
    assert "--memory" in cli.err
    assert cli.err.count("\n") == 1
    assert not _children()


def test_what_was_killed_leaves_no_file(one: str, cli: Cli, tmp_path: Path) -> None:
    output = tmp_path / "out" / "rows.csv"
    sql = "SELECT range AS n FROM range(100000000000)"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))
        assert cli("query", sql, "--format", "csv", "-o", output, "--timeout", "1") == 2
    assert list(output.parent.iterdir()) == []
    assert not list(tmp_path.glob("perfpipe-*"))


def test_the_process_ends_with_its_parent(one: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "perfpipe", "query", SLOW],
        env={**os.environ, "PERFPIPE_STORE": str(tmp_path / "store")},
        stderr=subprocess.PIPE,
        preexec_fn=heed_signals,
    ) as parent:
        child = _await(lambda: next(iter(_children(parent.pid)), 0))
        parent.kill()
    _await(lambda: not Path(f"/proc/{child}").exists() or child not in _alive())


def test_sql_that_is_not_utf8_is_refused(one: str, cli: Cli) -> None:
    assert cli("query", "SELECT '\udc80'") == 2
    assert cli.err == "perfpipe: SQL: the text is not UTF-8\n"


def test_a_file_of_sql_has_an_end(one: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfpipe.pipelines.commands.query._LONGEST_SQL", 100)
    assert cli("query", "-f", "/dev/zero") == 2
    assert cli.err == "perfpipe: /dev/zero: SQL of more than 100 B\n"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/proc/self/fd/1")])
def test_a_file_takes_the_place_of_nothing_else(
    make: Callable[[Path], None], one: str, cli: Cli, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    make(output)
    before = output.lstat()
    assert cli("query", "SELECT 1", "-o", output) == 2
    assert "not a regular file" in cli.err
    assert cli("report", "--md", output, one) == 2
    assert (output.lstat().st_mode, output.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert [path.name for path in tmp_path.glob("*output*")] == ["output"]


def test_a_crash_is_one_sentence() -> None:
    def work() -> Generator[str | bytes, None, None]:
        yield "some"
        os.kill(os.getpid(), signal.SIGKILL)

    found = confined(work, NO_BOUNDS)
    assert next(found) == "some"
    with pytest.raises(InputError, match=r"the process of the query crashed \(exit code -9\)"):
        next(found)


def test_who_stops_reading_ends_the_process() -> None:
    def work() -> Generator[str | bytes, None, None]:
        while True:
            yield "x" * 5_000_000

    found = confined(work, NO_BOUNDS)
    assert {len(next(found)) for _ in range(9)} <= {1 << 20, 5_000_000 % (1 << 20)}
    assert _children()
    found.close()
    assert not _children()


def test_the_time_limit_ends_what_never_stops_giving() -> None:
    def work() -> Generator[str | bytes, None, None]:
        while True:
            yield "x"

    with pytest.raises(InputError, match=r"the query took longer than 0\.3 s"):
        for _ in confined(work, Bounds(0.3, None)):
            pass
    assert not _children()


def test_the_time_of_who_reads_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("perfpipe.pipelines.bounds.time", clock)
    watched = Watched(os.getpid(), Bounds(5.0, None))
    for _ in range(2):
        now += 60
        watched.wait()
        now += 2
        watched.check()
    watched.wait()
    now += 1
    with pytest.raises(InputError, match="took longer than 5 s"):
        watched.check()


def test_errors_and_results_come_as_if_it_ran_here() -> None:
    def fail() -> int:
        raise InputError("a sentence")

    with pytest.raises(InputError, match="a sentence"):
        result_of(fail, NO_BOUNDS)
    assert result_of(lambda: {"a": [1, None]}, NO_BOUNDS) == {"a": [1, None]}


@pytest.mark.parametrize("stated", ["1GB", "512MiB", "20 mb", "1.5GiB", "300KB", "50%", ""])
def test_memory_is_stated_as_duckdb_reads_it(stated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFPIPE_MEMORY", stated)
    with open_database() as con:
        ((limit,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = limit.split()
    usual = float(number) * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB"].index(unit)
    assert query_memory() == pytest.approx(usual, rel=0.06), "DuckDB rounds it"


def test_memory_that_duckdb_refuses_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for stated in ("much", "1.2.3GB", "-1", "12"):
        monkeypatch.setenv("PERFPIPE_MEMORY", stated)
        assert query_memory() is None


@pytest.fixture
def desk(one: str, store: Store) -> Iterator[Desk]:
    made = Desk(store)
    yield made
    made.close()
    end_idle_workers()


def test_an_agents_query_is_bounded_and_the_next_one_runs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFPIPE_MEMORY", "100MB")
    with pytest.raises(InputError, match="needs more memory than allowed"):
        desk.call(lambda: queries.query(desk, LARGE[0], None, 5))
    assert desk.call(lambda: queries.query(desk, "SELECT 7 AS n", None, 5)).data["rows"] == [[7]]


def test_an_agents_query_ends_with_its_call(desk: Desk) -> None:
    call, failed = Call(), []

    def run() -> None:
        try:
            desk.call(lambda: queries.query(desk, SLOW, None, 5), call)
        except InputError as error:
            failed.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    worker = _await(lambda: next(iter(_children()), 0))
    call.stop()
    thread.join()
    assert failed == ["stopped: the call was cancelled"]
    assert worker not in _alive()


def test_agents_queries_share_a_process_that_is_kept(desk: Desk) -> None:
    for _ in range(3):
        desk.call(lambda: queries.query(desk, "SELECT 1", None, 5))
    assert len([pid for pid in _children() if "spawn_main" in _words(pid)]) == 1


def test_a_worker_that_takes_too_much_memory_is_lost() -> None:
    sizes = [1 << 20, 1 << 30]
    found = dict(spread(_fill_and_wait, sizes, jobs=1, limit_s=600, memory=600 << 20))
    assert found[1 << 20] == 1 << 20
    lost = found[1 << 30]
    assert isinstance(lost, Lost)
    assert lost.why == "memory"


def _fill_and_wait(size: int) -> int:
    content = bytearray(size)
    if size >= 1 << 30:
        time.sleep(600)
    return len(content)


def _await(found: Callable[[], int | bool]) -> int:
    until = time.monotonic() + 120
    while not (value := found()) and time.monotonic() < until:
        time.sleep(0.01)
    assert value
    return int(value)


def _alive() -> list[int]:
    """Return the processes that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(path.parent.name))
    return found


def _children(parent: int | None = None) -> list[int]:
    """Return the living children of a process, or those that this test started."""
    found = []
    for pid in {*_alive()} - _OTHERS:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == (parent or os.getpid()) and "resource_tracker" not in _words(pid):
                found.append(pid)
    return found


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
