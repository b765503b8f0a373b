"""Finds the launching calls within each NVTX range, and the innermost range around each call.

Calls of one thread, ordered by start, also end in that order, so a range contains consecutive
calls.  Two binary searches find them, and their extremes give the projection of the range on the
GPU.  Ranges and calls are searched period by period; ranges that are still open stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups, nullable
from perfpipe.ingest.columns import Columns, slices
from perfpipe.ingest.nsys.launches import Calls
from perfpipe.ingest.nsys.ranges import Ranges
from perfpipe.ingest.sequences import latest_reaching, over_runs

_LIMITS = np.iinfo(np.int64)

#: Process and thread id.
_Thread = tuple[int, int]


@dataclass
class _Period:
    """Calls of a thread, first <= call_id < last, and ranges of the thread that may contain them.

    `main` has ranges of the main thread of the process, `until` is the end of earlier calls, ns.
    """

    first: int
    last: int
    own: Ints
    main: Ints
    until: int


@dataclass
class Attribution:
    """Innermost range (a range_id or NONE) of each call; `borrowed` from the main thread."""

    innermost: Codes
    borrowed: npt.NDArray[np.bool_]


def attribute(calls: Calls, ranges: Ranges, columns: Columns) -> Attribution:
    """Find the innermost range of each call.

    A range contains a call of its own thread that begins and ends within it.  A call outside of any
    range on a thread other than the main thread (as autograd launches the backward pass) gets the
    range that the main thread was in when the call began.
    """
    innermost = columns.new(len(calls), np.int32, NONE)
    borrowed = columns.new(len(calls), bool)
    for period in _periods(calls, ranges):
        some = slice(period.first, period.last)
        start = calls.start[some]
        found = _around(ranges, period.own, start, calls.end[some])
        if period.main is not period.own:
            left = np.flatnonzero(found == NONE)
            begun = start[left]
            found[left] = _around(ranges, period.main, begun, begun)
            borrowed[some.start + left] = found[left] != NONE
        innermost[some] = found
    return Attribution(innermost, borrowed)


def launch_columns(
    found: Attribution | None, ranges: Ranges | None, call: Codes
) -> dict[str, pa.Array]:
    """Return the range columns of `launches`, for operations of those calls."""
    if found is None or ranges is None or not len(found.innermost):
        return {}
    index = np.where(call == NONE, NONE, found.innermost[call])
    sources = np.where(index == NONE, NONE, found.borrowed[call].astype(np.int8))
    return {
        "range_id": nullable(index),
        "nvtx_range": ranges.titles(index),
        "range_source": pa.DictionaryArray.from_arrays(
            nullable(sources), pa.array(["own thread", "main thread"])
        ),
    }


class Projection:
    """The launches of ranges: consecutive calls, and their span on the GPU."""

    def __init__(self, calls: Calls, ranges: Ranges, columns: Columns) -> None:
        self._on_one_thread = ranges.on_one_thread
        count = len(ranges)
        codes = (columns.new(count, np.int32) for _ in range(4))
        self._first, self._calls, self._gpu_calls, self._children = codes
        self._start = columns.new(count, np.int64, _LIMITS.max)
        self._end = columns.new(count, np.int64, _LIMITS.min)
        self._time = columns.new(count, np.int64)
        for period in _periods(calls, ranges):
            self._add(calls, ranges, period)
        for rows in slices(count):
            around = ranges.enclosing[rows]
            inside = around[(around != NONE) & (self._gpu_calls[rows] > 0)]
            np.add.at(self._children, inside, np.int32(1))

    def _add(self, calls: Calls, ranges: Ranges, period: _Period) -> None:
        """Add the calls of a period to the ranges that contain them."""
        some = slice(period.first, period.last)
        reach = np.maximum.accumulate(np.maximum(calls.end[some], period.until))
        begins = np.searchsorted(calls.start[some], ranges.start[period.own], side="left")
        ends = np.searchsorted(reach, ranges.end[period.own], side="right")
        holding = begins < ends
        own = period.own[holding]
        first, last = (place[holding].astype(np.int32) for place in (begins, ends))
        empty = self._calls[own] == 0
        self._first[own[empty]] = period.first + first[empty]
        self._calls[own] += last - first
        # One more element than calls: a run may end after the last call.
        launching = calls.gpu_start[some] != _LIMITS.max
        before = np.append(np.int32(0), np.cumsum(launching, dtype=np.int32))
        self._gpu_calls[own] += before[last] - before[first]
        time = np.append(0, np.cumsum(calls.gpu_time[some]))
        self._time[own] += time[last] - time[first]
        earliest = over_runs(np.minimum, calls.gpu_start[some], first, last)
        self._start[own] = np.minimum(self._start[own], earliest)
        latest = over_runs(np.maximum, calls.gpu_end[some], first, last)
        self._end[own] = np.maximum(self._end[own], latest)

    def columns(self, rows: slice) -> dict[str, pa.Array]:
        """Return the columns of nsys_nvtx_ranges about launched work, for some rows."""
        calls, gpu_calls = self._calls[rows], self._gpu_calls[rows]
        unknown, idle = ~self._on_one_thread[rows], gpu_calls == 0
        return {
            "children": pa.array(self._children[rows]),
            "first_call": pa.array(self._first[rows], mask=calls == 0),
            "calls": pa.array(calls, mask=unknown),
            "gpu_calls": pa.array(gpu_calls, mask=unknown),
            "gpu_start_ns": pa.array(self._start[rows], mask=idle),
            "gpu_end_ns": pa.array(self._end[rows], mask=idle),
            "gpu_time_ns": pa.array(self._time[rows], mask=idle),
        }


def _periods(calls: Calls, ranges: Ranges) -> Iterator[_Period]:
    """Yield all calls, those of a thread in order."""
    left = {thread: (first, last, _LIMITS.min) for thread, first, last in _threads(calls)}
    codes = {thread: code for code, thread in enumerate(ranges.threads)}
    nothing = np.zeros(0, np.int64)
    opened = nothing
    for some in slices(len(ranges)):
        begun = some.start + np.flatnonzero(ranges.on_one_thread[some])
        rows = np.concatenate([opened, begun])
        until = ranges.start[some.stop] if some.stop < len(ranges) else _LIMITS.max
        of = {code: rows[own] for code, own in groups(ranges.thread[rows])}
        for (pid, tid), (first, last, reach) in left.items():
            own = of.get(codes.get((pid, tid), NONE), nothing)
            main = own if pid == tid else of.get(codes.get((pid, pid), NONE), nothing)
            later = first + int(np.searchsorted(calls.start[first:last], until))
            for part in slices(later - first):
                begin, end = first + part.start, first + part.stop
                yield _Period(begin, end, own, main, reach)
                reach = max(reach, int(calls.end[begin:end].max()))
            left[pid, tid] = (later, last, reach)
        opened = rows[ranges.end[rows] >= until]


def _threads(calls: Calls) -> Iterator[tuple[_Thread, int, int]]:
    """Yield each thread with its calls, first <= call_id < last."""
    borders = [0]
    for some in slices(len(calls)):
        begin = max(some.start - 1, 0)
        pid, tid = calls.pid[begin : some.stop], calls.tid[begin : some.stop]
        changes = np.flatnonzero((np.diff(pid) != 0) | (np.diff(tid) != 0))
        borders += (begin + 1 + changes).tolist()
    for first, last in pairwise([*borders, len(calls)]):
        if last > first:
            yield (int(calls.pid[first]), int(calls.tid[first])), first, last


def _around(ranges: Ranges, own: Ints, start: Ints, end: Ints) -> Codes:
    """Return the innermost of some ranges around each interval, or NONE.

    It is the last started range that does not end before the interval ends.
    """
    at = np.searchsorted(ranges.start[own], start, side="right") - 1
    found = latest_reaching(ranges.end[own], at, end)
    return np.where(found == NONE, NONE, own[found]) if len(own) else found
