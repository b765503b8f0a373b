"""Outliers among runs, and a test that they do not disturb.

A single run that another program slowed by half widens Welch's interval so much that no change is
found.  The estimate of Hodges and Lehmann (Annals of Mathematical Statistics 34, 1963) is the
median of the differences between each run of one side and each of the other, and its interval is
that of the exact test of Mann and Whitney (Annals of Mathematical Statistics 18, 1947).
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from perfpipe.analysis.distributions import normal, normal_quantile
from perfpipe.analysis.gate.judging import WIDEST, Change, resolved
from perfpipe.analysis.gate.modes import modes_explain
from perfpipe.analysis.thresholds import thresholds

#: Median of the absolute values of a standard normal variable, inverted.
_MAD = 1.4826

#: From this product of the numbers of runs on, the distribution of the test is normal.
_MANY = 2500


def outlying(before: Sequence[float], after: Sequence[float], resolution: float = 0) -> bool:
    """Return whether a run lies far from the median of its side, by the scatter of all runs.

    The difference between the sides has no part in it.
    """
    rest = []
    for side in (before, after):
        logs = [math.log(time) for time in side]
        middle = statistics.median(logs)
        rest += [abs(log - middle) for log in logs]
    scale = max(_MAD * statistics.median(rest), resolved(before, after, resolution))
    return max(rest) > thresholds()["compare.outlier_mads"] * scale


def can_decide(before: Sequence[float], after: Sequence[float], level: float) -> bool:
    """Return whether a rank test of that many runs can find a change at a two-sided level."""
    count = len(before) + len(after)
    return level * math.comb(count, len(before)) >= 2


def rank_change(
    before: Sequence[float], after: Sequence[float], resolution: float, alpha: float
) -> Change:
    """Return the shift of Hodges and Lehmann between positive times, with the exact rank test.

    As change_of; differences that `resolution` does not show count against a change.
    """
    logs = [math.log(time) for time in before], [math.log(time) for time in after]
    shifts = sorted(other - one for one in logs[0] for other in logs[1])
    floor = resolved(before, after, resolution)
    change = statistics.median(shifts)
    above = sum(shift > floor for shift in shifts)
    below = sum(shift < -floor for shift in shifts)
    counts = len(before), len(after)
    p = min(1.0, 2 * _chance(*counts, len(shifts) - max(above, below)))
    low, high = _interval(shifts, counts, alpha / 2)
    ends = _interval(shifts, counts, alpha)
    return Change(
        math.expm1(change),
        math.expm1(min(low, change - floor)),
        math.expm1(max(high, change + floor)),
        p,
        math.expm1(max(abs(change) + floor, *map(abs, ends))),
        # A few slow runs are outliers and no mode.
        modes_explain(*logs, least_share=thresholds()["compare.outlier_share"]),
        outliers=True,
    )


def _interval(
    shifts: Sequence[float], counts: tuple[int, int], share: float
) -> tuple[float, float]:
    """Return the ends of an interval that the true shift exceeds on each side in a share."""
    rank = _rank(*counts, share)
    return (shifts[rank - 1], shifts[-rank]) if rank else (-WIDEST, WIDEST)


def _rank(one: int, other: int, share: float) -> int:
    """Return how many of the smallest statistics of the test together have a chance of `share`."""
    if one * other > _MANY:
        middle, deviation = _normal(one, other)
        return max(0, math.floor(middle - 0.5 + deviation * normal_quantile(share)) + 1)
    return bisect_right(_chances(one, other), share * (1 + 1e-12))


def _chance(one: int, other: int, most: int) -> float:
    """Return the chance of a statistic of at most `most`, if the sides are alike."""
    if one * other > _MANY:
        middle, deviation = _normal(one, other)
        return normal((most + 0.5 - middle) / deviation)
    return _chances(one, other)[most]


def _normal(one: int, other: int) -> tuple[float, float]:
    """Return the mean and the deviation of the statistic."""
    return one * other / 2, math.sqrt(one * other * (one + other + 1) / 12)


@cache
def _chances(one: int, other: int) -> list[float]:
    """Return the chances of a statistic of at most 0, 1, 2 ..., if the sides are alike.

    The numbers of orders are the coefficients of Gauss's binomial: a product of 1 - x^(other + i)
    over 1 - x^i for each i up to `one`.
    """
    size = one * other + 1
    orders = [1] + [0] * (size - 1)
    for i in range(1, one + 1):
        for at in range(size - 1, other + i - 1, -1):
            orders[at] -= orders[at - other - i]
        for at in range(i, size):
            orders[at] += orders[at - i]
    return [count / math.comb(one + other, one) for count in accumulate(orders)]
