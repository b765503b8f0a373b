"""Queries about runs and predecessors in a sequence, for many places at a time.

All take O(n log n) steps, for any order of queries and any length of runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import NONE, Codes, Ints
from perfpipe.ingest.columns import in_parts, slices


def over_runs(
    pick: np.ufunc, values: npt.NDArray[Any], first: Codes, last: Codes
) -> npt.NDArray[Any]:
    """Return pick.reduce(values[first:last]) for each pair, 0 for an empty run.

    `pick` is np.minimum or np.maximum: two possibly overlapping power-of-two windows cover a run.
    """
    found = np.zeros(len(first), values.dtype)
    # 0 for an empty run, k for a run of 2**(k - 1) values or more.
    size = np.zeros(len(first), np.int8)
    for some in slices(len(first)):
        size[some] = np.frexp((last[some] - first[some]).astype(np.float64))[1]
    picked, width = values, 1
    for k in range(1, int(size.max(initial=0)) + 1):
        for some in slices(len(first)):
            rows = some.start + np.flatnonzero(size[some] == k)
            found[rows] = pick(picked[first[rows]], picked[last[rows] - width])
        picked, width = pick(picked[:-width], picked[width:]), 2 * width
    return found


def latest_reaching(values: Ints, place: npt.NDArray[np.integer], bound: Ints) -> Codes:
    """Return the last index up to each place with a value of at least the bound, else NONE.

    Checks longer and longer blocks before the place, then searches the block with such a value.
    """
    largest = [values]
    while len(largest[-1]) > 1:
        left, right = largest[-1][::2], largest[-1][1::2]
        pairs = left.copy()
        np.maximum(pairs[: len(right)], right, out=pairs[: len(right)])
        largest.append(pairs)
    found = np.full(len(place), NONE, np.int32)
    for rows in in_parts(np.flatnonzero(place >= 0)):
        found[rows] = _latest_in_blocks(largest, place[rows].astype(np.int64), bound[rows])
    return found


def _latest_in_blocks(largest: list[Ints], block: Ints, bound: Ints) -> Codes:
    found = np.full(len(block), NONE, np.int32)
    todo = np.arange(len(block))
    for level, values in enumerate(largest):
        reaches = values[block] >= bound[todo]
        rows, at = todo[reaches], block[reaches]
        for halves in reversed(largest[:level]):
            at = np.minimum(2 * at + 1, len(halves) - 1)
            at -= halves[at] < bound[rows]
        found[rows] = at
        # Next is the pair that ends before or with this block, which does not reach the bound.
        todo, block = todo[~reaches], block[~reaches]
        block = (block - (block % 2 == 0)) >> 1
        todo, block = todo[block >= 0], block[block >= 0]
    return found


def depths(parent: Codes) -> Codes:
    """Return the number of ancestors of each index; a parent is NONE or another index."""
    depth: Codes = (parent != NONE).astype(np.int32)
    above = parent.copy()
    todo = np.flatnonzero(above != NONE)
    while len(todo):
        # `depth` counts the ancestors up to `above`; each step doubles that distance.
        up = above[todo]
        depth[todo] += depth[up]
        above[todo] = above[up]
        todo = todo[above[todo] != NONE]
    return depth
