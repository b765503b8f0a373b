"""Contradictions between the events of a timeline, found in arrays of times in ns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups

#: Shorter overlaps with the next operation of a stream are possible, ns: programmatic dependent
#: launch and the resolution of timestamps cause up to 31 us in measured captures.
LONG_NS = 1_000_000


def unstamped(start: Any, end: Any) -> Any:
    """Return whether operations have no timestamps, for which CUPTI writes 0 as start and end.

    Takes integers or arrays: the times that are in the file.
    """
    return (start == 0) & (end == 0)


def overruns(stream: Codes, launch: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the indices of operations with impossible ends, and when the next operation began.

    A stream runs one launch after another.  An end is impossible if the next operation of the
    stream began at least LONG_NS before, and a later operation has already ended.  Operations with
    the same `launch` (a CUDA graph) may run concurrently.  The operations are in order of start and
    end.  An `end` of NONE is unknown; a `stream` of NONE is not checked.

    Streams are skipped in which even more operations overlap as long without such a contradiction:
    in merged traces, one number stands for several streams.
    """
    nothing = np.array([], np.int64)
    rows = np.flatnonzero(stream != NONE)
    if not len(rows):
        return nothing, nothing
    rows = rows[np.argsort(stream[rows], kind="stable")]
    stream, launch, start, end = stream[rows], launch[rows], start[rows], end[rows]
    changes = np.flatnonzero((np.diff(stream) != 0) | (np.diff(launch) != 0)) + 1
    borders = np.concatenate([[0], changes, [len(rows)]])
    following = np.repeat(borders[1:], np.diff(borders))
    before = np.flatnonzero(following < len(rows))
    before = before[stream[following[before]] == stream[before]]
    late = before[(end[before] != NONE) & (end[before] - start[following[before]] >= LONG_NS)]
    wrong = np.concatenate(
        [
            nothing,
            *(_contradicted(late[own], stream, end, following) for _, own in groups(stream[late])),
        ]
    )
    order = np.argsort(rows[wrong])
    return rows[wrong][order], start[following[wrong]][order]


def _contradicted(late: Ints, stream: Codes, end: Ints, following: Ints) -> Ints:
    """Return those of the late operations of a stream that end after later operations."""
    first, last = (
        np.searchsorted(stream, stream[late[0]], side=side) for side in ("left", "right")
    )
    known = np.where(end[first:last] == NONE, np.iinfo(np.int64).max, end[first:last])
    earliest = np.minimum.accumulate(known[::-1])[::-1]
    found: Ints = late[earliest[following[late] - first] < end[late]]
    return found if 2 * len(found) >= len(late) else found[:0]


def open_at(times: Ints, begins: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    """Return whether an interval is open at each time; intervals may nest and have no names.

    An end without a beginning ends an interval that was open from the start.
    """
    begins, ends = np.sort(begins), np.sort(ends)
    begun = np.searchsorted(begins, ends, side="right")
    already = max(int((np.arange(1, len(ends) + 1) - begun).max(initial=0)), 0)
    opened = np.searchsorted(begins, times, side="right")
    closed = np.searchsorted(ends, times, side="left")
    return already + opened - closed > 0
