"""NVTX attribution: the sweep against looking at every range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.ingest.arrays import NONE, STILL_OPEN
from perfpipe.ingest.columns import Columns
from perfpipe.ingest.nsys.attribution import NO_RANGE, WAITING, Projection, attribute
from perfpipe.ingest.nsys.launches import Calls
from perfpipe.ingest.nsys.ranges import PUSH_POP, START_END, Ranges

pytestmark = pytest.mark.usefixtures("few_rows")

#: Each has dozens of ranges and calls, and takes as many ms.
EXAMPLES = 40


@st.composite
def nested_ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Ranges as push and pop give them: each inside of another or apart."""
    clock, stack, ranges = 0, [], []
    for push in draw(st.lists(st.booleans(), max_size=40)):
        clock += draw(st.integers(0, 3))
        if push:
            stack.append(clock)
        elif stack:
            ranges.append((stack.pop(), clock))
    clock += 1
    ranges += [(start, clock) for start in stack]
    return sorted(ranges, key=lambda r: (r[0], -r[1]))


Call = tuple[int, int, int, int]  # start, end, start and end of its kernel


@st.composite
def calls_in_order(draw: st.DrawFn) -> list[Call]:
    """Calls one after another, each with a kernel at any later time."""
    clock, calls = 0, []
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20)):
        start = clock + gap
        clock = start + length
        kernel = start + draw(st.integers(0, 50))
        calls.append((start, clock, kernel, kernel + draw(st.integers(0, 9))))
    return calls


def _ranges(spans: list[tuple[int, int]], tid: int = 1, style: int = PUSH_POP) -> Ranges:
    n = len(spans)
    codes, none = np.zeros(n, np.int32), np.full(n, NONE, np.int32)
    return Ranges(
        start=np.array([s for s, _ in spans], np.int64),
        end=np.array([e for _, e in spans], np.int64),
        style=np.full(n, style, np.int8),
        thread=codes,
        threads=[(1, tid)],
        name=np.arange(n, dtype=np.int32),
        names=[f"r{i}" for i in range(n)],
        domain=codes,
        domains=[None],
        end_thread=none,
        category=none,
        categories=[],
    )


def launching(calls: list[Call], tid: int = 1) -> Calls:
    start, end, gpu_start, gpu_end = (
        np.array([call[i] for call in calls], np.int64) for i in range(4)
    )
    name = np.zeros(len(calls), np.int32)
    same = np.ones(len(calls), np.int64)
    time = gpu_end - gpu_start
    return Calls(
        same,
        same * tid,
        start,
        end,
        name,
        name,
        ["cudaLaunchKernel"],
        gpu_start,
        gpu_end,
        time,
        time,
    )


def _within(call: Call, span: tuple[int, int]) -> bool:
    return span[0] <= call[0] and call[1] <= span[1]


@settings(max_examples=EXAMPLES)
@given(nested_ranges(), calls_in_order())
def test_the_innermost_range_holds_the_call(
    spans: list[tuple[int, int]], calls: list[Call]
) -> None:
    found = attribute(launching(calls), _ranges(spans), Columns())
    assert (found.source != WAITING).all()
    for call, index in zip(calls, found.innermost.tolist(), strict=True):
        holding = [i for i, span in enumerate(spans) if _within(call, span)]
        if not holding:
            assert index == NONE
        else:
            # Of ranges with the same borders any will do: they are told apart by order alone.
            best = min(spans[i][1] - spans[i][0] for i in holding)
            assert index in holding
            assert spans[index][1] - spans[index][0] == best


