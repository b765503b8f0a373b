"""Queries end: at a time, within memory, by Ctrl-C; and a table of 40 rows fetches few."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli
from kills import heed_signals

from perfpipe.cores import CORES_VARIABLE, cores
from perfpipe.database import open_database
from perfpipe.errors import InputError
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.options import json_document
from perfpipe.pipelines.query_timeout import TIME_VARIABLE, time_limit, within
from perfpipe.store import Store

#: What never ends; the second never comes to where DuckDB looks for signals.
ENDLESS = (
    "SELECT count(*) FROM range(10000000) a, range(10000000) b",
    "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x) SELECT count(*) FROM x",
)


@pytest.fixture
def one(stored: Callable[..., list[str]]) -> str:
    (report,) = stored("nsys/memcpy.sqlite")
    return report


@pytest.mark.parametrize("sql", ENDLESS)
def test_a_query_ends_at_its_time_limit(sql: str, one: str, cli: Cli) -> None:
    assert cli("query", sql, "--timeout", "0.2") == 2
    assert cli.err == (
        "perfpipe: stopped: the query took longer than 0.2 s; raise the limit with "
        "--timeout SECONDS or PERFPIPE_QUERY_TIMEOUT (0: no limit)\n"
    )
    assert TIME_VARIABLE not in os.environ, "the option is for one command"


def test_a_report_ends_at_its_time_limit(
    one: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIME_VARIABLE, "0.001")
    assert cli("report", one, "--md", "-") == 2
    assert "stopped: the query took longer than 0.001 s" in cli.err
    assert cli("report", one, "--md", "-", "--timeout", "0") == 0


def test_a_call_of_an_agent_ends_at_its_time_limit(
    one: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIME_VARIABLE, "0.2")
    desk = Desk(store)

    def work() -> None:
        with desk.fresh(None) as session:
            session.run_user_sql(ENDLESS[1]).fetchall()

    with pytest.raises(InputError, match=r"longer than 0[.]2 s"):
        desk.call(work)


@pytest.mark.parametrize("stated", ["soon", "-1", "nan", "1e300"])
def test_a_limit_is_a_number_of_seconds(stated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_VARIABLE, stated)
    with pytest.raises(InputError, match=f"{TIME_VARIABLE}={stated}: not a number"):
        time_limit()
    monkeypatch.setenv(TIME_VARIABLE, "0")
    assert time_limit() is None


def test_memory_is_bounded(one: str, cli: Cli, tmp_path: Path) -> None:
    sql = "SELECT count(DISTINCT hash(range) || repeat('x', 100)) FROM range(3000000)"
    assert cli("query", sql, "--memory", "20MB") == 2
    assert cli.err.startswith("perfpipe: SQL: the query needs more memory")
    assert "--memory" in cli.err
    assert cli.err.count("\n") == 1
    assert cli("query", "SELECT 1", "--memory", "much") == 2
    assert "PERFPIPE_MEMORY=much" in cli.err


def test_a_report_that_needs_more_memory_says_so(
    one: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFPIPE_MEMORY", "1MB")
    assert cli("report", "--md", "-") == 2
    assert cli.err.startswith("perfpipe: SQL: the query needs more memory")
    assert cli.err.count("\n") == 1


def test_cores_are_bounded(one: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    there = len(os.sched_getaffinity(0))
    for stated, used in (("1", 1), ("99999", there), ("", there)):
        monkeypatch.setenv(CORES_VARIABLE, stated)
        assert cores() == used
    monkeypatch.setenv(CORES_VARIABLE, "1")
    with open_database() as con:
        assert con.execute("SELECT current_setting('threads')").fetchone() == (1,)
    for stated in ("0", "-1", "many", "9" * 5000):
        monkeypatch.setenv(CORES_VARIABLE, stated)
        assert cli("query", "SELECT 1") == 2
        assert cli.err == f"perfpipe: {CORES_VARIABLE}={stated}: not a number of cores\n"


@pytest.mark.parametrize("sql", ENDLESS)
def test_ctrl_c_ends_a_query(sql: str, one: str, cli: Cli, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "perfpipe", "query", sql],
        env={**os.environ, "PERFPIPE_STORE": str(tmp_path / "store"), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,
    )
    assert process.stderr is not None
    # The last thing that is loaded before the query runs.
    for line in process.stderr:
        if line.rstrip().endswith("perfpipe.analysis.session"):
            break
    lines: list[str] = []
    timer = threading.Timer(60, process.kill)
    timer.start()
    process.send_signal(signal.SIGINT)
    lines = process.stderr.readlines()
    assert process.wait() == 130
    timer.cancel()
    assert lines[-1] == "interrupted\n"
    assert not [line for line in lines if "Traceback" in line]
    assert not list(tmp_path.glob("perfpipe-*"))


LOSING = """
import os, signal, time
from perfpipe.pipelines import signals
from perfpipe.pipelines.query_timeout import within

