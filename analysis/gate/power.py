"""The number of runs that a decision needs, and the smallest change that they can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfpipe.analysis.distributions import student_quantile
from perfpipe.analysis.gate.judging import log_variance

#: More runs than this are not proposed.
MOST_RUNS = 100

_ALPHA = 0.05

#: Points at which scatter is averaged over.
_POINTS = 400


def further_runs(before: Sequence[float], after: Sequence[float], limit: float) -> int | None:
    """Return how many more runs per side a decision needs, with the present scatter.

    A change beyond `limit`, a ratio - 1, needs an interval that excludes no change; a smaller one
    needs an interval within the limit.  None if no reasonable number suffices, or if a side has
    fewer than two runs, so that the scatter is unknown.
    """
    if min(len(before), len(after)) < 2:
        return None
    change, most = abs(_mean_log(after) - _mean_log(before)), math.log1p(limit)
    share, distance = (_ALPHA / 2, change) if change > most else (_ALPHA, most - change)
    variance = (log_variance(before) + log_variance(after)) / 2
    have = min(len(before), len(after))
    for count in range(have, MOST_RUNS + 1):
        if _quantile(count, share) * math.sqrt(2 * variance / count) <= distance:
            return max(count - have, 1)
    return None


def found_share(change: float, deviation: float, runs: int, limit: float) -> float:
    """Return how often alternating runs detect a slowdown, a ratio - 1.

    Each side has `runs` runs whose logarithms are normal with some deviation.  An estimate counts
    beyond `limit` if its interval excludes no change, which for a given scatter of the runs is a
    threshold; averaged over the scatter that they may show.
    """
    import numpy as np
    from scipy.special import chdtri, ndtr

    freedom = 2 * runs - 2
    if freedom < 1:
        return 0.0
    error = deviation * math.sqrt(2 / runs)
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    seen = error * np.sqrt(chdtri(freedom, shares) / freedom)
    least = np.maximum(math.log1p(limit), _quantile(runs, _ALPHA / 2) * seen)
    return float(np.mean(ndtr((math.log1p(change) - least) / error)))


def detectable(deviation: float, runs: int, limit: float = 0, power: float = 0.95) -> float:
    """Return the smallest slowdown, a ratio - 1, that `runs` runs per side detect with a power."""
    if runs < 2:
        return math.inf
    if not deviation:
        return limit
    low, high = limit, limit + 1e-6
    while found_share(high, deviation, runs, limit) < power:
        low, high = high, 2 * high + deviation
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        enough = found_share(middle, deviation, runs, limit) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _quantile(runs: int, share: float) -> float:
    return student_quantile(2 * runs - 2, 1 - share)


def _mean_log(times: Sequence[float]) -> float:
    return math.fsum(math.log(time) for time in times) / len(times)
