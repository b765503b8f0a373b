"""Says which launching calls each NVTX range holds, and which range is innermost around a call.

Calls of one thread, ordered by start, end in that order as well, so that a range holds a run of
them: two binary searches find it, and a reduction over the run gives its projection on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.arrays import NONE, Codes, Ints, nullable
from ingest.nsys.launches import Calls
from ingest.nsys.ranges import MARK, PUSH_POP, START_END, Ranges

_NO_START = np.iinfo(np.int64).max


@dataclass
class _Thread:
    """The calls of one thread: `first` is the call_id of the earliest."""

    first: int
    start: Ints
    end: Ints
    reach: Ints  # latest end so far


@dataclass
class Attribution:
    """Innermost range (a range_id or NONE) of each call; `borrowed` from the main thread."""

    innermost: Codes
    borrowed: npt.NDArray[np.bool_]


def attribute(calls: Calls, ranges: Ranges) -> Attribution:
    """Find the innermost range of each call.

    A range holds a call of its own thread that begins and ends within it.  A call of another
    thread than the process's main one that nothing holds (autograd launches the backward pass so)
    takes the range that the main thread was in when the call began.
    """
    innermost = np.full(len(calls.pid), NONE, np.int32)
    borrowed = np.zeros(len(calls.pid), bool)
    number = {thread: code for code, thread in enumerate(ranges.threads)}
    for (pid, tid), thread in _threads(calls).items():
        rows = slice(thread.first, thread.first + len(thread.start))
        code = number.get((pid, tid))
        if code is not None:
            innermost[rows] = _push_pop_around(ranges, code, thread.start, thread.end)
            _start_end_around(ranges, code, thread, innermost)
        main = number.get((pid, pid))
        if main is not None and tid != pid:
            alone = rows.start + np.flatnonzero(innermost[rows] == NONE)
            begun = calls.start[alone]
            innermost[alone] = _push_pop_around(ranges, main, begun, begun)
            borrowed[alone] = innermost[alone] != NONE
    return Attribution(innermost, borrowed)


def launch_columns(
    found: Attribution | None, ranges: Ranges | None, call: Codes
) -> dict[str, pa.Array]:
    """Return the columns of `launches` on ranges, for operations of those calls."""
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
    """What ranges launched: runs of calls, and their span on the GPU."""

    def __init__(self, calls: Calls, ranges: Ranges) -> None:
        self._ranges = ranges
        self._threads = _threads(calls)
        # One more than there are calls: a run may end behind the last.
        self._start = np.append(calls.gpu_start, _NO_START)
        self._end = np.append(calls.gpu_end, 0)
        self._before = np.append(0, np.cumsum(calls.gpu_start != _NO_START))
        inside = ranges.enclosing[ranges.enclosing != NONE]
        self._children = np.bincount(inside, minlength=len(ranges)).astype(np.int32)

    def columns(self, rows: slice) -> dict[str, pa.Array]:
        """Return the columns of nsys_nvtx_ranges on launched work, of some rows."""
        ranges = self._ranges
        first = np.zeros(len(ranges.start[rows]), np.int64)
        count = np.full(len(first), NONE, np.int64)
        on_one = ranges.style[rows] != MARK
        other = ranges.end_thread[rows]
        on_one &= (other == NONE) | (other == ranges.thread[rows])
        count[on_one] = 0
        for code in np.unique(ranges.thread[rows][on_one]):
            thread = self._threads.get(ranges.threads[code])
            if thread is not None:
                own = np.flatnonzero(on_one & (ranges.thread[rows] == code))
                start, end = ranges.start[rows][own], ranges.end[rows][own]
                first[own], count[own] = _runs(thread, start, end)
        last = first + np.maximum(count, 0)
        span_start, span_end = self._spans(first, last)
        gpu_calls = np.where(count > 0, self._before[last] - self._before[first], 0)
        unknown, idle = count == NONE, gpu_calls == 0
        return {
            "children": pa.array(self._children[rows]),
            "first_call": pa.array(first, mask=count <= 0),
            "calls": pa.array(count, mask=unknown),
            "gpu_calls": pa.array(gpu_calls, mask=unknown),
            "gpu_start_ns": pa.array(span_start, mask=idle),
            "gpu_end_ns": pa.array(span_end, mask=idle),
        }

    def _spans(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Return the earliest start and the latest end of each run; anything for empty ones."""
        start, end = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
        some = np.flatnonzero(last > first)
        if len(some):
            borders = np.stack([first[some], last[some]], axis=1).ravel()
            start[some] = np.minimum.reduceat(self._start, borders)[::2]
            end[some] = np.maximum.reduceat(self._end, borders)[::2]
        return start, end


def _threads(calls: Calls) -> dict[tuple[int, int], _Thread]:
    changes = np.flatnonzero((np.diff(calls.pid) != 0) | (np.diff(calls.tid) != 0)) + 1
    borders = [0, *changes.tolist(), len(calls.pid)]
    found = {}
    for first, last in pairwise(borders):
        if last > first:
            start, end = calls.start[first:last], calls.end[first:last]
            key = (int(calls.pid[first]), int(calls.tid[first]))
            found[key] = _Thread(first, start, end, np.maximum.accumulate(end))
    return found


def _runs(thread: _Thread, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the first call_id and the number of calls that lie within each range."""
    first = np.searchsorted(thread.start, start, side="left")
    last = np.searchsorted(thread.reach, end, side="right")
    return first + thread.first, np.maximum(0, last - first)


def _push_pop_around(ranges: Ranges, code: int, start: Ints, end: Ints) -> Codes:
    """Return the innermost push/pop range of a thread around each interval, NONE without one.

    The range that started last before an interval holds it, or one that encloses that does.
    """
    own = np.flatnonzero((ranges.thread == code) & (ranges.style == PUSH_POP)).astype(np.int32)
    at = np.searchsorted(ranges.start[own], start, side="right") - 1
    found = np.where(at >= 0, own[at], NONE) if len(own) else np.full(len(start), NONE, np.int32)
    todo = np.flatnonzero(found != NONE)
    while len(todo):
        todo = todo[ranges.end[found[todo]] < end[todo]]
        found[todo] = ranges.enclosing[found[todo]]
        todo = todo[found[todo] != NONE]
    return found.astype(np.int32)


def _start_end_around(ranges: Ranges, code: int, thread: _Thread, innermost: Codes) -> None:
    """Give calls without a push/pop range the start/end range around them that began last."""
    same = (ranges.end_thread == NONE) | (ranges.end_thread == code)
    own = np.flatnonzero((ranges.thread == code) & (ranges.style == START_END) & same)
    free = innermost == NONE
    first, count = _runs(thread, ranges.start[own], ranges.end[own])
    for index, at, calls in zip(own.tolist(), first.tolist(), count.tolist(), strict=True):
        run = slice(at, at + calls)
        innermost[run][free[run]] = index
