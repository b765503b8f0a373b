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
from ingest.nsys.ranges import Ranges

#: Ranges looked at in one go, to bound memory.
_AT_A_TIME = 1_000_000

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
            innermost[rows] = _around(ranges, code, thread.start, thread.end)
        main = number.get((pid, pid))
        if main is not None and tid != pid:
            alone = rows.start + np.flatnonzero(innermost[rows] == NONE)
            begun = calls.start[alone]
            innermost[alone] = _around(ranges, main, begun, begun)
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
        # One more than there are calls: a run may end behind the last.
        self._start = np.append(calls.gpu_start, _NO_START)
        self._end = np.append(calls.gpu_end, 0)
        self._time = np.append(0, np.cumsum(calls.gpu_time))
        self._before = np.append(0, np.cumsum(calls.gpu_start != _NO_START)).astype(np.int32)
        self._first = np.zeros(len(ranges), np.int32)
        self._count = np.where(ranges.on_one_thread, np.int32(0), np.int32(NONE))
        number = {thread: code for code, thread in enumerate(ranges.threads)}
        for key, thread in _threads(calls).items():
            if (code := number.get(key)) is not None:
                own = np.flatnonzero((ranges.thread == code) & ranges.on_one_thread)
                for part in np.array_split(own, len(own) // _AT_A_TIME + 1):
                    runs = _runs(thread, ranges.start[part], ranges.end[part])
                    self._first[part], self._count[part] = runs
        launching = ranges.enclosing != NONE
        for first in range(0, len(ranges), _AT_A_TIME):
            rows = slice(first, first + _AT_A_TIME)
            launching[rows] &= self._gpu_calls(rows) > 0
        inside = ranges.enclosing[launching]
        self._children = np.bincount(inside, minlength=len(ranges)).astype(np.int32)

    def columns(self, rows: slice) -> dict[str, pa.Array]:
        """Return the columns of nsys_nvtx_ranges on launched work, of some rows."""
        first, count = self._first[rows], self._count[rows]
        last = first + np.maximum(count, 0)
        start, end = self._spans(first, last)
        gpu_calls = self._gpu_calls(rows)
        unknown, idle = count == NONE, gpu_calls == 0
        return {
            "children": pa.array(self._children[rows]),
            "first_call": pa.array(first, mask=count <= 0),
            "calls": pa.array(count, mask=unknown),
            "gpu_calls": pa.array(gpu_calls, mask=unknown),
            "gpu_start_ns": pa.array(start, mask=idle),
            "gpu_end_ns": pa.array(end, mask=idle),
            "gpu_time_ns": pa.array(self._time[last] - self._time[first], mask=idle),
        }

    def _gpu_calls(self, rows: slice) -> Codes:
        first = self._first[rows]
        last = first + np.maximum(self._count[rows], 0)
        return self._before[last] - self._before[first]

    def _spans(self, first: Codes, last: Codes) -> tuple[Ints, Ints]:
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


def _around(ranges: Ranges, code: int, start: Ints, end: Ints) -> Codes:
    """Return the innermost range of a thread around each interval, NONE without one.

    The range that started last before an interval holds it, or one that encloses that does.
    """
    own = np.flatnonzero((ranges.thread == code) & ranges.on_one_thread).astype(np.int32)
    if not len(own):
        return np.full(len(start), NONE, np.int32)
    at = np.searchsorted(ranges.start[own], start, side="right") - 1
    found = np.where(at >= 0, own[at], np.int32(NONE))
    todo = np.flatnonzero(found != NONE)
    while len(todo):
        todo = todo[ranges.end[found[todo]] < end[todo]]
        found[todo] = ranges.enclosing[found[todo]]
        todo = todo[found[todo] != NONE]
    return found
