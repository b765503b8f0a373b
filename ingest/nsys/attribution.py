"""Finds the launching calls within each NVTX range, and the innermost range around each call.

This is the only definition of the work of a range:

- a call belongs to the ranges of its own thread around it;
- a call outside of the ranges of its thread belongs to the ranges of the thread that waits for it;
- so do the outermost ranges of a thread, with all of their calls.

Autograd's threads launch the backward pass while the thread that called it waits.  The waiting
thread is the only other thread of the process with an open range; loader threads, which launch no
work, do not count.  If several threads have open ranges, none is chosen.  A thread other than the
main thread does not wait if it launches work in between.

Calls of one thread, ordered by start, also end in that order, so a range contains consecutive
calls.  Two binary searches find them, and their extremes give the projection of the range on the
GPU.  Ranges and calls are searched period by period; ranges that are still open stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups, nullable
from perfpipe.ingest.columns import Columns, slices
from perfpipe.ingest.nsys.autograd import forward_ranges
from perfpipe.ingest.nsys.launches import Calls
from perfpipe.ingest.nsys.ranges import Ranges
from perfpipe.ingest.sequences import latest_reaching, over_runs

_LIMITS = np.iinfo(np.int64)

_NOTHING = np.zeros(0, np.int64)

#: Process and thread id.
_Thread = tuple[int, int]


@dataclass
class _Period:
    """Calls of a thread, first <= call_id < last, and ranges of the thread that may contain them.

    `until` is the end of earlier calls, ns; `open` are ranges of all threads by thread code.
    """

    thread: _Thread
    first: int
    last: int
    own: Ints
    open: _Open
    until: int


#: Where the range of a call was open: source codes.
SOURCES = ("own thread", "waiting thread")
OWN, WAITING = range(2)

#: Why a call has no range: reason codes.
REASONS = ("no open range", "several threads")
NO_RANGE, SEVERAL = range(2)


@dataclass
class Attribution:
    """Where calls and ranges belong, NONE if unknown.

    Each call has `innermost`, a range_id, and the codes `source` and `reason`.  Each range has
    `caller`, the range of the waiting thread around an outermost range, and `forward`, the operator
    of the forward pass to which a range of the backward pass belongs (None without any).
    """

    innermost: Codes
    source: npt.NDArray[np.int8]
    reason: npt.NDArray[np.int8]
    caller: Codes
    forward: Codes | None


def attribute(calls: Calls, ranges: Ranges, columns: Columns) -> Attribution:
    """Find the innermost range of each call, and the caller of each outermost range.

    A range contains a call of its own thread that begins and ends within it.  A call of another
    thread begins within the range of the waiting thread, and a range lies in it as a whole.  The
    main thread waits for others, but works for itself.
    """
    found = Attribution(
        columns.new(len(calls), np.int32, NONE),
        columns.new(len(calls), np.int8, NONE),
        columns.new(len(calls), np.int8, NONE),
        columns.new(len(ranges), np.int32, NONE),
        forward_ranges(ranges),
    )
    launching = _Launching(calls, ranges)
    for period in _periods(calls, ranges):
        some = slice(period.first, period.last)
        start = calls.start[some]
        innermost = _around(ranges, period.own, start, calls.end[some])
        found.source[some] = np.where(innermost == NONE, NONE, OWN)
        left = np.flatnonzero(innermost == NONE)
        if len(left):
            reason = np.full(len(left), NO_RANGE, np.int8)
            pid, tid = period.thread
            if pid != tid:
                waiting = period.open.waiting(pid, launching)
                lender, reason = waiting.thread_for(period.thread, start[left])
                innermost[left] = _lent(ranges, period.open, lender, start[left])
                found.source[some.start + left] = np.where(innermost[left] == NONE, NONE, WAITING)
                reason[innermost[left] != NONE] = NONE
            found.reason[some.start + left] = reason
        found.innermost[some] = innermost
    if any(pid != tid for pid, tid in ranges.threads):
        for opened in _opened(ranges):
            _find_callers(ranges, opened, launching, found)
        launching.drop_busy(calls, ranges, found)
    return found


class _Launching:
    """Threads that launch work, and when."""

    def __init__(self, calls: Calls, ranges: Ranges) -> None:
        threads = [*_threads(calls)]
        self._start = calls.start
        self._calls = {thread: slice(first, last) for thread, first, last in threads}
        self._firsts = np.array([first for _, first, _ in threads], np.int64)
        self._threads = ranges.threads
        self._main = np.array([pid == tid for pid, tid in ranges.threads], bool)

    def __contains__(self, thread: _Thread) -> bool:
        return thread in self._calls

    def drop_busy(self, calls: Calls, ranges: Ranges, found: Attribution) -> None:
        """Drop the ranges of threads that launch work between the work that they would wait for."""
        rows = [_NOTHING]
        for some in slices(len(calls)):
            lent = some.start + np.flatnonzero(found.source[some] == WAITING)
            rows.append(lent[~self._main[ranges.thread[found.innermost[lent]]]])
        lent = np.concatenate(rows)
        thread = np.searchsorted(self._firsts, lent, side="right")
        start = calls.start[lent]
        busy = lent[self._between(ranges, found.innermost[lent], thread, start, start)]
        found.innermost[busy] = found.source[busy] = NONE
        found.reason[busy] = SEVERAL
        lent = np.flatnonzero(found.caller != NONE)
        caller = found.caller[lent]
        if found.forward is not None:
            forward = found.forward[lent]
            evident = (forward != NONE) & (ranges.thread[forward] == ranges.thread[caller])
            lent, caller = lent[~evident], caller[~evident]
        thread, start, end = (of[lent] for of in (ranges.thread, ranges.start, ranges.end))
        found.caller[lent[self._between(ranges, caller, thread, start, end)]] = NONE

    def _between(
        self, ranges: Ranges, lender: Codes, thread: Ints, start: Ints, end: Ints
    ) -> npt.NDArray[np.bool_]:
        """Return which ranges have a busy lender.

        A lender is busy if it launches work between the first and the last work of the other thread
        in its range.  The main thread never counts as busy.
        """
        busy = np.zeros(len(lender), bool)
        for code, rows in groups(ranges.thread[lender]):
            if self._main[code] or self._threads[code] not in self._calls:
                continue
            pairs = thread[rows] * np.int64(len(ranges)) + lender[rows]
            pairs, place = np.unique(pairs, return_inverse=True)
            first = np.full(len(pairs), _LIMITS.max)
            last = np.full(len(pairs), _LIMITS.min)
            np.minimum.at(first, place, start[rows])
            np.maximum.at(last, place, end[rows])
            begun = self._start[self._calls[self._threads[code]]]
            count = np.searchsorted(begun, last, "left") - np.searchsorted(begun, first, "right")
            busy[rows] = count[place] > 0
        return busy


def _find_callers(ranges: Ranges, opened: _Open, launching: _Launching, found: Attribution) -> None:
    """Set the caller of the outermost ranges that begin in a period."""
    for code, rows in opened.rows.items():
        pid, tid = ranges.threads[code]
        if pid == tid or len(opened.rows) < 2:
            continue
        own = rows[(rows >= opened.begun) & (ranges.level[rows] == 0) & ranges.on_one_thread[rows]]
        if not len(own):
            continue
        start = ranges.start[own]
        lender, _ = opened.waiting(pid, launching).thread_for((pid, tid), start)
        if found.forward is not None:
            # The thread that ran the forward pass also called the backward pass.
            forward = found.forward[own]
            threads = np.where(forward == NONE, NONE, ranges.thread[forward])
            lender = np.where((threads != NONE) & (threads != code), threads, lender)
        found.caller[own] = _lent(ranges, opened, lender, start, own)


def _lent(
    ranges: Ranges, opened: _Open, lender: Ints, start: Ints, inner: Ints | None = None
) -> Codes:
    """Return the innermost range of other threads, given by code, around times, or NONE.

    If `inner` has ranges, around these: of ranges that are equal, the first is around the others.
    """
    found = np.full(len(lender), NONE, np.int32)
    for code, own in groups(np.where(lender == NONE, len(ranges.threads), lender)):
        if code == len(ranges.threads):
            continue
        rows = opened.rows.get(code, _NOTHING)
        if inner is None:
            found[own] = _around(ranges, rows, start[own], start[own])
        else:
            at = np.searchsorted(rows, inner[own]) - 1
            found[own] = _latest(ranges, rows, at, ranges.end[inner[own]])
    return found


def launch_columns(
    found: Attribution | None, ranges: Ranges | None, call: Codes
) -> dict[str, pa.Array]:
    """Return the range columns of `launches`, for operations of those calls."""
    if found is None or ranges is None or not len(found.innermost):
        return {}
    index, source, reason = (
        np.where(call == NONE, NONE, of[call])
        for of in (found.innermost, found.source, found.reason)
    )
    return {
        "range_id": nullable(index),
        "nvtx_range": ranges.titles(index),
        "range_source": pa.DictionaryArray.from_arrays(nullable(source), pa.array(SOURCES)),
        "no_range_reason": pa.DictionaryArray.from_arrays(nullable(reason), pa.array(REASONS)),
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
        #: Includes CUDA graphs traced as a whole.
        self.time = columns.new(count, np.int64) if _graphs(calls) else self._time
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
        if self.time is not self._time:
            time = np.append(0, np.cumsum(calls.time[some]))
            self.time[own] += time[last] - time[first]
        earliest = over_runs(np.minimum, calls.gpu_start[some], first, last)
        self._start[own] = np.minimum(self._start[own], earliest)
        latest = over_runs(np.maximum, calls.gpu_end[some], first, last)
        self._end[own] = np.maximum(self._end[own], latest)

    def launches(self, rows: slice | Ints) -> npt.NDArray[np.bool_]:
        """Return which ranges launched work, for some rows."""
        return np.asarray(self._calls[rows] > 0)

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


@dataclass
class _Open:
    """Ranges that may be open in a period, by thread code; `begun` is the first that begins in it.

    The period ends at `until`, ns.
    """

    ranges: Ranges
    rows: dict[int, Ints]
    begun: int
    until: int
    _waiting: dict[int, _Waiting] = field(default_factory=dict)

    def waiting(self, pid: int, launching: _Launching) -> _Waiting:
        """Return the threads of a process that may wait for others: those that launch work."""
        if pid not in self._waiting:
            threads = enumerate(self.ranges.threads)
            rows = {
                code: self.rows[code]
                for code, thread in threads
                if code in self.rows
                and thread[0] == pid
                and (thread in launching or thread == (pid, pid))
            }
            self._waiting[pid] = _Waiting(self.ranges, rows)
        return self._waiting[pid]


class _Waiting:
    """Threads with open ranges: how many there are at any time, and which one it is."""

    def __init__(self, ranges: Ranges, rows: dict[int, Ints]) -> None:
        self._codes = {ranges.threads[code]: code for code in rows}
        self._spans = {code: _spans(ranges, own) for code, own in rows.items()}
        starts = [begin for begin, _ in self._spans.values()]
        # Open until the last nanosecond.
        ends = [end + 1 for _, end in self._spans.values()]
        codes = [np.full(len(begin), code) for code, (begin, _) in self._spans.items()]
        times = np.concatenate([_NOTHING, *starts, *ends])
        order = np.argsort(times, kind="stable")
        ones = np.concatenate([_NOTHING, *(np.ones(len(own), np.int64) for own in codes)])
        code = np.concatenate([_NOTHING, *codes])
        self._times = times[order]
        self._open = np.append(0, np.cumsum(np.concatenate([ones, -ones])[order]))
        self._sum = np.append(0, np.cumsum(np.concatenate([code, -code])[order]))

    def thread_for(self, thread: _Thread, times: Ints) -> tuple[Ints, npt.NDArray[np.int8]]:
        """Return the only other thread with an open range, as code, or NONE, and why not."""
        at = np.searchsorted(self._times, times, side="right")
        count, code = self._open[at], self._sum[at]
        if (own := self._codes.get(thread)) is not None:
            begin, end = self._spans[own]
            place = np.searchsorted(begin, times, side="right") - 1
            busy = (place >= 0) & (end[place] >= times)
            count, code = count - busy, code - busy * own
        reason = np.where(count > 1, SEVERAL, NO_RANGE).astype(np.int8)
        return np.where(count == 1, code, NONE), reason


def _spans(ranges: Ranges, rows: Ints) -> tuple[Ints, Ints]:
    """Return when a thread has any range open: starts and ends, in order and disjoint."""
    start, end = ranges.start[rows], ranges.end[rows]
    reach = np.maximum.accumulate(end)
    first = np.append(True, start[1:] > reach[:-1]) if len(rows) else np.zeros(0, bool)
    last = np.append(first[1:], True) if len(rows) else first
    return start[first], reach[last]


def _opened(ranges: Ranges) -> Iterator[_Open]:
    """Yield the ranges that may be open, period by period; ranges that are still open stay."""
    opened = _NOTHING
    for some in slices(len(ranges)):
        begun = some.start + np.flatnonzero(ranges.on_one_thread[some])
        rows = np.concatenate([opened, begun])
        until = int(ranges.start[some.stop]) if some.stop < len(ranges) else _LIMITS.max
        of = {code: rows[own] for code, own in groups(ranges.thread[rows])}
        yield _Open(ranges, of, some.start, until)
        opened = rows[ranges.end[rows] >= until]


def _periods(calls: Calls, ranges: Ranges) -> Iterator[_Period]:
    """Yield all calls, those of a thread in order."""
    left = {thread: (first, last, _LIMITS.min) for thread, first, last in _threads(calls)}
    codes = {thread: code for code, thread in enumerate(ranges.threads)}
    for opened in _opened(ranges):
        for thread, (first, last, reach) in left.items():
            own = opened.rows.get(codes.get(thread, NONE), _NOTHING)
            later = first + int(np.searchsorted(calls.start[first:last], opened.until))
            for part in slices(later - first):
                begin, end = first + part.start, first + part.stop
                yield _Period(thread, begin, end, own, opened, reach)
                reach = max(reach, int(calls.end[begin:end].max()))
            left[thread] = (later, last, reach)


def _graphs(calls: Calls) -> bool:
    """Return whether a call launched a CUDA graph that is traced as a whole."""
    return any(
        bool((calls.time[some] != calls.gpu_time[some]).any()) for some in slices(len(calls))
    )


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
    return _latest(ranges, own, at, end)


def _latest(ranges: Ranges, own: Ints, at: Ints, end: Ints) -> Codes:
    """Return the last of some ranges, up to a place each, that does not end before, or NONE."""
    found = latest_reaching(ranges.end[own], at, end)
    return np.where(found == NONE, NONE, own[found]) if len(own) else found
