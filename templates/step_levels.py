"""Levels of detail of a lane: slices too short to be seen are drawn as one block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from perfpipe.picture import Label, Slice

#: Pixels of a picture that is not enlarged; each level has FINER times as many.
PIXELS, FINER = 1200, 4

#: A level with more blocks than this share of the slices is no cheaper to draw than these.
_WORTH = 0.3

#: Lanes with fewer slices are drawn as they are.
_FEW = 1500

#: Parts in which a block tells how full it is.
FULL = 9


class Block(NamedTuple):
    """Some slices in a row: their number, the category with most of their time, how full it is."""

    slices: int
    category: str
    fill: int


def blocks_of(slices: Sequence[Slice], labels: Sequence[Label], unit_ns: float) -> list[Block]:
    """Return blocks of slices that together last at most a unit; longer slices stand alone."""
    lane = _Lane(slices, labels)
    return lane.blocks(lane.bounds(unit_ns))


def levels_of(
    slices: Sequence[Slice], labels: Sequence[Label], dur_ns: int
) -> list[tuple[float, list[Block]]]:
    """Return the levels of a lane, coarsest first, each with the time that a pixel stands for."""
    found: list[tuple[float, list[Block]]] = []
    if len(slices) <= _FEW:
        return found
    lane = _Lane(slices, labels)
    unit = dur_ns / PIXELS
    while unit >= 1:
        bounds = lane.bounds(unit)
        if len(bounds) > _WORTH * len(slices):
            break
        found.append((unit, lane.blocks(bounds)))
        unit /= FINER
    return found


class _Lane:
    """The columns of some slices, which are sorted and do not overlap."""

    def __init__(self, slices: Sequence[Slice], labels: Sequence[Label]) -> None:
        import numpy as np

        self._categories = sorted({label.category for label in labels})
        places = {name: place for place, name in enumerate(self._categories)}
        rows = np.fromiter(chain.from_iterable(slices), np.int64).reshape(-1, 3)
        self._starts, self._durations = rows[:, 0], rows[:, 1]
        self._ends = self._starts + self._durations
        of_label = np.array([places[label.category] for label in labels], np.int64)
        self._category = of_label[rows[:, 2]]

    def bounds(self, unit_ns: float) -> list[int]:
        """Return where blocks of at most a unit begin."""
        import numpy as np

        # Where a block would end that begins at a slice; one that is longer stands alone.
        behind = np.searchsorted(self._ends, self._starts + math.floor(unit_ns), "right")
        following = np.maximum(behind, np.arange(1, len(behind) + 1)).tolist()
        found, at = list[int](), 0
        while at < len(following):
            found.append(at)
            at = following[at]
        return found

    def blocks(self, bounds: Sequence[int]) -> list[Block]:
        """Return the blocks that begin there."""
        import numpy as np

        if not bounds:
            return []
        # Of each category present, and its time in each block; the first of those with most.
        times = [
            np.where(
                np.logical_or.reduceat(own := self._category == place, bounds),
                np.add.reduceat(np.where(own, self._durations, 0), bounds),
                -1,
            )
            for place in range(len(self._categories))
        ]
        most = np.argmax(times, axis=0).tolist()
        counts = np.diff([*bounds, len(self._starts)])
        last = np.array(bounds) + counts - 1
        spans = self._ends[last] - self._starts[bounds]
        sums = np.add.reduceat(self._durations, bounds)
        fill = np.where(spans > 0, np.rint(FULL * sums / np.maximum(spans, 1)), FULL)
        names = (self._categories[place] for place in most)
        return [*map(Block, counts.tolist(), names, fill.astype(int).tolist())]
