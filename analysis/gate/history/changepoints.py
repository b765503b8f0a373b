"""Finds changes of level in a history: kernel change points, penalized.

The cost of a segment is that of ruptures' `rbf`: its length minus the mean of the Gaussian kernel
over its pairs, summed over rows, with the median squared distance of all pairs as bandwidth.  The
segments are those of least cost with a penalty for each, at least two points long (PELT with
min_size=2 and jump=1; the default of 5 only looks at multiples of 5).  ruptures finds them if it is
installed; else dynamic programming here finds the same optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

#: Fewest points of a history to search for changes, and the most (newest) points to search.
FEWEST, MOST = 12, 1000

#: Points of the shortest segment.
SHORTEST = 2

#: Cost that an additional segment must save, from a number of points on.
PENALTY, _MANY = 10.0, 80

#: The same with no points.
_LEAST_PENALTY = 2.5


class Segments(NamedTuple):
    """Starts of all segments except the first, as point numbers; the method, or why there is none.

    `searched` is False if there are too few points to search.
    """

    starts: tuple[int, ...]
    method: str
    searched: bool


def segments_of(values: Sequence[float]) -> Segments:
    """Return the segments of a history of values, such as logarithms of times."""
    if len(values) < FEWEST:
        return Segments((), f"not searched: fewer than {FEWEST} points", False)
    skipped = max(0, len(values) - MOST)
    recent = values[skipped:]
    penalty = penalty_of(len(recent))
    try:
        starts = _by_ruptures(recent, penalty)
        method = "PELT with a Gaussian kernel (ruptures)"
    except ImportError:
        starts = _by_programming(recent, penalty)
        method = (
            "PELT's optimum with a Gaussian kernel, by dynamic programming (ruptures is not "
            "installed: run pip install ruptures in perfpipe's environment)"
        )
    if skipped:
        method += f", the newest {MOST} points"
    return Segments(tuple(skipped + start for start in starts), method, True)


def penalty_of(count: int) -> float:
    """Return the penalty for a number of points: fewer points cannot save as much.

    With it, 1 % of histories without a change get a false one if points are autocorrelated by one
    half (AR(1)), and hardly any if they are independent.
    """
    return min(PENALTY, _LEAST_PENALTY + (PENALTY - _LEAST_PENALTY) * count / _MANY)


def _by_ruptures(values: Sequence[float], penalty: float) -> list[int]:
    import numpy as np
    import ruptures

    signal = np.asarray(values, dtype=float).reshape(-1, 1)
    search = ruptures.Pelt(model="rbf", min_size=SHORTEST, jump=1).fit(signal)
    return [int(end) for end in search.predict(pen=penalty)[:-1]]


def _by_programming(values: Sequence[float], penalty: float) -> list[int]:
    """Return the starts of least cost, by dynamic programming over the points."""
    import numpy as np

    sums = _kernel_sums(np.asarray(values, dtype=float))
    count = len(values)
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(count + 1, dtype=int)
    for end in range(SHORTEST, count + 1):
        starts = np.arange(end - SHORTEST + 1)
        lengths = end - starts
        inside = sums[end, end] - sums[starts, end] - sums[end, starts] + sums[starts, starts]
        costs = best[starts] + lengths - inside / lengths + penalty
        before[end] = int(np.argmin(costs))
        best[end] = costs[before[end]]
    found: list[int] = []
    at = int(before[count])
    while at > 0:
        found.insert(0, at)
        at = int(before[at])
    return found


def _kernel_sums(values: Array) -> Array:
    """Return the sums of the kernel over all pairs of the first points, as ruptures has it."""
    import numpy as np

    squares = (values[:, None] - values[None, :]) ** 2
    median = float(np.median(squares[np.triu_indices(len(values), 1)]))
    # ruptures keeps exponents within these bounds.
    kernel = np.exp(-np.clip(squares / median if median else squares, 1e-2, 1e2))
    np.fill_diagonal(kernel, 1.0)
    sums = np.zeros((len(values) + 1, len(values) + 1))
    sums[1:, 1:] = kernel.cumsum(axis=0).cumsum(axis=1)
    return sums