@settings(max_examples=EXAMPLES)
@given(nested_ranges(), calls_in_order(), st.sampled_from([PUSH_POP, START_END]))
def test_a_range_holds_a_run_of_calls_and_their_span_on_the_gpu(
    spans: list[tuple[int, int]], calls: list[Call], style: int
) -> None:
    ranges = _ranges(spans, style=style)
    columns = Projection(launching(calls), ranges, Columns()).columns(slice(0, len(spans)))
    names = ("first_call", "calls", "gpu_start_ns", "gpu_end_ns", "gpu_time_ns")
    rows = [columns[c].to_pylist() for c in names]
    for span, first, count, start, end, time in zip(spans, *rows, strict=True):
        held = [i for i, call in enumerate(calls) if _within(call, span)]
        assert list(range(first or 0, (first or 0) + count)) == held
        assert start == min((calls[i][2] for i in held), default=None)
        assert end == max((calls[i][3] for i in held), default=None)
        assert time == (sum(calls[i][3] - calls[i][2] for i in held) if held else None)
    children = columns["children"].to_pylist()
    for index, count in enumerate(children):
        inside = [i for i, outer in enumerate(ranges.enclosing) if outer == index]
        assert count == sum(rows[1][i] > 0 for i in inside)


Thread = tuple[list[tuple[int, int]], list[Call]]


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(nested_ranges(), calls_in_order()), min_size=1, max_size=4))
def test_threads_in_turn_have_their_own_runs(threads: list[Thread]) -> None:
    """Ranges of several threads, ordered by start, each hold calls of their own thread only."""
    rows = sorted(
        (start, -end, tid) for tid, (spans, _) in enumerate(threads, 1) for start, end in spans
    )
    ranges = _ranges([(start, -end) for start, end, _ in rows])
    ranges = replace(
        ranges,
        thread=np.array([tid - 1 for *_, tid in rows], np.int32),
        threads=[(1, tid) for tid in range(1, len(threads) + 1)],
    )
    parts = [launching(calls, tid) for tid, (_, calls) in enumerate(threads, 1)]
    calls = parts[0]
    for name in ("pid", "tid", "start", "end", "gpu_start", "gpu_end", "gpu_time", "time"):
        setattr(calls, name, np.concatenate([getattr(part, name) for part in parts]))
    columns = Projection(calls, ranges, Columns()).columns(slice(0, len(rows)))
    names = ("calls", "gpu_start_ns", "gpu_end_ns", "gpu_time_ns")
    found = zip(*(columns[name].to_pylist() for name in names), strict=True)
    for (start, end, tid), row in zip(rows, found, strict=True):
        held = [call for call in threads[tid - 1][1] if _within(call, (start, -end))]
        expected = (
            len(held),
            min((call[2] for call in held), default=None),
            max((call[3] for call in held), default=None),
            sum(call[3] - call[2] for call in held) if held else None,
        )
        assert row == expected


