"""Levels of detail of a lane: slices too short to be seen are drawn as one block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
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
    return [_block(slices[begin:end], labels) for begin, end in pairwise(_bounds(slices, unit_ns))]


def _bounds(slices: Sequence[Slice], unit_ns: float) -> list[int]:
    """Return where blocks begin, and behind it where the last one ends."""
    found: list[int] = []
    first = 0.0
    for at, (start, dur, _) in enumerate(slices):
        if not found or start + dur - first > unit_ns:
            found.append(at)
            first = start
    return [*found, len(slices)]


def _block(slices: Sequence[Slice], labels: Sequence[Label]) -> Block:
    if len(slices) == 1:
        return Block(1, labels[slices[0].label].category, FULL)
    times: Counter[str] = Counter()
    for one in slices:
        times[labels[one.label].category] += one.dur_ns
    span = slices[-1].start_ns + slices[-1].dur_ns - slices[0].start_ns
    category = max(sorted(times), key=lambda name: times[name])
    return Block(len(slices), category, round(FULL * times.total() / span) if span else FULL)


def levels_of(
    slices: Sequence[Slice], labels: Sequence[Label], dur_ns: int
) -> list[tuple[float, list[Block]]]:
    """Return the levels of a lane, coarsest first, each with the time that a pixel stands for."""
    found = []
    unit = dur_ns / PIXELS
    while len(slices) > _FEW and unit >= 1:
        bounds = _bounds(slices, unit)
        if len(bounds) - 1 > _WORTH * len(slices):
            break
        found.append((unit, [_block(slices[begin:end], labels) for begin, end in pairwise(bounds)]))
        unit /= FINER
    return found
