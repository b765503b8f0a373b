"""The time budget against counting each nanosecond."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from typing import Any

import pytest
from conftest import Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.thresholds import thresholds as _defaults

NAMES = {
    1: "gemm",
    2: "ncclDevKernel_AllReduce",
    3: "[CUDA memcpy Host-to-Device]",
    4: "[CUDA memcpy Unified Host-to-Device]",
    5: "[CUDA memcpy Unified Device-to-Host]",
}
_MIGRATIONS = (NAMES[4], NAMES[5])
CLASSES = dict(zip(NAMES.values(), ("compute", "communication", "transfer"), strict=False))
CLASSES |= dict.fromkeys(_MIGRATIONS, "migration")
CLASSES["softmax"] = "compute"

#: What precedes what, if several run at the same time.
ORDER = ("compute", "communication", "migration", "transfer")

#: Causes of migrations, with whether kernels may wait for such a migration to the GPU, and to the host.
CAUSES = {
    "Page fault": (True, False),
    "Speculative prefetch": (True, False),
    "User prefetch": (False, False),
    "Access counters": (False, False),
    "Eviction": (True, True),
    None: (True, False),
}

#: Short, so that all kinds of host time come up.
LIMITS = {
    "timeline.launch_gap_ns": 4,
    "timeline.launch_gap_many": 2,
    "timeline.launch_gap_medians": 2,
    "timeline.launch_gap_most_ns": 10,
    "timeline.loading_ns": 8,
    "timeline.device_wait_ns": 5,
}


@st.composite
def timelines(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Operations of one GPU with their calls, calls that block, and profiler overhead.

    Some operations migrate pages of unified memory.
    """
    times = st.integers(0, 60)
    launches: list[dict[str, Any]] = []
    copies: list[dict[str, Any]] = []
    starts = draw(st.lists(times, min_size=1, max_size=8, unique=True))
    for number, start in enumerate(sorted(starts)):
        kind = draw(st.sampled_from([1, 1, 2, 3, 4, 5]))
        name = draw(st.sampled_from(["gemm", "softmax"])) if kind == 1 else NAMES[kind]
        row: dict[str, Any] = {
            "kind": "kernel" if kind < 3 else "memcpy", "name": name, "device": 0,
            "stream": draw(st.sampled_from([7, 7, 8])), "pid": 1, "correlation_id": number,
            "start_ns": start, "end_ns": start + draw(st.integers(0, 12)),
        }  # fmt: skip
        if name in _MIGRATIONS:
            cause = draw(st.sampled_from([*CAUSES]))
            where = {key: row[key] for key in ("pid", "device", "start_ns", "end_ns")}
            copies.append(where | {"operation": name, "migration_cause": cause, "bytes": 4096})
            launches.append(row)
            continue
        called = [op for op in launches if "call_id" in op]
        if draw(st.integers(0, 4)):
            call = draw(st.integers(-20, start))
            row |= {"tid": draw(st.sampled_from([1, 2])), "api_name": "cudaLaunchKernel"}
            row |= {"api_start_ns": call, "api_end_ns": call + draw(st.integers(0, 15))}
            row |= {"call_id": number}
            if called and not draw(st.integers(0, 4)):
                of = draw(st.sampled_from(called))
                same = ("tid", "api_name", "api_start_ns", "api_end_ns", "call_id")
                row |= {key: of[key] for key in same}
        launches.append(row)
    blocking = []
    for tid in (1, 2):
        clock = -20
        for _ in range(draw(st.integers(0, 4))):
            clock += draw(st.integers(0, 20))
            end = clock + draw(st.integers(0, 10))
            name = draw(st.sampled_from([SYNC, SYNC, LOAD]))
            row = {"pid": 1, "tid": tid, "name": name, "api": "runtime"}
            blocking.append(row | {"start_ns": clock, "end_ns": end})
            clock = end
    overhead = [
        {"pid": 1, "tid": 9, "start_ns": start, "end_ns": start + draw(st.integers(0, 10))}
        for start in draw(st.lists(times, max_size=3))
    ]
    faults = [
        {"pid": 1, "device": 0, "start_ns": start, "end_ns": start + draw(st.integers(0, 10))}
        for start in draw(st.lists(times, max_size=3))
    ]
    return {
        "launches": launches, "nsys_api_calls": blocking, "nsys_overhead": overhead,
        "nsys_memory_ops": copies, "nsys_gpu_page_faults": faults,
    }  # fmt: skip


