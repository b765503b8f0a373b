"""The number of runs that a decision needs, and the smallest change that they can show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from perfpipe.analysis.distributions import normal, normal_quantile, student_quantile
from perfpipe.analysis.gate.judging import log_variance

#: More runs than this are not proposed.
MOST_RUNS = 100

_ALPHA = 0.05

#: Share of comparisons that a number of runs should decide, and confidence that scatter is less.
_POWER, _SURE = 0.8, 0.8

#: Points at which scatter is averaged over, and those without NumPy.
_POINTS, _FEW_POINTS = 400, 20


def further_runs(
    before: Sequence[float],
    after: Sequence[float],
    limit: float,
    *,
    least: float | None = None,
    level_at: Callable[[int], float] = lambda _: _ALPHA,
) -> int | None:
    """Return how many more runs per side would probably decide.

    With so many runs in all, a share of 80 % of comparisons is decided if the true change is the
    present estimate, and the scatter the upper end of its one-sided 80 % confidence interval.  Over
    pairs of five runs that are not decided, with true changes of 0, 3 and 5 % and a scatter of 1, 2
    and 3 %, about 90 % of comparisons with the proposed number are decided.  The share is lower if
    the true change is 0 and the scatter so large that no number up to 100 is enough.

    `limit` is the ratio - 1 that sides must be within to be the same, `least` that which a change
    must exceed (default: `limit`); `level_at` is the level of the last test of a number of runs.
    None if no reasonable number suffices, or if a side has fewer than two runs, so that the scatter
    is unknown.
    """
    have = min(len(before), len(after))
    if have < 2:
        return None
    freedom = len(before) + len(after) - 2
    variance = (log_variance(before) + log_variance(after)) / 2
    variance *= freedom / _chi_square(freedom, 1 - _SURE)
    change = abs(_mean_log(after) - _mean_log(before))
    ends = math.log1p(limit), math.log1p(limit if least is None else least)
    for count in range(have + 1, MOST_RUNS + 1):
        if _decided_share(change, variance, count, ends, level_at(count)) >= _POWER:
            return count - have
    return None


def _decided_share(
    change: float, variance: float, runs: int, ends: tuple[float, float], level: float
) -> float:
    """Return how often alternating runs are decided: changed or the same, both at a level.

    As found_share, averaged over the scatter that the runs may show.  The change, and the `ends`
    that the same must be within and a change must exceed, are logarithms.
    """
    within, least = ends
    freedom = 2 * runs - 2
    error = math.sqrt(2 * variance / runs)
    if not error:
        return float(change > least or change <= within)
    changed, same = _quantile(runs, level / 2), _quantile(runs, level)
    total = 0.0
    for at in range(_FEW_POINTS):
        seen = error * math.sqrt(_chi_square(freedom, (at + 0.5) / _FEW_POINTS) / freedom)
        beyond, room = max(least, changed * seen), within - same * seen
        total += normal((change - beyond) / error) + normal((-change - beyond) / error)
        if room > 0:
            total += normal((room - change) / error) - normal((-room - change) / error)
    return total / _FEW_POINTS


def _chi_square(freedom: int, share: float) -> float:
    """Return a quantile of the chi-square distribution (Wilson and Hilferty, PNAS 17, 1931)."""
    part = 2 / (9 * freedom)
    return freedom * max(1 - part + normal_quantile(share) * math.sqrt(part), 0) ** 3


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
