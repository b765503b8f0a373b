"""The code that runs while the GPU is idle, against a count of every nanosecond."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any, NamedTuple

import pytest
from conftest import Tiny
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

SCRIPT, TORCH = "/home/ada/train.py", "/env/lib/python3.12/site-packages/torch/nn/linear.py"
LOADER = "/env/lib/python3.12/site-packages/torch/utils/data/dataloader.py"
WORKER = "/env/lib/python3.12/site-packages/torch/utils/data/_utils/worker.py"

#: Frames by number: function, file, line, kind, package.
FRAMES = [
    ("<module>", SCRIPT, 1, "user", None),
    ("step", SCRIPT, 2, "user", None),
    ("log", SCRIPT, 3, "user", None),
    ("forward", TORCH, 4, "library", "torch"),
    ("_get_data", LOADER, 5, "library", "torch"),
    ("_worker_loop", WORKER, 6, "library", "torch"),
    ("resize", SCRIPT, 7, "user", None),
    ("get", "/usr/lib/python3.12/multiprocessing/queues.py", 8, "python", None),
    ("_wrapped_call_impl", TORCH, 9, "library", "torch"),
    ("_bootstrap", "/usr/lib/python3.12/multiprocessing/process.py", 314, "python", None),
    ("__torch_function__", SCRIPT, 10, "user", None),
]  # fmt: skip

#: Stacks by number: frames, innermost first.
STACKS = [
    *((1, 0), (2, 0), (3, 8, 1, 0), (3,), (4, 0), (6, 5), (7, 5), (2, 2, 0), (6, 5, 9)),
    *((10, 2, 0), (3, 10)),
]
LEVELS = ("user", "function", "line")


class Op(NamedTuple):
    """An operation: idle time before it, its duration, and its call before its start."""

    idle: int
    dur: int
    lead: int
    cause: str


def _frames(db: Tiny, report: str) -> None:
    for at, (function, file, line, kind, package) in enumerate(FRAMES):
        row = {"frame_id": at, "function": function, "file": file, "line": line}
        db.add("host_frames", {"report_id": report, **row, "kind": kind, "package": package})
    for at, frames in enumerate(STACKS):
        for depth, frame in enumerate(frames):
            row = {"stack_id": at, "depth": depth, "frame_id": frame}
            db.add("host_stacks", {"report_id": report, **row})


def _sample(db: Tiny, report: str, start: int, end: int, stack: int, **more: Any) -> None:
    row = {
        "report_id": report, "time_ns": (start + end) // 2, "start_ns": start, "end_ns": end,
        "pid": 1, "tid": 1, "stack_id": stack, "source": "python sampling",
    }  # fmt: skip
    db.add("host_samples", row | more)


def _launch(db: Tiny, report: str, number: int, start: int, end: int, **more: Any) -> None:
    row = {
        "report_id": report, "kind": "kernel", "name": "k", "device": 0, "stream": 7, "pid": 1,
        "tid": 1, "correlation_id": number, "call_id": number, "start_ns": start, "end_ns": end,
        "api_name": "cudaLaunchKernel",
    }  # fmt: skip
    db.add("launches", row | more)


def _report(db: Tiny, report: str) -> None:
    db.add("reports", {"report_id": report, "kind": "nsys", "gpu": "NVIDIA H200", "sm_count": 132})
    _frames(db, report)


#: Idle time in ns before an operation, duration, and how long before it its call begins.
_ops = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 50), st.integers(1, 400)), min_size=2, max_size=6
)
#: Samples: time without one, length, and stack.
_cells = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 90), st.integers(0, len(STACKS) - 1)), max_size=12
)
#: Threads: the launching thread and the main thread, with its samples.
_cases = st.lists(st.tuples(_ops, _cells, _cells, st.booleans()), min_size=6, max_size=12)


@given(_cases)
@settings(max_examples=12, deadline=None, phases=(Phase.reuse, Phase.generate))
def test_every_nanosecond_of_idle_time_has_its_stack(cases: list[Any]) -> None:
    db = Tiny()
    # The first report would have no GPU work at all: it is that of the database.
    cells: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for at, (ops, own, main, is_main) in enumerate(cases):
        report, thread = f"case {at}", 1 if is_main else 2
        _report(db, report)
        now = 0
        for number, (idle, dur, lead) in enumerate(ops):
            start = now + idle if number else 0
            call = {"api_start_ns": start - lead, "api_end_ns": start - lead // 2, "tid": thread}
            _launch(db, report, number, start, start + dur, **call)
            now = start + dur
        for tid, samples in ((2, own), (1, main)):
            now = 0
            for gap, length, stack in samples:
                now += gap
                if tid == thread or tid == 1:
                    _sample(db, report, now, now + length, stack, tid=tid)
                    cells.setdefault((report, tid), []).append((now, now + length, stack))
                now += length
    db.session.use("idle_stacks", "_code_gaps", "idle_code")
    gaps = db.con.execute(
        "SELECT report_id, start_ns, end_ns, cause, by_host, wait_start_ns FROM _code_gaps"
    ).fetchall()
    found: dict[tuple[str, int], list[tuple[int, int, str, bool]]] = {}
    for report, start, end, cause, by_host, wait in gaps:
        assert wait is None
        thread = 1 if cases[int(report.split()[1])][3] else 2
        middle = (start + end) // 2
        own = any(first <= middle < last for first, last, _ in cells.get((report, thread), []))
        main = 1 if (report, 1) in cells else thread
        found.setdefault((report, thread if own else main), []).append((start, end, cause, by_host))
    expected: Counter[tuple[str, str, int | None]] = Counter()
    for (report, thread), intervals in found.items():
        for (cause, stack), ns in _counted(intervals, cells.get((report, thread), [])).items():
            expected[report, cause, stack] += ns
    rows = db.con.execute(
        "SELECT report_id, cause, stack_id, sum(time_ns)::BIGINT FROM idle_stacks GROUP BY ALL"
    ).fetchall()
    assert {tuple(key): ns for *key, ns in rows} == {key: ns for key, ns in expected.items() if ns}
    _check_code(db, +expected)


Cell = tuple[int, int, int]


def _counted(
    intervals: list[tuple[int, int, str, bool]], cells: list[Cell]
) -> Counter[tuple[str, int | None]]:
    """Count the nanoseconds of the idle intervals of a thread by cause and stack.

    Intervals of at least a period belong to the samples within them; shorter ones with the same
    cause, to all samples within such intervals.
    """
    counts: Counter[tuple[str, int | None]] = Counter()
    period = round(statistics.median(last - first for first, last, _ in cells)) if cells else 0
    short: Counter[str] = Counter()
    seen: dict[str, Counter[int]] = {}
    for start, end, cause, by_host in intervals:
        inside = [cell for cell in cells if start <= (cell[0] + cell[1]) // 2 < end]
        if not by_host or not cells:
            counts[cause, None] += end - start
        elif end - start >= period:
            for moment in range(start, end):
                counts[cause, _stack_at(moment, inside, period)] += 1
        else:
            seen.setdefault(cause, Counter()).update(stack for *_, stack in inside)
            covered = any(first < end and last > start for first, last, _ in cells)
            short[cause] += (end - start) * covered
            counts[cause, None] += (end - start) * (not covered)
    for cause, ns in short.items():
        weights = sorted(seen[cause].items())
        if not weights:
            counts[cause, None] += ns
        given, so_far, total = 0, 0, sum(weight for _, weight in weights)
        for stack, weight in weights:
            so_far += weight
            until = ns if so_far == total else int(ns * (so_far / total))
            counts[cause, stack] += until - given
            given = until
    return counts


def _stack_at(moment: int, inside: list[Cell], period: int) -> int | None:
    """Return the stack at a moment of an interval, from the samples within it."""
    for place, (first, last, stack) in enumerate(inside):
        time = (first + last) // 2
        since = first if place else time - period
        until = last if place < len(inside) - 1 else time + period
        if since <= moment < until:
            return stack
    return None


def _check_code(db: Tiny, expected: Counter[tuple[str, str, int | None]]) -> None:
    """Check what idle_code says of stacks with known times: self and total of each level."""
    selves: Counter[tuple[Any, ...]] = Counter()
    totals: Counter[tuple[Any, ...]] = Counter()
    for (report, cause, stack), ns in expected.items():
        if stack is None:
            for level in LEVELS:
                selves[report, cause, level, None, None] += ns
            continue
        frames = [FRAMES[frame] for frame in STACKS[stack]]
        users = [frame for frame in frames if frame[3] == "user"]
        # All libraries here are torch, of which the loader's own code does not count.
        others = [frame for frame in frames if frame[4] and "utils/data" not in str(frame[1])]
        # A hook that PyTorch calls says nothing if it has a caller.
        callers = [frame for frame in users if frame[0] != "__torch_function__"]
        code = (callers or users or others or frames)[0]
        own = {"user": code, "function": frames[0], "line": frames[0]}
        for level in LEVELS:
            lines = {_key(level, frame) for frame in (users if level == "user" else frames)}
            selves[report, cause, level, *_key(level, own[level])] += ns
            for key in lines | {_key(level, own[level])}:
                totals[report, cause, level, *key] += ns
    rows = db.con.execute(
        "SELECT report_id, cause, level, function, line, self_ns, total_ns FROM idle_code"
    ).fetchall()
    assert {tuple(key): own for *key, own, _ in rows if own} == dict(selves)
    named = {tuple(key): total for *key, _, total in rows if key[3] is not None}
    assert named == dict(totals)


def _key(level: str, frame: tuple[Any, ...]) -> tuple[Any, Any]:
    return frame[0], None if level == "function" else frame[2]


def _waits(db: Tiny, report: str, sites: list[tuple[int, int, int]], rounds: int) -> int:
    """Add waits for the GPU of several sites in turn; return the end.

    A site has the length of its wait, the idle time that follows, and the correlation id from
    which its calls are counted.
    """
    now = number = 0
    for _ in range(rounds):
        for wait, idle, first in sites:
            start, end = now, now + wait
            _launch(
                db, report, number, start, end, api_start_ns=start - 900, api_end_ns=start - 800
            )
            call = {"pid": 1, "tid": 1, "api": "runtime", "name": "cudaStreamSynchronize"}
            call |= {"correlation_id": first + number, "start_ns": start, "end_ns": end + 10}
            db.add("nsys_api_calls", {"report_id": report, **call, "dur_ns": wait + 10})
            now, number = end + idle, number + 1
    _launch(db, report, number, now, now + 10, api_start_ns=now - 900, api_end_ns=now - 800)
    return now


def test_idle_time_after_a_wait_belongs_to_the_code_that_waited() -> None:
    """The shares of sites follow the idle time behind them, not the length of their waits."""
    db = Tiny()
    _report(db, "sampled")
    sites = [(20_000, 30_000, 1000), (60_000, 10_000, 1000)]
    end = _waits(db, "sampled", sites, 200)
    period, step = 7_919, sum(wait + idle for wait, idle, _ in sites)
    for time in range(period, end, period):
        at = time % step
        # The first site waits for 20 us, then idles; the second one waits from 50 us on.
        stack = 0 if at < 20_000 else 3 if at < 50_000 else 1 if at < 110_000 else 3
        _sample(db, "sampled", time - period // 2, time + period - period // 2, stack)
    _report(db, "exact")
    _waits(db, "exact", sites, 3)
    for number in range(6):
        at = number // 2 * step + (50_000 if number % 2 else 0)
        row = {"report_id": "exact", "time_ns": at + 5, "pid": 1, "tid": 1, "stack_id": number % 2}
        row |= {"source": "cuda backtrace", "correlation_id": 1000 + number}
        db.add("host_samples", row)
    _sample(db, "exact", 20_000, 20_001, 3)
    db.session.use("idle_code")
    rows = db.con.execute(
        "SELECT report_id, line, self_pct, cause FROM idle_code WHERE level = 'user' AND self_ns > 0"
        " AND cause = 'sync' ORDER BY report_id, rank"
    ).fetchall()
    shares = {(report, line): share for report, line, share, _ in rows}
    assert shares["exact", 2] == pytest.approx(75)
    assert shares["exact", 3] == pytest.approx(25)
    # Both waits are longer than the period, so nearly all of them are sampled.
    assert shares["sampled", 2] == pytest.approx(75, abs=2)
    assert shares["sampled", 3] == pytest.approx(25, abs=2)


def test_short_waits_are_weighted_by_the_chance_to_sample_them() -> None:
    """A wait of a tenth of the period that costs as much as one of half a period: equal shares."""
    db = Tiny()
    _report(db, "r0")
    sites = [(1_000, 20_000, 1000), (5_000, 20_000, 1000)]
    end = _waits(db, "r0", sites, 3000)
    step = sum(wait + idle for wait, idle, _ in sites)
    period = 9_973
    for time in range(period, end, period):
        at = time % step
        stack = 0 if at < 1_000 else 3 if at < 21_000 else 1 if at < 26_000 else 3
        _sample(db, "r0", time - period // 2, time + period - period // 2, stack)
    db.session.use("idle_code")
    rows = db.con.execute(
        "SELECT line, self_pct FROM idle_code WHERE level = 'user' AND cause = 'sync'"
    ).fetchall()
    shares = dict(rows)
    assert shares[2] == pytest.approx(50, abs=6)
    assert shares[3] == pytest.approx(50, abs=6)
    assert sum(shares.values()) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize(("source", "work"), [("py-spy", 5), ("python sampling", 8)])
def test_a_wait_for_workers_belongs_to_what_they_do(source: str, work: int) -> None:
    """Workers that were forked are sampled by py-spy, those that were spawned by nsys."""
    db = Tiny()
    _report(db, "r0")
    for number in range(4):
        at = 10_000_000 * number
        _launch(db, "r0", number, at, at + 1000, api_start_ns=at - 9000, api_end_ns=at - 8000)
    # The main thread fetches batches for nine tenths of the time, and logs for the rest.
    for start in range(0, 30_000_000, 1_000_000):
        stack = 1 if start % 10_000_000 == 9_000_000 else 4
        _sample(db, "r0", start, start + 1_000_000, stack)
    # A worker resizes for two thirds of its time, and waits for the rest, which delays nobody.
    for start in range(0, 30_000_000, 1_000_000):
        stack = 6 if start % 3_000_000 == 0 else work
        worker = {"pid": 2, "tid": 2, "source": source}
        _sample(db, "r0", start, start + 1_000_000, stack, **worker)
    db.session.use("idle_code", "idle_causes")
    rows = db.con.execute(
        "SELECT function, line, via, code_pct FROM idle_code WHERE level = 'user' AND self_ns > 0 "
        "AND cause = 'host' ORDER BY rank"
    ).fetchall()
    assert [row[:3] for row in rows[:2]] == [("resize", 7, "worker process"), ("log", 3, None)]
    assert rows[0][3] == pytest.approx(90, abs=1)
    ((idle, told),) = db.con.execute(
        "SELECT (SELECT sum(time_ns) FROM idle_causes), sum(self_ns) FROM idle_code "
        "WHERE level = 'line'"
    ).fetchall()
    assert idle == told


def test_forked_processes_do_not_speak_for_operations_without_a_process() -> None:
    db = Tiny()
    _report(db, "r0")
    for number in range(2):
        at = 10_000_000 * number
        call = {"api_start_ns": at - 9000, "api_end_ns": at - 8000}
        _launch(db, "r0", number, at, at + 1000, pid=None, tid=None, **call)
    _sample(db, "r0", 0, 10_000_000, 1)
    _sample(db, "r0", 0, 10_000_000, 5, pid=2, tid=2, source="py-spy")
    db.session.use("idle_stacks")
    found = db.con.execute("SELECT DISTINCT stack_id FROM idle_stacks WHERE cause = 'host'")
    assert found.fetchall() == [(1,)]


def test_what_a_line_calls_is_named_without_wrappers() -> None:
    db = Tiny()
    _report(db, "r0")
    for number in range(2):
        at = 10_000_000 * number
        _launch(db, "r0", number, at, at + 1000, api_start_ns=at - 9000, api_end_ns=at - 8000)
    _sample(db, "r0", 0, 10_000_000, 2)
    db.session.use("idle_code")
    ((called, low, high),) = db.con.execute(
        "SELECT library_function, low_pct, high_pct FROM idle_code "
        "WHERE level = 'user' AND rank = 1 AND cause = 'host'"
    ).fetchall()
    assert called == "forward (torch/nn/linear.py)"
    assert 0 < low < high <= 100