SYNC, LOAD = "cudaDeviceSynchronize", "cuLibraryLoadData"
Timeline = dict[str, list[dict[str, Any]]]


def _by_the_nanosecond(timeline: Timeline) -> Counter[str]:
    """Look at each nanosecond by itself."""
    ops = timeline["launches"]
    begin, end = min(op["start_ns"] for op in ops), max(op["end_ns"] for op in ops)
    limit = launch_gap_limit(timeline)
    return Counter(category_at(timeline, now, limit) for now in range(begin, end))


def category_at(timeline: Timeline, now: int, limit: float) -> str:
    """Return the category of one nanosecond between the first and the last operation."""
    running = {CLASSES[op["name"]] for op in timeline["launches"] if _in(op, now)}
    if running & {"compute", "communication"} and _pages_wait(timeline, now):
        return "migration"
    if running:
        return next(kind for kind in ORDER if kind in running)
    if any(_in(overhead, now) for overhead in timeline["nsys_overhead"]):
        return "profiler_overhead"
    start, following = _gap(timeline, now)
    call, returned = following.get("api_start_ns"), following.get("api_end_ns")
    waiting = "unattributed" if _is_first(timeline, following) else "device_wait"
    if _launched(timeline, following, start):
        return waiting if _late(timeline, start, following) else "kernel_gap"
    if call is None or returned is None:
        return "host" if following["name"] in _MIGRATIONS else "unattributed"
    if now >= returned and _late(timeline, max(start, returned), following):
        return waiting
    drained = _drained(timeline, following, start)
    if call <= now < returned:
        return "loading" if _first_use(timeline, following) else "sync" if drained else "launch_api"
    if now >= returned:
        return "sync" if drained else "queued"
    blocking = [b["name"] for b in _blocking(timeline, following) if _in(b, now)]
    if blocking:
        return "loading" if LOAD in blocking else "sync"
    if _own(timeline, following, start) > limit:
        return "host"
    return "sync" if drained else "launch_gap"


def _pages_wait(timeline: Timeline, now: int) -> bool:
    """Whether a kernel may wait for pages: on their way on demand, or faulted."""
    delays = (
        CAUSES[copy["migration_cause"]][_MIGRATIONS.index(copy["operation"])]
        for copy in timeline["nsys_memory_ops"]
        if _in(copy, now)
    )
    return any(delays) or any(_in(fault, now) for fault in timeline["nsys_gpu_page_faults"])


def _in(interval: dict[str, Any], now: int) -> bool:
    return bool(interval["start_ns"] <= now < interval["end_ns"])


def _gap(timeline: Timeline, now: int) -> tuple[int, dict[str, Any]]:
    """Return when the GPU fell idle, and the operation that ended it."""
    ops = timeline["launches"]
    following = min((op for op in ops if op["start_ns"] > now), key=lambda op: op["start_ns"])
    return max(op["end_ns"] for op in ops if op["start_ns"] <= now), following


def _launched(timeline: Timeline, op: dict[str, Any], idle_since: int) -> bool:
    """Whether an operation, or another one of its call, was on the way before the GPU fell idle."""
    if "api_end_ns" not in op:
        return False
    same = [o for o in timeline["launches"] if o.get("call_id") == op["call_id"]]
    began = min(int(o["start_ns"]) for o in same)
    return bool(op["api_end_ns"] <= idle_since or op["start_ns"] > began)


def _blocking(timeline: Timeline, op: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for b in timeline["nsys_api_calls"] if b["tid"] == op["tid"]]


def _drained(timeline: Timeline, op: dict[str, Any], idle_since: int) -> bool:
    """Whether the host let the GPU run dry by waiting for it."""
    waits = (b for b in _blocking(timeline, op) if b["name"] == SYNC)
    dry = any(b["start_ns"] < idle_since <= b["end_ns"] for b in waits)
    return dry and bool(op["api_start_ns"] > idle_since)


def _is_first(timeline: Timeline, op: dict[str, Any]) -> bool:
    """Whether nothing was recorded on the stream before, which may have run other work."""
    same = [o["start_ns"] for o in timeline["launches"] if o["stream"] == op["stream"]]
    return bool(op["start_ns"] == min(same))