@st.composite
def _overlapping(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Start/end ranges: any borders, a few never end."""
    lengths = st.one_of(st.integers(0, 12), st.just(STILL_OPEN))
    spans = draw(st.lists(st.tuples(st.integers(0, 20), lengths), max_size=20))
    ends = [(start, min(start + length, STILL_OPEN)) for start, length in spans]
    return sorted(ends, key=lambda span: (span[0], -span[1]))


@settings(max_examples=EXAMPLES)
@given(_overlapping(), calls_in_order())
def test_overlapping_ranges_hold_what_lies_within(
    spans: list[tuple[int, int]], calls: list[Call]
) -> None:
    """The innermost of overlapping ranges is the latest that holds all."""
    ranges = _ranges(spans, style=START_END)
    for index, (start, end) in enumerate(spans):
        holding = [i for i in range(index) if spans[i][1] > start and spans[i][1] >= end]
        around = max(holding, default=NONE)
        assert ranges.enclosing[index] == around
        assert ranges.level[index] == (0 if around == NONE else ranges.level[around] + 1)
    for call, index in zip(
        calls, attribute(launching(calls), ranges, Columns()).innermost.tolist(), strict=True
    ):
        holding = [i for i, span in enumerate(spans) if _within(call, span)]
        assert index == max(holding, default=NONE)


def test_autograd_launches_in_the_range_that_the_main_thread_is_in() -> None:
    ranges = _ranges([(0, 100), (10, 50)])
    found = attribute(
        launching([(5, 6, 0, 1), (20, 60, 0, 1), (200, 201, 0, 1)], tid=7), ranges, Columns()
    )
    # It need not end within: the main thread only waits for it.
    assert found.innermost.tolist() == [0, 1, NONE]
    assert found.source.tolist() == [WAITING, WAITING, NONE]
    assert found.reason.tolist() == [NONE, NONE, NO_RANGE]


def test_start_end_ranges_hold_what_no_push_pop_range_does() -> None:
    ranges = _ranges([(0, 100), (10, 50), (20, 30)], style=START_END)
    found = attribute(launching([(5, 6, 0, 1), (22, 23, 0, 1), (40, 60, 0, 1)]), ranges, Columns())
    assert found.innermost.tolist() == [0, 2, 0]


def test_a_kernel_counts_in_every_range_around_its_call() -> None:
    db = Tiny()
    launch = {"kind": "kernel", "pid": 1, "tid": 1, "demangled": "k(int)"}
    db.add(
        "launches",
        {**launch, "start_ns": 50, "end_ns": 60, "call_id": 0, "range_id": 1},
        {**launch, "start_ns": 60, "end_ns": 90, "call_id": 1, "range_id": 0},
        {**launch, "start_ns": 90, "end_ns": 95, "call_id": 2},
        {
            **launch,
            "start_ns": 95,
            "end_ns": 99,
            "call_id": 3,
            "range_id": 0,
            "range_source": "waiting thread",
        },
    )
    db.add(
        "nsys_nvtx_ranges",
        {"style": "PushPop", "range_id": 0, "name": "step", "first_call": 0, "calls": 2},
        {
            "style": "PushPop",
            "range_id": 1,
            "name": "mm",
            "domain": "D",
            "first_call": 0,
            "calls": 1,
        },
        {"style": "PushPop", "range_id": 2, "name": "idle", "calls": 0},
    )
    assert db.rows(
        "SELECT nvtx_range, style, nvtx_inst, kern_inst, total_time_ns FROM nvtx_kern_sum"
    ) == [
        # What the waiting thread's range holds is in no range of its own thread: so counts nsys.
        (None, None, 0, 2, 9),
        (":step", "PushPop", 1, 2, 40),
        ("D:mm", "PushPop", 1, 1, 10),
    ]


def test_a_range_counts_once_for_a_kernel_that_it_launches_often() -> None:
    db = Tiny()
    for call, name in enumerate("aabab"):
        db.add(
            "launches",
            {"kind": "kernel", "pid": 1, "tid": 1, "demangled": name, "start_ns": call,
             "end_ns": call + 1, "call_id": call, "range_id": 0},
        )  # fmt: skip
    outer = {"style": "PushPop", "name": "outer", "first_call": 0, "calls": 5}
    inner = {"style": "PushPop", "name": "inner", "calls": 2}
    db.add("nsys_nvtx_ranges", outer, {**inner, "first_call": 0}, {**inner, "first_call": 2})
    assert db.rows("SELECT nvtx_range, kernel_name, nvtx_inst, kern_inst FROM nvtx_kern_sum") == [
        (":inner", "a", 2, 3),
        (":inner", "b", 1, 1),
        (":outer", "a", 1, 3),
        (":outer", "b", 1, 2),
    ]


def test_ranges_projected_onto_the_gpu() -> None:
    db = Tiny()
    push = {"style": "PushPop", "children": 0}
    db.add(
        "nsys_nvtx_ranges",
        {**push, "name": "a", "dur_ns": 25, "level": 0, "children": 1, "gpu_calls": 2,
         "gpu_start_ns": 50, "gpu_end_ns": 95},
        {**push, "name": "b", "dur_ns": 7, "level": 1, "gpu_calls": 1, "gpu_start_ns": 50, "gpu_end_ns": 80},
        {**push, "name": "c", "dur_ns": 7, "level": 1, "gpu_calls": 0},
    )  # fmt: skip
    assert db.rows(
        "SELECT range, total_proj_time_ns, total_range_time_ns, total_gpu_ops, avg_range_lvl, "
        "avg_num_child FROM nvtx_gpu_proj_sum"
    ) == [(":a", 45, 25, 2, 0.0, 1.0), (":b", 30, 7, 1, 1.0, 0.0)]


def test_a_tree_of_ranges() -> None:
    db = Tiny()
    rows = [
        ("step 0", 0, None, 100, 10), ("forward", 1, 0, 60, 6), ("op 1", 2, 1, 25, 2), ("op 2", 2, 1, 30, 2),
        ("step 1", 0, None, 90, 9), ("backward", 1, 4, 80, 8), ("deeper", 3, 2, 25, 2),
    ]  # fmt: skip
    for number, (name, level, enclosing, gpu, host) in enumerate(rows):
        db.add(
            "nsys_nvtx_ranges",
            {"range_id": number, "name": name, "level": level, "enclosing": enclosing, "gpu_calls": 1,
             "gpu_time_ns": gpu, "dur_ns": host},
        )  # fmt: skip
    db.add("launches", {"op_id": 0, "start_ns": 0, "end_ns": 200, "range_id": 0})
    assert db.rows(
        "SELECT path, instances, gpu_time_ns, own_gpu_time_ns, share_pct, host_time_ns "
        "FROM nvtx_tree ORDER BY tree_order"
    ) == [
        (":step *", 2, 190, 50, 95.0, 19),
        (":step * > :backward", 1, 80, 80, 40.0, 8),
        (":step * > :forward", 1, 60, 5, 30.0, 6),
        (":step * > :forward > :op *", 2, 55, 30, 27.5, 4),
        (":step * > :forward > :op * > :deeper", 1, 25, 25, 12.5, 2),
    ]


def test_the_tree_says_why_work_is_outside_of_ranges() -> None:
    db = Tiny()
    db.add("nsys_nvtx_ranges", {"range_id": 0, "name": "h2d", "level": 0, "tree_time_ns": 5})
    known = {"start_ns": 0, "call_id": 1}
    db.add("launches", {**known, "end_ns": 5, "range_id": 0})
    db.add("launches", {**known, "end_ns": 7, "no_range_reason": "several threads"})
    db.add("launches", {**known, "end_ns": 8, "no_range_reason": "no open range"})
    db.add("launches", {"start_ns": 0, "end_ns": 30})
    assert db.rows(
        "SELECT range, instances, gpu_time_ns, share_pct FROM nvtx_tree ORDER BY tree_order"
    ) == [
        (":h2d", 1, 5, 10),
        ("(several threads have open ranges)", None, 7, 14),
        ("(no launching call recorded)", None, 30, 60),
        ("(no open range)", None, 8, 16),
    ]


def test_the_tree_of_a_capture_adds_up(opened: Opened) -> None:
    """Inclusive time against a plain sum over the operations launched while each range was open."""
    with opened("nsys/eager_small.sqlite") as con:
        tree = dict(con.execute("SELECT path, gpu_time_ns FROM nvtx_tree").fetchall())
        plain = con.execute(
            """
            SELECT r.name, sum(l.end_ns - l.start_ns)
            FROM nsys_nvtx_ranges AS r
            JOIN launches AS l ON l.pid = r.pid AND l.api_start_ns BETWEEN r.start_ns AND r.end_ns
            GROUP BY r.name
            """
        ).fetchall()
    sums = dict(plain)
    assert tree[":step * > :forward"] == sums["forward"]
    # Autograd's thread launches it.
    assert tree[":step * > :backward"] == sums["backward"]
    assert tree[":step * > :optimizer"] == sums["optimizer"]
    assert tree[":step *"] == sum(time for name, time in plain if name.startswith("step "))


def test_the_share_that_is_attributed_is_stated(opened: Opened) -> None:
    """Autograd launches the backward pass of eager PyTorch, which is about two thirds of it."""
    with opened("nsys/eager_small.sqlite") as con:
        ((total, own, main, without, *shares),) = con.execute(
            "SELECT * EXCLUDE (report_id, pid) FROM nvtx_attribution"
        ).fetchall()
    assert (total, without) == (own + main, 0)
    assert 0.4 < main / total < 0.8
    assert sum(shares) == pytest.approx(100)
