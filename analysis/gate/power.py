"""How many runs a decision needs, and how small a change they can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.judging import log_variance

#: More runs than this are no advice.
MOST_RUNS = 100

_ALPHA = 0.05


def further_runs(before: Sequence[float], after: Sequence[float], limit: float) -> int | None:
    """Return how many more runs a side needs until the change is told from `limit`, a ratio - 1.

    That is, until the 95 % interval is as short as the change is far from the limit, if runs
    scatter as they do now.  None where no reasonable number does, or where a side has fewer than
    two runs to tell the scatter from.
    """
    if min(len(before), len(after)) < 2:
        return None
    change = _mean_log(after) - _mean_log(before)
    distance = abs(abs(change) - math.log1p(limit))
    have = min(len(before), len(after))
    for count in range(have, MOST_RUNS + 1):
        if _margin(before, after, count) <= distance:
            return max(count - have, 1)
    return None


def detectable(deviation: float, runs: int, power: float = 0.95) -> float:
    """Return the smallest change, a ratio - 1, that `runs` runs a side show with some power.

    `deviation` is the standard deviation of a run's logarithm.  Of the noncentral t distribution,
    the usual approximation: the quantiles of the test and of the power add up.
    """
    from scipy.special import stdtrit

    freedom = 2 * runs - 2
    if freedom < 1:
        return math.inf
    quantiles = stdtrit(freedom, 1 - _ALPHA / 2) + stdtrit(freedom, power)
    return math.expm1(float(quantiles) * deviation * math.sqrt(2 / runs))


def _margin(before: Sequence[float], after: Sequence[float], count: int) -> float:
    """Return half of the 95 % interval if each side had `count` runs that scatter as now."""
    from scipy.special import stdtrit

    variance = (log_variance(before) + log_variance(after)) / 2
    return float(stdtrit(2 * count - 2, 1 - _ALPHA / 2)) * math.sqrt(2 * variance / count)


def _mean_log(times: Sequence[float]) -> float:
    return math.fsum(math.log(time) for time in times) / len(times)