def _late(timeline: Timeline, since: int, op: dict[str, Any]) -> bool:
    """Whether an operation that was issued starts much later."""
    waits = range(since, op["start_ns"])
    late = sum(
        not any(_in(overhead, now) for overhead in timeline["nsys_overhead"]) for now in waits
    )
    return late > LIMITS["timeline.device_wait_ns"]


def _first_use(timeline: Timeline, op: dict[str, Any]) -> bool:
    """Whether the call took long since the kernel was new."""
    same = [o for o in timeline["launches"] if o["name"] == op["name"]]
    first: int = min(o["api_start_ns"] if "api_start_ns" in o else o["start_ns"] for o in same)
    long = op["api_end_ns"] - op["api_start_ns"] >= LIMITS["timeline.loading_ns"]
    return bool(op["kind"] == "kernel" and long and op["api_start_ns"] == first)


def _own(timeline: Timeline, op: dict[str, Any], idle_since: int) -> int:
    """Return how long the host neither launched, waited nor loaded, and was not delayed."""
    others = [*_blocking(timeline, op), *timeline["nsys_overhead"]]
    before = range(idle_since, op["api_start_ns"])
    return sum(not any(_in(other, now) for other in others) for now in before)


def launch_gap_limit(timeline: Timeline) -> float:
    """Return how long the host may take between launches until it does something else."""
    ops = sorted(timeline["launches"], key=lambda op: op["start_ns"])
    took = []
    for number, op in enumerate(ops[1:], 1):
        idle_since = max(o["end_ns"] for o in ops[:number])
        known = "api_start_ns" in op and not _launched(timeline, op, idle_since)
        if idle_since < op["start_ns"] and known and not _drained(timeline, op, idle_since):
            took.append(_own(timeline, op, idle_since))
    took = [ns for ns in took if ns > 0]
    usual = statistics.median(took) if len(took) >= LIMITS["timeline.launch_gap_many"] else 0
    least, most = LIMITS["timeline.launch_gap_ns"], LIMITS["timeline.launch_gap_most_ns"]
    return min(most, max(least, LIMITS["timeline.launch_gap_medians"] * usual))


@settings(max_examples=10, deadline=None)
@given(st.lists(timelines(), min_size=4, max_size=4), st.randoms(use_true_random=False))
def test_budget_against_counting_each_nanosecond(
    together: list[Timeline], shuffle: random.Random
) -> None:
    """Several timelines at a time, each a report of its own, and once more in another order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfpipe.analysis.session.thresholds", short_gaps)
        db = Tiny()
        for copy in ("a", "b"):
            for number, timeline in enumerate(together):
                rows = {name: shuffle.sample(rows, len(rows)) for name, rows in timeline.items()}
                db.add_report(f"{copy}{number}", rows)
        found = db.rows("SELECT report_id, category, time_ns FROM gpu_time_budget")
    expected = {
        (f"{copy}{number}", category): time_ns
        for number, timeline in enumerate(together)
        for category, time_ns in _by_the_nanosecond(timeline).items()
        for copy in ("a", "b")
    }
    assert {(report, category): ns for report, category, ns in found if ns} == expected


@settings(max_examples=5)
@given(st.lists(st.tuples(timelines(), timelines()), min_size=3, max_size=3))
def test_two_reports_of_two_ranks_and_one_report_of_both_agree(
    pairs: list[tuple[Timeline, Timeline]],
) -> None:
    db = Tiny()
    for number, pair in enumerate(pairs):
        for rank, timeline in enumerate(pair):
            for table, rows in timeline.items():
                placed = [row | {"pid": rank + 1} for row in rows]
                if table in ("launches", "nsys_memory_ops", "nsys_gpu_page_faults"):
                    placed = [row | {"device": rank} for row in placed]
                if table == "launches":
                    for row in placed:
                        row["call_id"] = row["call_id"] + 100 * rank if "call_id" in row else None
                for report in (f"both {number}", f"rank{rank} {number}"):
                    db.add(table, *(row | {"report_id": report} for row in placed))
    columns = (
        "split_part(report_id, ' ', 2), device, category, time_ns, window_start_ns, window_end_ns"
    )
    sql = f"SELECT {columns} FROM gpu_time_budget"
    combined = db.rows(f"{sql} WHERE report_id LIKE 'both%' ORDER BY ALL")
    assert len(combined) > len(pairs)
    assert combined == db.rows(f"{sql} WHERE report_id NOT LIKE 'both%' ORDER BY ALL")


def short_gaps() -> dict[str, float]:
    return _defaults() | LIMITS
