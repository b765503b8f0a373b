"""NVTX attribution: the sweep against looking at every range."""

from __future__ import annotations

import numpy as np
from conftest import Tiny
from hypothesis import given
from hypothesis import strategies as st

from ingest.nsys.attribution import innermost
from ingest.nsys.nvtx import nesting


@st.composite
def _nested(draw: st.DrawFn) -> list[tuple[int, int]]:
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


@given(_nested(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=20))
def test_the_innermost_range_holds_the_call(
    ranges: list[tuple[int, int]], calls: list[tuple[int, int]]
) -> None:
    start = np.array([r[0] for r in ranges], np.int64)
    end = np.array([r[1] for r in ranges], np.int64)
    group = np.zeros(len(ranges), np.int64)
    depth, _ = nesting(start, end, group, np.ones(len(ranges), bool))
    call_start = np.array([c[0] for c in calls], np.int64)
    call_end = np.array([c[0] + c[1] for c in calls], np.int64)
    levels = np.asarray(depth, np.int64) if len(ranges) else np.empty(0, np.int64)
    found = innermost(call_start, call_end, start, end, levels)
    for at, ended, index in zip(call_start, call_end, found, strict=True):
        holding = [i for i in range(len(ranges)) if start[i] <= at and ended <= end[i]]
        if not holding:
            assert index == -1
        else:
            # Of ranges with the same borders any will do: they are told apart by order alone.
            best = min(end[i] - start[i] for i in holding)
            assert index in holding
            assert end[index] - start[index] == best


def test_a_kernel_counts_in_every_range_around_its_call() -> None:
    db = Tiny()
    kernel = {"pid": 1, "device": 0, "stream": 7, "demangled": "k(int)"}
    db.add(
        "nsys_kernels",
        {**kernel, "correlation_id": 1, "start_ns": 50, "end_ns": 60, "dur_ns": 10},
        {**kernel, "correlation_id": 2, "start_ns": 60, "end_ns": 90, "dur_ns": 30},
        {**kernel, "correlation_id": 3, "start_ns": 90, "end_ns": 95, "dur_ns": 5},
    )
    launch = {"kind": "kernel", "device": 0, "stream": 7, "pid": 1, "tid": 1}
    db.add(
        "launches",
        {
            **launch,
            "correlation_id": 1,
            "start_ns": 50,
            "end_ns": 60,
            "api_start_ns": 10,
            "api_end_ns": 12,
        },
        {
            **launch,
            "correlation_id": 2,
            "start_ns": 60,
            "end_ns": 90,
            "api_start_ns": 20,
            "api_end_ns": 22,
        },
        {
            **launch,
            "correlation_id": 3,
            "start_ns": 90,
            "end_ns": 95,
            "api_start_ns": 40,
            "api_end_ns": 41,
        },
    )
    push = {"pid": 1, "tid": 1, "style": "PushPop"}
    db.add(
        "nsys_nvtx_ranges",
        {**push, "range_id": 0, "name": "step", "start_ns": 5, "end_ns": 30, "dur_ns": 25, "depth": 0, "level": 0},
        {**push, "range_id": 1, "name": "mm", "domain": "D", "start_ns": 8, "end_ns": 15, "dur_ns": 7,
         "depth": 1, "parent": 0, "level": 1, "enclosing": 0},
    )  # fmt: skip
    db.add(
        "nsys_call_ranges",
        {"pid": 1, "tid": 1, "correlation_id": 1, "domain": "D", "range_id": 1},
        {"pid": 1, "tid": 1, "correlation_id": 2, "range_id": 0},
    )
    assert db.rows(
        "SELECT nvtx_range, style, nvtx_inst, kern_inst, total_time_ns FROM nvtx_kern_sum"
    ) == [
        (None, None, 0, 1, 5),
        (":step", "PushPop", 1, 2, 40),
        ("D:mm", "PushPop", 1, 1, 10),
    ]


def test_ranges_projected_onto_the_gpu() -> None:
    db = Tiny()
    launch = {"kind": "kernel", "pid": 1, "tid": 1}
    db.add(
        "launches",
        {**launch, "correlation_id": 1, "start_ns": 50, "end_ns": 60},
        {**launch, "correlation_id": 1, "start_ns": 70, "end_ns": 80},
        {**launch, "correlation_id": 2, "start_ns": 75, "end_ns": 95},
        {**launch, "kind": "graph", "correlation_id": 3, "start_ns": 0, "end_ns": 500},
    )
    push = {"pid": 1, "tid": 1, "style": "PushPop"}
    db.add(
        "nsys_nvtx_ranges",
        {**push, "range_id": 0, "name": "a", "dur_ns": 25, "depth": 0, "level": 0},
        {
            **push,
            "range_id": 1,
            "name": "b",
            "dur_ns": 7,
            "depth": 1,
            "parent": 0,
            "level": 1,
            "enclosing": 0,
        },
    )
    db.add(
        "nsys_call_ranges",
        *(
            {"pid": 1, "tid": 1, "correlation_id": n, "range_id": r}
            for n, r in ((1, 1), (2, 0), (3, 0))
        ),
    )
    assert db.rows(
        "SELECT range, total_proj_time_ns, total_range_time_ns, total_gpu_ops, avg_range_lvl, "
        "avg_num_child FROM nvtx_gpu_proj_sum"
    ) == [(":a", 45, 25, 2, 0.0, 1.0), (":b", 30, 7, 1, 1.0, 0.0)]
