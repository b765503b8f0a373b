"""Two modes: whether times come in two groups, as by where memory lies or which clock a GPU took.

Runs that are now fast and now slow differ between two sides by chance alone.  With few runs the
scatter within a side does not show it: that of a side with one mode is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from perfpipe.analysis.thresholds import thresholds

#: Fewest values of a group: a single odd run is no mode.
FEWEST = 2


class Split(NamedTuple):
    """Sorted values in two groups: the size of the lower one, and the squares left within both."""

    lower: int
    squares: float


def best_split(values: Sequence[float]) -> Split | None:
    """Return the split that leaves the least squares; None with too few values for two groups."""
    if len(values) < 2 * FEWEST:
        return None
    centre = math.fsum(values) / len(values)
    ordered = sorted(value - centre for value in values)
    lower = sum(ordered[:FEWEST])
    # The squares of all are fixed: those left are least where those between the means are most.
    found, most = FEWEST, -1.0
    for size in range(FEWEST, len(values) - FEWEST + 1):
        between = lower**2 / size + lower**2 / (len(values) - size)
        if between > most:
            found, most = size, between
        lower += ordered[size]
    return Split(found, _squares(ordered[:found]) + _squares(ordered[found:]))


def two_modes(values: Sequence[float]) -> Split | None:
    """Return the two groups that values come in; None if they come in one."""
    split = best_split(values)
    return split if split and split.squares < _share() * _squares(values) else None


def modes_explain(before: Sequence[float], after: Sequence[float]) -> bool:
    """Tell whether two groups that cut across the sides tell the values apart far better."""
    both = [*before, *after]
    split = best_split(both)
    if split is None:
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
