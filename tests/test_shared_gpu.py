"""Processes that share a GPU: each has its own steps, with budgets against each nanosecond."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

#: What is launched, and a migration, which nothing launches; in the order in which they count.
MIGRATION = "[CUDA memcpy Unified Host-to-Device]"
LAUNCHED = ("gemm", "ncclDevKernel_AllReduce", "[CUDA memset]")
NAMES = dict(
    zip(
        (*LAUNCHED[:2], MIGRATION, LAUNCHED[2]),
        ("compute", "communication", "migration", "transfer"),
        strict=True,
    )
)
Op = dict[str, Any]


@st.composite
def processes(draw: st.DrawFn) -> list[Op]:
    """Operations of three processes on one GPU, and migrations of unified memory.

    Each operation was launched right before, by a call.
    """
    calls = count()
    starts = st.lists(st.integers(0, 80), min_size=1, max_size=7)
    launched = [
        {
            "kind": "memset" if name == "[CUDA memset]" else "kernel", "name": name, "device": 0,
            "pid": pid, "tid": pid, "call_id": next(calls), "start_ns": start,
            "end_ns": start + draw(st.integers(0, 12)), "api_name": "cudaLaunchKernel",
            "api_start_ns": start - 2, "api_end_ns": start - 1,
        }
        for pid in (1, 2, 3)
        for start in sorted(draw(starts))
        for name in [draw(st.sampled_from(LAUNCHED))]
    ]  # fmt: skip
    return launched + [
        {
            "kind": "memcpy", "name": MIGRATION, "device": 0, "pid": draw(st.integers(1, 3)),
            "start_ns": start, "end_ns": start + draw(st.integers(0, 12)),
        }
        for start in draw(st.lists(st.integers(0, 80), max_size=4))
    ]  # fmt: skip


def _copies(ops: list[Op]) -> list[Op]:
    """Return the migrations as memory operations: those on demand, and the others."""
    columns = ("device", "pid", "start_ns", "end_ns")
    return [
        {
            "operation": MIGRATION, "bytes": 4096, "migration_cause": CAUSES[_delays(op)],
            **{column: op[column] for column in columns},
        }
        for op in ops
        if op["name"] == MIGRATION
    ]  # fmt: skip


CAUSES = {True: "Page fault", False: "User prefetch"}


def _delays(op: Op) -> bool:
    """Whether kernels may wait for a migration: every other time."""
    return bool(op["name"] == MIGRATION and op["start_ns"] % 2)


def _steps(ops: list[Op], size: int) -> Iterator[Op]:
    """Make a range of every few launches of a process, but of the last process."""
    for pid in (1, 2):
        own = [op for op in ops if op["pid"] == pid and "call_id" in op]
        for place in range(0, len(own), size):
            part = own[place : place + size]
            yield {
                "pid": pid, "tid": pid, "range_id": part[0]["call_id"], "name": f"step {place}",
                "style": "PushPop", "start_ns": part[0]["api_start_ns"],
                "end_ns": part[-1]["api_end_ns"], "first_call": part[0]["call_id"],
                "calls": len(part),
            }  # fmt: skip


def _category(ops: list[Op], pid: int, now: int) -> str:
    running = [op for op in ops if op["start_ns"] <= now < op["end_ns"]]
    own = {NAMES[op["name"]] for op in running if op["pid"] == pid}
    delayed = any(_delays(op) for op in running if op["pid"] == pid)
    if delayed and own & {"compute", "communication"}:
        return "migration"
    if own:
        return next(kind for kind in NAMES.values() if kind in own)
    if running:
        return "other_process"
    following = min((op["start_ns"], op["end_ns"], place, op["pid"])
                    for place, op in enumerate(ops) if op["start_ns"] > now)  # fmt: skip
    return "idle" if following[-1] == pid else "unattributed"


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(processes(), st.integers(1, 3)), min_size=4, max_size=4))
def test_steps_of_each_process_against_each_nanosecond(
    together: list[tuple[list[Op], int]],
) -> None:
    """Several timelines at a time: planning the views takes longer than all else."""
    db = Tiny()
    for number, (ops, size) in enumerate(together):
        ranges = [*_steps(ops, size)]
        tables = {"launches": ops, "nsys_nvtx_ranges": ranges, "nsys_memory_ops": _copies(ops)}
        db.add_report(f"r{number}", tables)
    rows = db.rows(
        "SELECT report_id, process_id, step_index, window_start_ns, window_end_ns, category, "
        "sum(time_ns) FROM step_budget WHERE step_index IS NOT NULL GROUP BY ALL"
    )
    counted = dict(
        db.rows("SELECT report_id, sum(launches) FROM steps WHERE process_id = 1 GROUP BY ALL")
    )
    for number, (ops, _) in enumerate(together):
        report = f"r{number}"
        _check_steps(ops, [row for of, *row in rows if of == report])
        # A step of no length has nothing in it.
        if all(op["end_ns"] > op["start_ns"] for op in ops):
            launched = sum(op["pid"] == 1 and op["kind"] == "kernel" for op in ops)
            assert counted[report] == launched


def _check_steps(ops: list[Op], rows: list[list[Any]]) -> None:
    found: dict[tuple[int, ...], Counter[str]] = {}
    known = {*NAMES.values(), "other_process", "unattributed"}
    for *window, category, time in rows:
        found.setdefault(tuple(window), Counter())[category if category in known else "idle"] += (
            time
        )
    assert {pid for pid, *_ in found} == {1, 2}, "the third one has no steps"
    for (pid, _, begin, end), budget in found.items():
        expected = Counter(_category(ops, pid, now) for now in range(begin, end))
        assert +budget == expected, (pid, begin, end)


def _op(start: int, end: int, pid: int, call: int) -> Op:
    return {"kind": "kernel", "name": "k", "device": 0, "pid": pid, "tid": pid, "call_id": call,
            "start_ns": start, "end_ns": end, "api_start_ns": start, "api_end_ns": start}  # fmt: skip


def _range(name: str, pid: int, call: int, start: int, end: int) -> Op:
    return {"pid": pid, "tid": pid, "range_id": call, "name": name, "style": "PushPop",
            "start_ns": start, "end_ns": end, "first_call": call, "calls": 1}  # fmt: skip


def _two(db: Tiny, *, backwards: bool = False) -> None:
    """Two loops that alternate: 300 us of one, 600 us of the other, and the GPU idles for 100 us."""
    for n in range(8)[:: -1 if backwards else 1]:
        at = 1_000_000 * n
        for pid, start, end in ((1, 0, 300_000), (2, 300_000, 900_000)):
            call = 2 * n + pid
            db.add("launches", _op(at + start, at + end, pid, call))
            db.add("nsys_nvtx_ranges", _range(f"step {n}", pid, call, at + start, at + end))


def test_each_process_has_steady_steps_and_its_own_share() -> None:
    db = Tiny()
    _two(db)
    sql = "SELECT process_id, steps, step_ns, own_pct, other_pct, idle_pct FROM gpu_processes"
    # The last step of each ends with its own kernel.
    assert [(pid, steps, step) for pid, steps, step, *_ in db.rows(sql)] == [
        (2, 8, 1e6),
        (1, 8, 1e6),
    ]
    middle = db.rows(
        "SELECT process_id, compute_pct, other_process_pct, unattributed_pct, launch_gap_pct "
        "FROM step_shares WHERE step_index = 4 ORDER BY process_id"
    )
    assert middle == [(1, 30.0, 60.0, 0.0, 10.0), (2, 60.0, 30.0, 10.0, 0.0)]
    assert db.rows("SELECT process_id, steps, p50_ns FROM step_summary") == [
        (1, 8, 1e6),
        (2, 8, 1e6),
    ]
    # The process with the most work, not the one whose steps span most.
    assert db.rows("SELECT process_id, kind, steps FROM analysis_windows") == [(2, "steady", 8)]


def test_a_process_is_busy_while_its_kernels_run() -> None:
    db = Tiny()
    db.add("launches", _op(0, 100, 1, 0), _op(50, 150, 1, 1), _op(200, 300, 2, 2))
    db.add(
        "launches",
        {**_op(120, 260, 1, 3), "kind": "memcpy"},
        {**_op(0, 400, 3, 4), "kind": "memcpy"},
    )
    assert db.rows("SELECT process_id, busy_ns, busy_pct FROM gpu_processes") == [
        (1, 150, 37.5),
        (2, 100, 25.0),
        (3, 0, 0.0),
    ]


def test_the_order_of_rows_means_nothing() -> None:
    answers = []
    for backwards in (False, True):
        db = Tiny()
        _two(db, backwards=backwards)
        views = ("gpu_processes", "step_budget", "steps", "step_summary", "analysis_windows")
        answers.append({view: db.rows(f"FROM {view}") for view in views})
        assert all(answers[-1].values())
    assert answers[0] == answers[1]


def test_a_gpu_of_one_process_is_shared_with_nobody() -> None:
    db = Tiny()
    for n in range(4):
        db.add("launches", _op(100 * n, 100 * n + 50, 1, n))
        db.add("nsys_nvtx_ranges", _range(f"step {n}", 1, n, 100 * n, 100 * n + 50))
    assert db.rows("FROM gpu_processes") == []
    assert db.rows("SELECT DISTINCT other_process_pct FROM step_shares") == [(None,)]


def test_steps_of_another_process_leave_the_budget_of_the_gpu_alone() -> None:
    """That is of whatever ran, and adds up over the windows of one process."""
    whole = {"compute": 7_200_000, "launch_gap": 700_000}
    db = Tiny()
    _two(db)
    rows = db.rows("SELECT category, time_ns FROM gpu_time_budget WHERE time_ns > 0")
    assert sum(time for _, time in rows) == db.rows("SELECT time_ns FROM analysis_windows")[0][0]
    sums = db.rows("SELECT category, sum(time_ns) FROM _budgets WHERE time_ns > 0 GROUP BY 1")
    assert dict(sums) == whole


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    """A real capture whose process runs twice at the same time, on one GPU."""
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        made = importlib.import_module("synthetic")
    shape = made.Shape("eager_small", annotated=False, lanes=2, processes=2)
    store = Store(folder / "store")
    return store, ingest(made.synthesize(folder / "two.sqlite", 1, shape), store).report_id


def test_a_capture_of_two_processes_on_one_gpu(two: tuple[Store, str]) -> None:
    store, report = two
    with Session.open(store, [report]) as session:
        steps = session.execute(
            "SELECT process_id, count(*), sum(launches) FROM steps WHERE step IS NOT NULL GROUP BY 1 "
            "ORDER BY 1"
        ).fetchall()
        sums = session.execute(
            "SELECT process_id, step_index, any_value(step_ns) - sum(time_ns), min(time_ns) "
            "FROM step_budget GROUP BY process_id, step_index, window_start_ns"
        ).fetchall()
    assert [row[1:] for row in steps] == [(20, 7080)] * 2, "the seed has 354 launches a step"
    assert len(sums) > 40
    assert {(difference, least >= 0) for *_, difference, least in sums} == {(0, True)}


def test_the_report_says_who_shares_the_gpu(
    two: tuple[Store, str], cli: Cli, tmp_path: Path
) -> None:
    store, report = two
    files = ("--md", tmp_path / "r.md", "--json", tmp_path / "r.json")
    assert cli("report", report, "--store", store.root, *files) == 0, cli.err
    text = (tmp_path / "r.md").read_text()
    assert "GPU 0 is shared by 2 processes" in text
    assert json.loads((tmp_path / "r.json").read_text())["sections"]
