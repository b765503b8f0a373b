"""Contradictions between the events of a timeline, found in arrays of times in ns."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups
from perfpipe.ingest.columns import slices

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
    wrong: dict[int, list[Ints]] = {}
    late: Counter[int] = Counter()
    later: dict[int, _Later] = {}
    for some in slices(len(stream), backward=True):
        chosen = np.flatnonzero(stream[some] != NONE)
        for code, members in groups(stream[some][chosen]):
            rows = some.start + chosen[members]
            behind = later.get(code, _NOTHING)
            overlapping, found, later[code] = _look(launch[rows], start[rows], end[rows], behind)
            late[code] += overlapping
            wrong.setdefault(code, []).append(np.stack([rows, found])[:, found != NONE])
    kept = [np.zeros((2, 0), np.int64)]
    for code, parts in wrong.items():
        if 2 * sum(part.shape[1] for part in parts) >= late[code]:
            kept += parts
    rows, limits = np.concatenate(kept, axis=1)
    order = np.argsort(rows)
    return rows[order], limits[order]


class _Later(NamedTuple):
    """What follows in a stream: the next launch, and all launches after it.

    `starts` has the starts of both, and `ends` the earliest known ends, else the largest integer.
    """

    launch: int
    starts: tuple[int, int]
    ends: tuple[int, int]


_NEVER = np.iinfo(np.int64).max
_NOTHING = _Later(NONE, (_NEVER, _NEVER), (_NEVER, _NEVER))


def _look(launch: Ints, start: Ints, end: Ints, later: _Later) -> tuple[int, Ints, _Later]:
    """Look at operations of a stream before later ones.

    Returns how many overlap with the next launch for long, when the next launch began for those
    that cannot end so late, else NONE, and what now follows.
    """
    # Two more operations stand for the later ones.
    other = later.launch ^ 1
    launch = np.concatenate([launch, [later.launch, other]])
    start = np.concatenate([start, later.starts])
    known = np.concatenate([np.where(end == NONE, _NEVER, end), later.ends])
    borders = np.flatnonzero(np.diff(launch)) + 1
    following = np.repeat(borders, np.diff(np.append(0, borders)))[: len(end)]
    earliest = np.minimum.accumulate(known[::-1])[::-1]
    # Nothing overlaps with what never starts.
    late = (end != NONE) & (end - start[following] >= LONG_NS)
    found = np.where(late & (earliest[following] < end), start[following], NONE)
    first = borders[0]
    return (
        int(np.count_nonzero(late)),
        found,
        _Later(
            int(launch[0]),
            (int(start[0]), int(start[first])),
            (int(known[:first].min()), int(earliest[first])),
        ),
    )


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