signals.install()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    pass
try:
    within(lambda: time.sleep(1))
except KeyboardInterrupt:
    print("told again")
"""


def test_a_ctrl_c_that_python_lost_is_told_again() -> None:
    """As where it comes in a callback of the import system."""
    words = [sys.executable, "-c", LOSING]
    told = subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=60, preexec_fn=heed_signals
    )
    assert told.stdout == "told again\n"


def test_an_interrupt_of_who_waits_ends_the_work() -> None:
    """Ctrl-C reaches the thread that waits; what works is told to end before it goes on."""
    started, ended = threading.Event(), threading.Event()

    def work() -> None:
        from perfpipe.database import open_database

        with open_database() as con:
            started.set()
            try:
                con.execute(ENDLESS[1]).fetchall()
            finally:
                ended.set()

    def interrupt() -> None:
        started.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            within(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


def test_a_table_fetches_the_rows_that_it_shows(
    one: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfpipe.pipelines.commands.query._COUNTED", 1000)
    assert cli("query", "SELECT range AS n FROM range(50)") == 0
    assert cli.out.endswith("39\n... 10 more rows (raise --limit, or use another --format)\n")
    # All of it would be 80 GB.
    assert cli("query", "FROM range(10000000000)", "--limit", "2") == 0
    assert cli.out.endswith("... 1,000 or more rows (raise --limit, or use another --format)\n")


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_json_is_the_same_document_row_by_row(rows: int, one: str, cli: Cli) -> None:
    sql = f"SELECT range AS n, {{'a': [range]}} AS l, 'x\ny' AS t FROM range({rows})"
    assert cli("query", sql, "--format", "json") == 0
    found = [{"n": n, "l": {"a": [n]}, "t": "x\ny"} for n in range(rows)]
    assert cli.out == json_document(rows=found) + "\n"
    assert json.loads(cli.out)["rows"] == found


def test_times_with_a_zone_are_refused_in_a_sentence(one: str, cli: Cli, tmp_path: Path) -> None:
    assert cli("query", "SELECT now()") in (0, 2)
    assert cli.err.count("\n") <= 1
    assert cli("query", "SELECT 1 AS a", "--format", "csv", "-o", tmp_path / "x" / "y.csv") == 0
    assert (tmp_path / "x" / "y.csv").read_text() == "a\n1\n"


def test_damaged_reports_are_left_out_with_a_warning(
    stored: Callable[..., list[str]], store: Store, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    whole, gone, cut, other = stored(
        "nsys/memcpy.sqlite", "nsys/h2d.sqlite", "nsys/graph_whole.sqlite", "nsys/ops.sqlite"
    )
    (store.reports_dir / gone / "nsys_kernels.parquet").unlink()
    path = store.reports_dir / cut / "launches.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    (store.reports_dir / other / "manifest.json").write_text("{")
    for sql in ("SELECT 1", "SELECT count(*) FROM nsys_kernels", "FROM timeline_bottleneck"):
        assert cli("query", sql) == 0, cli.err
    assert cli("query", "SELECT report_id FROM reports", "--format", "csv") == 0
    assert cli.out == f"report_id\n{whole}\n"
    for report in (gone, cut, other):
        assert f"report {report} is skipped: " in caplog.text
    assert "perfpipe store verify" in caplog.text
    assert len(caplog.messages) == 3 * 3, "once a query that needs to know"
    for report in (gone, cut):
        assert cli("query", "FROM reports", "--report", report) == 2
        assert report in cli.err
        assert cli.err.count("\n") == 1
    assert cli("store", "rm", gone, cut, other) == 0
    caplog.clear()
    assert cli("query", "FROM reports") == 0
    assert caplog.text == ""


def test_a_report_that_vanishes_meanwhile_is_no_error(
    stored: Callable[..., list[str]], store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = stored("nsys/memcpy.sqlite", "nsys/h2d.sqlite")
    from perfpipe.analysis.session import Session

    run = Session.run_user_sql

    def vanish(session: Session, query: str) -> object:
        session.use("nsys_kernels")
        shutil.rmtree(store.reports_dir / other, ignore_errors=True)
        return run(session, query)

    monkeypatch.setattr(Session, "run_user_sql", vanish)
    assert cli("query", "SELECT count(*) AS n FROM nsys_kernels", "--format", "csv") == 0, cli.err
    assert cli.out == "n\n10\n"
