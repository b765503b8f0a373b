"""Detects two modes: times in two groups, because of memory placement or GPU clocks, for example.

If runs are fast or slow at random, two sides differ by chance alone.  With few runs the scatter
within a side does not show it: a side that met only one mode has a small scatter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from perfpipe.analysis.thresholds import thresholds

#: Fewest values of a group: a single outlier is not a mode.
FEWEST = 2


class Split(NamedTuple):
    """Sorted values in two groups: the size of the lower one, the sum of squares within both."""

    lower: int
    squares: float


def best_split(values: Sequence[float]) -> Split | None:
    """Return the split with the least sum of squares; None with too few values for two groups."""
    if len(values) < 2 * FEWEST:
        return None
    centre = math.fsum(values) / len(values)
    ordered = sorted(value - centre for value in values)
    lower = sum(ordered[:FEWEST])
    # The total sum of squares is fixed: within is least when between the means is largest.
    found, most = FEWEST, -1.0
    for size in range(FEWEST, len(values) - FEWEST + 1):
        between = lower**2 / size + lower**2 / (len(values) - size)
        if between > most:
            found, most = size, between
        lower += ordered[size]
    return Split(found, _squares(ordered[:found]) + _squares(ordered[found:]))


def two_modes(values: Sequence[float]) -> Split | None:
    """Return the two groups of values; None if they form one."""
    split = best_split(values)
    return split if split and split.squares < _share() * _squares(values) else None


def modes_explain(before: Sequence[float], after: Sequence[float], least_share: float = 0) -> bool:
    """Return whether two groups across the sides explain the values far better than the sides.

    Each group has more than `least_share` of the values.
    """
    both = [*before, *after]
    split = best_split(both)
    if split is None or min(split.lower, len(both) - split.lower) <= least_share * len(both):
        return False
    last = sorted(both)[split.lower - 1]
    if not any(min(side) <= last < max(side) for side in (before, after)):
        return False
    return split.squares < _share() * (_squares(before) + _squares(after))


def _share() -> float:
    return thresholds()["compare.modes_share"]


def _squares(values: Sequence[float]) -> float:
    centre = math.fsum(values) / len(values)
    return math.fsum((value - centre) ** 2 for value in values)
