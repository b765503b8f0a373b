"""Finds the launching calls within each NVTX range, and the innermost range around each call.

Calls of one thread, ordered by start, also end in that order, so a range contains consecutive
calls.  Two binary searches find them, and their extremes give the projection of the range on the
GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Codes, Ints, nullable
from perfpipe.ingest.nsys.launches import Calls
from perfpipe.ingest.nsys.ranges import Ranges
from perfpipe.ingest.sequences import in_parts, latest_reaching, place_over_runs, slices

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

    A range contains a call of its own thread that begins and ends within it.  A call outside of any
    range on a thread other than the main thread (as autograd launches the backward pass) gets the
    range that the main thread was in when the call began.
    """
    innermost = np.full(len(calls.pid), NONE, np.int32)
    borrowed = np.zeros(len(calls.pid), bool)
    threads = _threads(calls)
    alone: dict[int, list[Ints]] = {}
    for (pid, tid), thread in threads.items():
        rows = slice(thread.first, thread.first + len(thread.start))
        innermost[rows] = _around(ranges, (pid, tid), thread.start, thread.end)
        if tid != pid:
            left = thread.first + np.flatnonzero(innermost[rows] == NONE)
            alone.setdefault(pid, []).append(left)
    for pid, parts in alone.items():
        # One process at a time: its main thread may have millions of ranges.
        left = np.concatenate(parts)
        begun = calls.start[left]
        innermost[left] = _around(ranges, (pid, pid), begun, begun)
        borrowed[left] = innermost[left] != NONE
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

    def __init__(self, calls: Calls, ranges: Ranges) -> None:
        self._calls = calls
        self._on_one_thread = ranges.on_one_thread
        # One more element than calls: a run may end after the last call.
        self._time = np.append(0, np.cumsum(calls.gpu_time))
        launching = calls.gpu_start != _NO_START
        self._before = np.append(np.int32(0), np.cumsum(launching, dtype=np.int32))
        self._first = np.zeros(len(ranges), np.int32)
        self._last = np.zeros(len(ranges), np.int32)
        for key, thread in _threads(calls).items():
            for part in in_parts(ranges.of_thread(key)):
                runs = _runs(thread, ranges.start[part], ranges.end[part])
                self._first[part], self._last[part] = runs
        # Calls instead of times, which would take twice the memory.
        self._start = place_over_runs(np.minimum, calls.gpu_start, self._first, self._last)
        self._end = place_over_runs(np.maximum, calls.gpu_end, self._first, self._last)
        self._children = np.zeros(len(ranges), np.int32)
        for rows in slices(len(ranges)):
            around = ranges.enclosing[rows]
            inside = around[(around != NONE) & (self._gpu_calls(rows) > 0)]
            np.add.at(self._children, inside, np.int32(1))

    def _gpu_calls(self, rows: slice) -> Codes:
        return self._before[self._last[rows]] - self._before[self._first[rows]]

    def columns(self, rows: slice) -> dict[str, pa.Array]:
        """Return the columns of nsys_nvtx_ranges about launched work, for some rows."""
        first, last = self._first[rows], self._last[rows]
        gpu_calls = self._gpu_calls(rows)
        unknown, idle = ~self._on_one_thread[rows], gpu_calls == 0
        return {
            "children": pa.array(self._children[rows]),
            "first_call": pa.array(first, mask=last <= first),
            "calls": pa.array(last - first, mask=unknown),
            "gpu_calls": pa.array(gpu_calls, mask=unknown),
            "gpu_start_ns": _times(self._calls.gpu_start, self._start[rows], idle),
            "gpu_end_ns": _times(self._calls.gpu_end, self._end[rows], idle),
            "gpu_time_ns": pa.array(self._time[last] - self._time[first], mask=idle),
        }


def _times(values: Ints, place: Codes, missing: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values).take(pa.array(place, mask=missing))


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
    """Return the run of calls within each range: first call_id, and last call_id + 1."""
    first = np.searchsorted(thread.start, start, side="left")
    last = np.searchsorted(thread.reach, end, side="right")
    return first + thread.first, np.maximum(first, last) + thread.first


def _around(ranges: Ranges, thread: tuple[int, int], start: Ints, end: Ints) -> Codes:
    """Return the innermost range of a thread around each interval, or NONE.

    It is the last started range that does not end before the interval ends.
    """
    own = ranges.of_thread(thread)
    at = np.searchsorted(ranges.start[own], start, side="right") - 1
    found = latest_reaching(ranges.end[own], at, end)
    return np.where(found == NONE, NONE, own[found]) if len(own) else found
