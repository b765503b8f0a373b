"""Exports with faults: small made-up ones, read and analysed to the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from perfpipe.analysis.report.build import VIEWS_USED, build_report
from perfpipe.analysis.session import Session
from perfpipe.analysis.views import views
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store
from perfpipe.templates.renderers import render_html

NAMES = ["k", "k(int)", "cudaLaunchKernel_v7000", "train", "ncclDevKernel_AllReduce_Sum", "gemm"]
K, K_FULL, LAUNCH, TRAIN, NCCL, GEMM = range(1, 7)

Row = dict[str, Any]


def thread(pid: int, tid: int) -> int:
    """Return a global thread id as nsys packs it."""
    return (1 << 48) | (pid << 24) | tid


def kernel(start: int, end: int | None, correlation: int, pid: int = 10, **more: Any) -> Row:
    return {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7,
            "correlationId": correlation, "globalPid": thread(pid, 0), "shortName": K,
            "demangledName": K_FULL, "mangledName": K_FULL, **more}  # fmt: skip


def call(start: int, end: int | None, correlation: int, pid: int = 10, tid: int = 10) -> Row:
    return {"start": start, "end": end, "eventClass": 0, "globalTid": thread(pid, tid),
            "correlationId": correlation, "nameId": LAUNCH, "returnValue": 0}  # fmt: skip


def pushed(start: int, end: int | None, name: str, tid: int = 10) -> Row:
    return {"start": start, "end": end, "eventType": 59, "text": name,
            "globalTid": thread(10, tid), "domainId": 0}  # fmt: skip


KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
BUDGET = (
    "SELECT device, category, time_ns FROM gpu_time_budget "
    "WHERE time_ns > 0 AND report_id = $report ORDER BY ALL"
)

Tables = Mapping[str, Sequence[Row]]

#: What lowers the confidence in what an export says, and to what.
MESSAGES = {
    "Some events were lost.": "low",
    "Not all CUDA events might have been collected.": "medium",
    "Installed CUDA driver version (13.3) is not supported by this build of nsys.": "medium",
    "Profiling has started.": "high",
}


def _with_message(text: str) -> Tables:
    severities = enumerate(("Info", "Warning"), 1)
    message = {"timestamp": 1, "source": 1, "severity": 2, "text": text, "globalPid": 0}
    return {
        KERNELS: [kernel(100, 200, 1)],
        CALLS: [call(10, 20, 1)],
        "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": [
            {"id": number, "name": name, "label": name} for number, name in severities
        ],
        "DIAGNOSTIC_EVENT": [message],
    }


#: Ids of threads and processes are negative where the highest bit of what they pack is set.
NEGATIVE = {"globalTid": thread(10, 11) - 2**63}

EXPORTS: dict[str, Tables] = {
    "colliding": {
        KERNELS: [kernel(100, 200, 1), kernel(200, 300, 1, pid=20)],
        CALLS: [call(10, 20, 1), call(30, 40, 1, pid=20, tid=21)],
    },
    "shared": {
        KERNELS: [kernel(100 * n, 100 * n + 100, n, pid=10 + 10 * (n % 2)) for n in range(6)]
    },
    "negative": {
        KERNELS: [kernel(100, 200, 1, globalPid=thread(10, 0) - 2**63)],
        CALLS: [call(10, 20, 1) | NEGATIVE],
        "NVTX_EVENTS": [pushed(0, 50, "r") | NEGATIVE],
    },
    "no ends": {
        KERNELS: [kernel(100, 200, 1), kernel(300, None, 2), kernel(400, 500, 3)],
        CALLS: [call(10, 20, 1), call(30, None, 2), call(210, None, 3)],
    },
    "missing tables": {KERNELS: [kernel(100, 200, 1), kernel(500, 600, 2)]},
    "missing columns": {
        KERNELS: [
            {k: row[k] for k in ("start", "end", "correlationId", "globalPid", "deviceId")}
            for row in (kernel(100, 200, 1), kernel(300, 400, 2))
        ],
        CALLS: [{k: v for k, v in call(10, 20, 1).items() if k != "returnValue"}],
    },
    **{text: _with_message(text) for text in MESSAGES},
    "without length": {
        KERNELS: [
            kernel(100, 100, 1), kernel(100, 200, 2), kernel(250, 250, 3), kernel(300, 400, 4),
        ]
    },
    "all without length": {KERNELS: [kernel(100, 100, 1)]},
    "renumbered": {
        KERNELS: [kernel(100, 200, 1), kernel(100, 300, 1, pid=20)],
        "TARGET_INFO_GPU": [{"id": n, "name": "NVIDIA H200", "cuDevice": n} for n in range(4)],
        "TARGET_INFO_CUDA_DEVICE": [
            {"gpuId": 3, "cudaId": 0, "pid": 10},
            {"gpuId": 1, "cudaId": 0, "pid": 20},
        ],
    },
    "overlapping": {
        KERNELS: [
            kernel(0, 100, 1),
            kernel(50, 150, 2, streamId=8),
            kernel(20, 200, 3, streamId=9, shortName=NCCL),
        ]
    },
    "open ranges": {
        KERNELS: [kernel(100, 200, 1), kernel(300, 400, 2)],
        CALLS: [call(10, 20, 1), call(60, 70, 2)],
        "NVTX_EVENTS": [
            pushed(0, None, "outer"),
            pushed(5, 30, "done"),
            pushed(50, None, "open"),
        ],
    },
}  # fmt: skip

Analysed = Callable[[str, str], list[tuple[Any, ...]]]


def _ingest(folder: Path, tables: Tables, store: Store) -> str:
    """Make an export and read it."""
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as con:
        _make(con, "StringIds", [{"id": i, "value": v} for i, v in enumerate(NAMES, 1)])
        for name, rows in tables.items():
            _make(con, name, rows)
    con.close()
    return ingest(path, store, force=True).report_id


def _open(store: Store) -> Session:
    """Open a session on all reports and read every view, into a table: each report reads it again."""
    names = [v.name for v in views().values() if v.layer != "ncu" and v.public]
    session = Session.open(store, use=[*names, *VIEWS_USED])
    con = session.con
    for (name,) in con.execute(
        "SELECT view_name FROM duckdb_views() WHERE NOT internal"
    ).fetchall():
        con.execute(f"CREATE TABLE of_view AS FROM {name}")
        con.execute(f"DROP VIEW {name}")
        con.execute(f"ALTER TABLE of_view RENAME TO {name}")
    for name in names:
        con.execute(f"FROM {name}").fetchall()
    return session


def _answer(session: Session, report: str, sql: str) -> list[tuple[Any, ...]]:
    """Answer a query, and render a report: as the command does, but in a session with all views."""
    answer = session.con.execute(sql, {"report": report}).fetchall()
    page = render_html(build_report(session.con, [report]))
    assert page.startswith("<!doctype html>")
    assert len(page) > 1000
    return answer


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Analysed]:
    """Return a function that answers a query about one of the exports, of which each is a report.

    They share a session: planning all views takes longer than all else.
    """
    folder = tmp_path_factory.mktemp("made")
    store = Store(folder / "store")
    reports = {name: _ingest(folder, tables, store) for name, tables in EXPORTS.items()}
    assert len({*reports.values()}) == len(EXPORTS)
    with _open(store) as session:
        yield lambda name, sql: _answer(session, reports[name], sql)


def _make(con: sqlite3.Connection, table: str, rows: Sequence[Row]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    types = ("TEXT" if c in ("value", "text", "name", "label") else "INTEGER" for c in columns)
    declared = ", ".join(f'"{c}" {kind}' for c, kind in zip(columns, types, strict=True))
    con.execute(f"CREATE TABLE {table} ({declared})")
    values = [[row.get(c) for c in columns] for row in rows]
    con.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", values)


def test_two_processes_on_one_gpu_with_colliding_correlation_ids(analysed: Analysed) -> None:
    rows = analysed(
        "colliding",
        "SELECT pid, tid, start_ns, api_start_ns FROM launches WHERE report_id = $report "
        "ORDER BY start_ns",
    )
    assert rows == [(10, 10, 100, 10), (20, 21, 200, 30)]


def test_a_gpu_that_two_processes_share_is_not_idle(analysed: Analysed) -> None:
    assert analysed("shared", BUDGET) == [(0, "compute", 600)]


def test_negative_global_ids(analysed: Analysed) -> None:
    rows = analysed(
        "negative", "SELECT pid, tid, nvtx_range FROM launches WHERE report_id = $report"
    )
    assert rows == [(10, 11, ":r")]


def test_ends_that_are_null(analysed: Analysed) -> None:
    rows = analysed(
        "no ends",
        "SELECT category, time_ns, "
        "(SELECT count(*) FROM launches WHERE report_id = $report), "
        "(SELECT count(dur_ns) FROM nsys_kernels WHERE report_id = $report), "
        "(SELECT count(api_end_ns) FROM launches WHERE report_id = $report) "
        "FROM gpu_time_budget WHERE time_ns > 0 AND report_id = $report",
    )
    # The kernel without an end takes no time; the call without one lasted until its kernel began.
    assert {category: ns for category, ns, *_ in rows} == {
        "compute": 200,
        "launch_gap": 10,
        "launch_api": 190,
    }
    assert {tuple(counts) for _, _, *counts in rows} == {(3, 2, 1)}


def test_missing_tables(analysed: Analysed) -> None:
    rows = analysed(
        "missing tables",
        "SELECT b.category, b.time_ns, s.calls, s.api_med_ns, s.queue_med_ns, "
        "(SELECT any_value(api_name) FROM launches WHERE report_id = $report), "
        "(SELECT any_value(nvtx_range) FROM launches WHERE report_id = $report) "
        "FROM gpu_time_budget AS b JOIN launch_summary AS s USING (report_id) "
        "WHERE time_ns > 0 AND report_id = $report ORDER BY b.time_ns",
    )
    # Without calls nobody knows why the GPU was idle, or how long launching takes.
    unknown = (None,) * 5
    assert rows == [("compute", 200, *unknown), ("unattributed", 300, *unknown)]


def test_missing_columns(analysed: Analysed) -> None:
    rows = analysed(
        "missing columns",
        "SELECT name, demangled, grid_x, stream, registers, dur_ns FROM nsys_kernels "
        "WHERE report_id = $report",
    )
    assert rows == [(None, None, None, None, None, 100)] * 2


@pytest.mark.parametrize(("text", "confidence"), MESSAGES.items())
def test_lost_events_lower_the_confidence(analysed: Analysed, text: str, confidence: str) -> None:
    rows = analysed(
        text, "SELECT bound, confidence FROM timeline_bottleneck WHERE report_id = $report"
    )
    assert rows == [("compute", confidence)]


def test_kernels_without_length(analysed: Analysed) -> None:
    assert analysed("without length", BUDGET) == [
        (0, "compute", 200),
        (0, "unattributed", 100),
    ]


def test_nothing_but_kernels_without_length(analysed: Analysed) -> None:
    rows = analysed(
        "all without length",
        "SELECT sum(time_ns), count(share_pct) FROM gpu_time_budget WHERE report_id = $report",
    )
    # A share of a window without length is unknown.
    assert rows == [(0, 0)]


def test_devices_that_were_renumbered(analysed: Analysed) -> None:
    assert analysed("renumbered", BUDGET) == [(1, "compute", 200), (3, "compute", 100)]


def test_streams_that_overlap_count_once(analysed: Analysed) -> None:
    assert analysed("overlapping", BUDGET) == [
        (0, "communication", 50),
        (0, "compute", 150),
    ]


def test_ranges_that_were_open_when_the_capture_ended(analysed: Analysed) -> None:
    rows = analysed(
        "open ranges",
        "SELECT r.name, r.dur_ns, r.level, r.calls, r.gpu_start_ns, r.gpu_end_ns, s.kern_inst "
        "FROM nsys_nvtx_ranges AS r JOIN nvtx_kern_sum AS s "
        "ON s.report_id = r.report_id AND s.nvtx_range = ':' || r.name "
        "WHERE r.report_id = $report ORDER BY r.range_id",
    )
    assert rows == [
        ("outer", None, 0, 2, 100, 400, 2),
        ("done", 25, 1, 1, 100, 200, 1),
        ("open", None, 1, 1, 300, 400, 1),
    ]


def test_nothing_on_the_gpu(tmp_path: Path) -> None:
    """In a session of its own, where many views have no row at all."""
    store = Store(tmp_path / "store")
    report = _ingest(tmp_path, {CALLS: [call(10, 20, 1)]}, store)
    with _open(store) as session:
        assert _answer(session, report, BUDGET) == []
