"""Start-up: what it consists of against each nanosecond, and when it is a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.report import findings
from perfpipe.analysis.report.scope import Scope

#: Calls and ranges of start-up, and their cause.
CAUSES = {
    "cuModuleLoadData": "module loading",
    "cudaMalloc": "allocation of device memory",
    "ncclCommInitRank": "communicator initialization",
    "autotune": "autotuning of kernels",
    "compile_fx": "compilation",
    "cudaSetDevice": "context creation",
    "cudaGraphInstantiate": "graph capture",
}
STEPS = 12


def _loop(
    db: Tiny, first_ns: int, step_ns: int, pid: int = 1, device: int = 0, report: str = "r"
) -> None:
    """Add steps from a time on; each is one kernel, used before in a launch that took no time."""
    who = {"report_id": report, "pid": pid, "tid": 1}
    for n in range(STEPS):
        at = first_ns + n * step_ns
        db.add(
            "launches",
            {**who, "kind": "kernel", "name": "k", "device": device, "call_id": n,
             "start_ns": at + 1, "end_ns": at + step_ns // 2 + 1, "api_start_ns": at,
             "api_end_ns": at},
        )  # fmt: skip
        db.add(
            "nsys_nvtx_ranges",
            {**who, "range_id": n, "name": f"step {n}", "style": "PushPop",
             "start_ns": at, "end_ns": at + step_ns, "first_call": n, "calls": 1},
        )  # fmt: skip


def _add(db: Tiny, name: str, start: int, end: int, pid: int = 1, report: str = "r") -> None:
    table = "nsys_api_calls" if name.startswith("cu") else "nsys_nvtx_ranges"
    more = {} if name.startswith("cu") else {"style": "PushPop", "range_id": 1000 + start}
    row = {"report_id": report, "pid": pid, "tid": 1, "name": name}
    db.add(table, row | {"start_ns": start, "end_ns": end} | more)


Calls = list[tuple[str, int, int]]
_calls = st.lists(
    st.tuples(st.sampled_from(sorted(CAUSES)), st.integers(1, 100), st.integers(1, 40)),
    min_size=1,
    max_size=12,
    unique_by=lambda call: call[1],
)


@settings(max_examples=5, deadline=None)
@given(st.lists(_calls, min_size=4, max_size=4))
def test_causes_against_each_nanosecond(together: list[Calls]) -> None:
    """Several timelines at a time: planning the views takes longer than all else."""
    db = Tiny()
    for number, calls in enumerate(together):
        report = f"r{number}"
        _loop(db, 200, 1000, report=report)
        _add(db, "cudaGetDevice", 0, 1, report=report)
        for name, start, length in calls:
            _add(db, name, start, start + length, report=report)
    rows = db.rows("SELECT report_id, cause, time_ns, startup_ns FROM startup_causes")
    for number, calls in enumerate(together):
        found = [row for report, *row in rows if report == f"r{number}"]
        assert {cause: time for cause, time, _ in found if time} == dict(_expected(calls))
        assert {whole for *_, whole in found} == {200}


def _expected(calls: Calls) -> Counter[str]:
    """Overlaps within a cause count once, and what no cause covers is everything else."""
    expected: Counter[str] = Counter()
    causes = [CAUSES[name] for name, *_ in calls]
    creating = [call for call in calls if call[0] in ("cudaMalloc", "cudaSetDevice")]
    creating.sort(key=lambda call: call[1])
    names = [name for name, *_ in creating]
    if "cudaMalloc" in names:
        # The first creates the context, unless what came before took as long.
        first = names.index("cudaMalloc")
        if creating[first][2] > sum(length for *_, length in creating[:first]):
            causes[calls.index(creating[first])] = "context creation"
    for now in range(200):
        open_now = {
            cause
            for cause, (_, start, length) in zip(causes, calls, strict=True)
            if start <= now < start + length
        }
        # Compilers tune within what they compile.
        if "autotuning of kernels" in open_now:
            open_now.discard("compilation")
        expected.update(open_now or {"everything else"})
    return expected


MS = 1_000_000


@pytest.mark.parametrize(("before_ms", "context_ms", "others_ms"), [(0, 80, 1), (90, 90, 81)])
def test_the_first_allocation_creates_the_context_if_nothing_did(
    before_ms: int, context_ms: int, others_ms: int
) -> None:
    db = Tiny()
    _loop(db, 400 * MS, MS)
    _add(db, "cudaSetDevice", 0, before_ms * MS + 1)
    _add(db, "cudaMalloc", 100 * MS, 180 * MS)
    _add(db, "cudaMalloc", 200 * MS, 201 * MS)
    found = db.rows(f"SELECT cause, time_ns // {MS} FROM startup_causes WHERE calls IS NOT NULL")
    assert dict(found) == {
        "context creation": context_ms, "allocation of device memory": others_ms
    }  # fmt: skip


@pytest.mark.parametrize("name", ["cudaFree", "cudaSetDevice", "cuInit"])
def test_a_context_is_created_before_the_first_kernel(name: str) -> None:
    """Later on such a call is no start-up, and no sign that a step warms up."""
    db = Tiny()
    _loop(db, 10 * MS, MS)
    _add(db, name, 1 * MS, 3 * MS)
    for n in range(5):
        _add(db, name, (10 + n) * MS + 1000, (10 + n) * MS + 500_000)
    sql = "SELECT cause, calls, time_ns FROM startup_causes WHERE cause != 'everything else'"
    assert db.rows(sql) == [("context creation", 1, 2 * MS)]
    assert db.rows("SELECT DISTINCT phase FROM steps WHERE step IS NOT NULL") == [("steady",)]


@pytest.mark.parametrize(
    ("name", "length_ms", "cause", "technique"),
    [
        ("cuModuleLoadData", 300, "loading", "keep_alive"),
        ("autotune", 300, "autotuning", "cache_tuned"),
        ("compile_fx", 300, "compilation", "cache_compiled"),
        ("ncclCommInitRank", 300, "communicator", "fewer_communicators"),
        ("cudaMalloc", 300, "allocation", "fewer_allocations"),
        ("cudaGraphInstantiate", 300, "graph", "keep_alive"),
        ("autotune", 50, "program", "keep_alive"),
    ],
)
def test_a_long_start_up_has_a_cause_and_a_technique(
    name: str, length_ms: int, cause: str, technique: str
) -> None:
    db = Tiny()
    _loop(db, 400 * MS, 50 * MS)
    _add(db, "cudaGetDevice", 0, 1)
    _add(db, "cudaMalloc", 1, 2)  # creates the context
    _add(db, name, 10 * MS, (10 + length_ms) * MS)
    ((share, *found),) = db.rows("SELECT share_pct, cause, technique FROM startup_findings")
    assert found == [cause, technique]
    # The last step ends with its kernel, 25 ms behind its start.
    assert share == pytest.approx(100 * 400 / (400 + 11 * 50 + 25), rel=1e-6)


@pytest.mark.parametrize(("startup_ms", "steps_ms"), [(99, 10), (110, 100)])
def test_a_short_start_up_is_no_finding(startup_ms: int, steps_ms: int) -> None:
    """Under 0.1 s, or under a tenth of the capture."""
    db = Tiny()
    _loop(db, startup_ms * MS, steps_ms * MS)
    _add(db, "cudaGetDevice", 0, 1)
    assert db.rows("FROM startup_findings") == []


READY = "CUDA injection initialized successfully."


def _prepared(db: Tiny, time_ns: int, *before: str) -> None:
    for name in before:
        _add(db, name, 1, 2)
    row = {"report_id": "r", "pid": 1, "timestamp_ns": time_ns, "severity": "Info"}
    db.add("nsys_diagnostics", row | {"source": "Injection", "text": READY})


def _launch_is_a_call(db: Tiny, *before: str) -> None:
    for name in before:
        _add(db, name, 1, 2)
    _add(db, "cudaLaunchKernel", 400 * MS, 400 * MS)


def _numbered_from(db: Tiny, number: int) -> None:
    row = {"report_id": "r", "pid": 1, "tid": 2, "style": "PushPop", "range_id": 900, "calls": 0}
    at = {"start_ns": 400 * MS, "end_ns": 401 * MS}
    db.add("nsys_nvtx_ranges", {**row, **at, "name": f"ProfilerStep#{number}"})


@pytest.mark.parametrize(
    ("show", "began"),
    [
        (lambda db: _prepared(db, 100), True),
        (lambda db: _prepared(db, -100), False),
        (lambda db: _numbered_from(db, 0), True),
        (lambda db: _numbered_from(db, 5), False),
        (lambda db: None, True),
        (_launch_is_a_call, False),
        (lambda db: _launch_is_a_call(db, "cudaMalloc"), True),
        (lambda db: _launch_is_a_call(db, "cuInit"), True),
        # A module may be loaded at any time.
        (lambda db: _launch_is_a_call(db, "cuModuleLoadData"), False),
        # What nsys says counts more than the calls.
        (lambda db: _prepared(db, -100, "cudaMalloc"), False),
    ],
)
def test_a_capture_of_a_running_program_has_no_start_up(
    show: Callable[[Tiny], None], began: bool
) -> None:
    db = Tiny()
    _loop(db, 400 * MS, 50 * MS)
    _add(db, "cudaGetDevice", 0, 1)
    db.add(
        "launches",
        {"report_id": "r", "pid": 1, "tid": 1, "kind": "memset", "name": "[CUDA memset]", "device": 0,
         "start_ns": 10 * MS, "end_ns": 20 * MS, "call_id": 99},
    )  # fmt: skip
    show(db)
    assert (db.rows("SELECT 1 FROM startup_findings") != []) == began
    assert (db.rows("FROM startup_causes") != []) == began
    phase = "start-up" if began else "other"
    assert db.rows("SELECT phase FROM steps WHERE step IS NULL") == [(phase,)]
    assert db.rows("SELECT DISTINCT phase FROM steps WHERE step IS NOT NULL") == [("steady",)]
    expected = ("start-up" if began else "other", "steady")
    assert {name for (name,) in db.rows("SELECT phase FROM _capture_phases")} == set(expected)


def _steps_of(db: Tiny, lengths: list[int], name: str = "step %d") -> None:
    """Add steps of some lengths, each of one kernel that fills it."""
    at = 400 * MS
    for n, length in enumerate(lengths):
        who = {"report_id": "r", "pid": 1, "tid": 1}
        db.add(
            "launches",
            {**who, "kind": "kernel", "name": "k", "device": 0, "call_id": n, "start_ns": at + 1,
             "end_ns": at + length - 1, "api_start_ns": at, "api_end_ns": at},
        )  # fmt: skip
        db.add(
            "nsys_nvtx_ranges",
            {**who, "range_id": n, "name": name.replace("%d", str(n)), "style": "PushPop",
             "start_ns": at, "end_ns": at + length, "first_call": n, "calls": 1},
        )  # fmt: skip
        at += length


@pytest.mark.parametrize(("time_ns", "warm"), [(100, 5), (-100, 2)])
def test_slow_steps_of_a_running_program_are_no_warm_up(time_ns: int, warm: int) -> None:
    """Of four slow steps, only the first may contain the start of the profiler; the next one follows."""
    db = Tiny()
    _steps_of(db, [30 * MS] * 4 + [10 * MS] * 12)
    _prepared(db, time_ns)
    phases = dict(db.rows("SELECT phase, count(*) FROM steps WHERE step IS NOT NULL GROUP BY 1"))
    assert phases == {"warm-up": warm, "steady": 16 - warm}


def test_steps_of_a_running_program_that_load_code_are_warm_up() -> None:
    db = Tiny()
    _steps_of(db, [30 * MS] * 4 + [10 * MS] * 12)
    _prepared(db, -100)
    for n in range(4):
        _add(db, "cuModuleLoadData", (402 + 30 * n) * MS, (410 + 30 * n) * MS)
    phases = dict(db.rows("SELECT phase, count(*) FROM steps WHERE step IS NOT NULL GROUP BY 1"))
    assert phases == {"warm-up": 5, "steady": 11}


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("iteration %d decode batch=2", {"steady": 20}),
        ("execute_context_0(0)_generation_%d(2)", {"steady": 20}),
        ("step %d", {"steady": 17, "other": 3}),
        # Neither a step nor an iteration of an engine.
        ("sample %d batch=2", {}),
        ("iteration %d batch=2", {}),
        ("tokenizer %d decode", {}),
    ],
)
def test_no_iteration_of_an_engine_is_left_out(name: str, phases: dict[str, int]) -> None:
    """Each does other work; steps of other programs that take eight times as long are exceptions."""
    db = Tiny()
    _steps_of(db, ([10 * MS] * 5 + [80 * MS]) * 3 + [10 * MS] * 2, name)
    _prepared(db, -100)
    sql = "SELECT phase, count(*) FROM steps WHERE step IS NOT NULL GROUP BY 1"
    assert dict(db.rows(sql)) == phases


@pytest.mark.parametrize(("others_ms", "steps"), [(50, 20), (500, 0)])
def test_iterations_of_an_engine_launch_most_of_its_work(others_ms: int, steps: int) -> None:
    db = Tiny()
    _steps_of(db, [10 * MS] * 20, "iteration %d decode batch=2")
    db.add(
        "launches",
        {"report_id": "r", "pid": 1, "tid": 1, "kind": "kernel", "name": "k", "device": 0,
         "start_ns": 700 * MS, "end_ns": (700 + others_ms) * MS, "call_id": 99,
         "api_start_ns": 700 * MS, "api_end_ns": 700 * MS},
    )  # fmt: skip
    assert db.rows("SELECT count(*) FROM steps WHERE step IS NOT NULL") == [(steps,)]


def _told(db: Tiny) -> list[Any]:
    db.add("reports", {"report_id": "r", "kind": "nsys", "source_name": "a.sqlite"})
    db.rows("DELETE FROM reports WHERE kind = 'ncu'")
    db.session.use(*findings.VIEWS)
    return findings.findings_of(Scope(db.con, ("r",), {"nsys": 1}))


def test_it_ranks_behind_what_the_steps_show_and_promises_nothing() -> None:
    db = Tiny()
    _loop(db, 900 * MS, 20 * MS)
    _loop(db, 400 * MS, 20 * MS, pid=2, device=1)
    for pid in (1, 2):
        _add(db, "cudaGetDevice", 0, 1, pid)
    _add(db, "autotune", 10 * MS, 700 * MS)
    told = _told(db)
    assert ["GPU 0 has a long start-up phase" in finding.claim for finding in told] == [False] * (
        len(told) - 1
    ) + [True]
    assert len(told) > 1
    last = told[-1]
    assert last.bound_pct is None
    assert last.evidence == (
        "start-up, from the first CUDA call to the first steady step, takes 900 ms, 79.6 % of the capture "
        "(not of the steps); autotuning of kernels 690 ms, the program itself 210 ms"
    )
    assert last.advice.startswith("Cache autotuning results")
    assert last.command.startswith("perfpipe show startup ")


def _loops(*loops: tuple[int, int, int, int]) -> Tiny:
    """Loops found by the order of launches: start, steps, duration and launches of a step.

    The loop with the most iterations has the steps.
    """
    db = Tiny()
    most = max(steps for _, steps, _, _ in loops)
    for loop, (first, steps, length, period) in enumerate(loops, 1):
        db.add(
            "launch_loops",
            {"pid": 1, "loop": loop, "level": 1, "role": "step" if steps == most else "other",
             "source": "period", "evidence": "input", "iterations": steps, "launches": period,
             "variable": 0, "share": steps * length / sum(n * each for _, n, each, _ in loops)},
        )  # fmt: skip
        for step in range(steps):
            start = first + step * length
            at = {"device": 0, "pid": 1, "start_ns": start, "end_ns": start + length - 1}
            db.add(
                "launch_steps",
                {**at, "loop": loop, "run": 1, "step": step + 1, "period": period, "repeats": 1,
                 "host_start_ns": start, "host_end_ns": start + length, "launches": period,
                 "match": 1.0, "boundary": "idle"},
            )  # fmt: skip
            names = {"stream": 7, "name": "k", "demangled": "k()"}
            db.add("launches", {"kind": "kernel", **at, **names})
            db.add("nsys_kernels", {**at, **names, "dur_ns": length - 1})
    return db


def test_other_loops_are_told_with_their_share_of_the_time() -> None:
    """Ten tokens take longest at a time; three steps of a training are behind them."""
    db = _loops((0, 10, 10, 4), (100, 3, 20, 9))
    assert db.rows("SELECT period_launches, loop, steps FROM step_sources") == [(4, 1, 10)]
    loops = "SELECT process_id, loop, role, launches, iterations, median_ns, share_pct FROM loops"
    assert db.rows(loops) == [
        (1, 1, "step", 4, 10, 10.0, 62.5),
        (1, 2, "other", 9, 3, 20.0, 37.5),
    ]


def test_loops_that_an_older_version_read() -> None:
    """They have iterations, but no tree: the longest loop has the steps."""
    db = _loops((0, 10, 10, 4), (100, 3, 20, 9))
    db.rows("DELETE FROM launch_loops")
    rows = db.rows("SELECT loop, role, iterations, launches, why FROM loops ORDER BY loop")
    why = "read by an older version of perfpipe"
    assert rows == [(1, "step", 10, 4, why), (2, "other", 3, 9, why)]
    assert db.rows("SELECT kind, steps FROM analysis_windows") == [("steady", 10)]


def test_other_loops_before_the_steps_are_no_start_up() -> None:
    unit = 10 * MS
    db = _loops((0, 3, 20 * unit, 9), (100 * unit, 12, 10 * unit, 4))
    _add(db, "cudaGetDevice", 0, 1)
    # On the GPU the last of its steps ends a nanosecond earlier.
    assert db.rows("SELECT startup_ns FROM analysis_windows") == [(40 * unit + 1,)]
    causes = dict(db.rows("SELECT cause, time_ns FROM startup_causes"))
    assert causes == {"other loops": 60 * unit - 1, "everything else": 40 * unit + 1}
    found = db.rows("SELECT startup_ns, causes FROM startup_findings")
    assert found == [(40 * unit + 1, "the program itself 400 ms; excluding 0.60 s in other loops")]


def test_what_is_tuned_or_loaded_in_a_loop_is_start_up() -> None:
    unit = 10 * MS
    db = _loops((0, 3, 20 * unit, 9), (100 * unit, 12, 10 * unit, 4))
    _add(db, "cudaGetDevice", 0, 1)
    _add(db, "cuModuleLoadData", 10 * unit, 30 * unit)
    _add(db, "autotune", 50 * unit, 70 * unit)
    causes = dict(db.rows("SELECT cause, time_ns FROM startup_causes"))
    assert causes == {
        "module loading": 20 * unit,
        "autotuning of kernels": 20 * unit,
        "other loops": 30 * unit,
        "everything else": 30 * unit,
    }
