"""Joins the ranges of threads that work for others with those of the waiting thread, as one tree.

Each range has the GPU time of its work as `attribution` defines it, including the work of other
threads, and the GPU time of the backward pass of its operators.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Codes, Ints, nullable
from perfpipe.ingest.columns import Columns, slices
from perfpipe.ingest.nsys.attribution import OWN, WAITING, Attribution, Projection
from perfpipe.ingest.nsys.launches import Calls
from perfpipe.ingest.nsys.ranges import Ranges
from perfpipe.ingest.sequences import depths


class RangeTree:
    """The tree of the ranges of all threads."""

    def __init__(
        self,
        calls: Calls,
        ranges: Ranges,
        found: Attribution,
        projection: Projection,
        columns: Columns,
    ) -> None:
        self._found, self._projection, self._level = found, projection, ranges.level
        around = ranges.enclosing
        callers = np.flatnonzero(found.caller != NONE)
        if len(callers):
            around = columns.new(len(ranges), np.int32)
            for some in slices(len(ranges)):
                own = ranges.enclosing[some]
                around[some] = np.where(own == NONE, found.caller[some], own)
            self._level = np.where(ranges.level == NONE, NONE, depths(around))
            above = found.caller[_outermost(ranges.enclosing)]
        self._lent = _Sums(around, columns)
        for some in slices(len(calls)):
            rows = some.start + np.flatnonzero(found.source[some] == WAITING)
            self._lent.add(found.innermost[rows], calls.time[rows])
            if len(callers):
                rows = some.start + np.flatnonzero(found.source[some] == OWN)
                outside = above[found.innermost[rows]]
                self._lent.add(outside[outside != NONE], calls.time[rows[outside != NONE]])
        self._backward: _Sums | None = None
        if found.forward is not None:
            self._backward = _Sums(around, columns)
            rows = np.flatnonzero(found.forward != NONE)
            rows = rows[projection.launches(rows) | self._lent.known[rows]]
            times = projection.time[rows] + self._lent.time[rows]
            self._backward.add(found.forward[rows], times)

    def columns(self, rows: slice) -> dict[str, pa.Array]:
        """Return the columns of nsys_nvtx_ranges about the tree, for some rows."""
        caller, level = self._found.caller[rows], self._level[rows]
        known = self._projection.launches(rows) | self._lent.known[rows]
        time = self._projection.time[rows] + self._lent.time[rows]
        columns = {
            "caller": nullable(caller),
            "tree_level": nullable(level),
            "tree_time_ns": pa.array(time, mask=~known),
        }
        if self._found.forward is not None and self._backward is not None:
            columns["forward"] = nullable(self._found.forward[rows])
            columns["backward_time_ns"] = pa.array(
                self._backward.time[rows], mask=~self._backward.known[rows]
            )
        return columns


def _outermost(enclosing: Codes) -> Codes:
    """Return the outermost range around each range, on its thread."""
    found = np.where(enclosing == NONE, np.arange(len(enclosing), dtype=np.int32), enclosing)
    while ((further := found[found]) != found).any():
        found = further
    return found


class _Sums:
    """Sums of times over ranges and all ranges around them; `known` where there is any."""

    def __init__(self, around: Codes, columns: Columns) -> None:
        self._around = around
        self.time: Ints = columns.new(len(around), np.int64)
        self.known: npt.NDArray[np.bool_] = columns.new(len(around), bool)

    def add(self, index: npt.NDArray[np.integer], times: Ints) -> None:
        """Add times to ranges and to the ranges around them."""
        while len(index):
            index, place = np.unique(index, return_inverse=True)
            sums = np.zeros(len(index), np.int64)
            np.add.at(sums, place, times)
            self.time[index] += sums
            self.known[index] = True
            index = self._around[index]
            times = sums[index != NONE]
            index = index[index != NONE]
