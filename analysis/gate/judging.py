"""Whether times changed: the statistics of comparisons.

The sample is the run, not the launch: launches of one process are not independent, so a test on
pooled launches reports most unchanged kernels as changed.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from perfpipe.analysis.distributions import student, student_quantile
from perfpipe.analysis.gate.modes import modes_explain
from perfpipe.analysis.thresholds import thresholds

#: Why a change with one run on a side has no verdict.
ONE_RUN = "only one run on a side, so the run-to-run variation is unknown"

#: Steps of timers that are searched for in durations, ns: powers of two, and whole microseconds.
TIMER_STEPS = (1024, 1000, 512, 256, 128, 64, 32, 16, 8)

#: Longer durations do not show a step: the clocks of the GPU and the host drift apart meanwhile.
LONGEST_WITH_STEPS_NS = 100_000

#: Least number of distinct durations to detect a step, and the share of them that lie on it.
_FEWEST_DURATIONS, _SHARE_ON_STEPS = 8, 0.9

#: Largest margin of a logarithm, beyond which the exponential function overflows.
WIDEST = 300.0


class Change(NamedTuple):
    """A change in time as ratio - 1, its 95 % interval and p-value; None with one run on a side.

    `within` is the bound on its size by two one-sided tests (TOST).  `modes` says that both sides
    have runs in two modes, fast and slow, `outliers` that a rank test found it, because of
    outliers.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    within: float | None = None
    modes: bool = False
    outliers: bool = False

    @property
    def interval(self) -> str:
        """The interval as text, in %; empty with one run on a side."""
        return "" if self.low is None or self.high is None else ends(self.low, self.high)


def ends(low: float, high: float) -> str:
    """Return the ends of an interval of ratios - 1 as text.

    >>> ends(-0.01, 0.025)
    '-1.0 to +2.5 %'
    """
    return f"{100 * low:+.1f} to {100 * high:+.1f} %"


class Scatter(NamedTuple):
    """A variance of logarithms of times, and its degrees of freedom."""

    variance: float
    freedom: float


#: Share of unchanged endpoints that a single test may report as changed.
ALPHA = 0.05


def change_of(
    before: Sequence[float],
    after: Sequence[float],
    resolution: float = 0,
    alpha: float = ALPHA,
    scatter: Scatter | None = None,
    error: Scatter | None = None,
) -> Change:
    """Return Welch's interval and test on the difference of mean logarithms of positive times.

    The interval covers the true change in all but a share `alpha` of cases, and `within` is
    exceeded in no more than that.  Times are multiples of `resolution`: the same time can be read
    as either of two neighbors in every run, so the interval reaches at least one step to either
    side, and the scatter of a side's runs is at least that of rounding.  With a `scatter` from more
    runs than those of the two sides it is at least that, and has its degrees of freedom.  An
    `error` is used as the squared error of the difference.
    """
    logs = [math.log(time) for time in before], [math.log(time) for time in after]
    change = statistics.fmean(logs[1]) - statistics.fmean(logs[0])
    error = error or error_of(before, after, resolution, scatter)
    if error is None:
        return Change(math.expm1(change))
    margin, one_sided, p = _margins(change, math.sqrt(error.variance), error.freedom, alpha)
    floor = resolved(before, after, resolution)
    if abs(change) <= floor:
        p = 1.0
    margin, one_sided = (min(max(own, floor), WIDEST) for own in (margin, one_sided))
    return Change(
        math.expm1(change),
        math.expm1(change - margin),
        math.expm1(change + margin),
        p,
        math.expm1(abs(change) + one_sided),
        modes_explain(*logs),
    )


def error_of(
    before: Sequence[float],
    after: Sequence[float],
    resolution: float = 0,
    scatter: Scatter | None = None,
) -> Scatter | None:
    """Return the squared error of the difference of mean logarithms, as described in change_of.

    None with one run on a side, and no `scatter`.
    """
    if scatter is None and min(len(before), len(after)) < 2:
        return None
    known = scatter.variance if scatter else 0
    variances = [
        max(log_variance(side) if len(side) > 1 else 0, _step(side, resolution) ** 2 / 12, known)
        for side in (before, after)
    ]
    counts = len(before), len(after)
    errors = [variance / count for variance, count in zip(variances, counts, strict=True)]
    return Scatter(sum(errors), scatter.freedom if scatter else _welch(errors, counts))


def resolved(before: Sequence[float], after: Sequence[float], resolution: float) -> float:
    """Return the least difference of logarithms that times with a resolution can show."""
    # The last digits of logarithms must not decide.
    return math.log1p(max(_step(side, resolution) for side in (before, after))) * (1 + 1e-9)


def _step(times: Sequence[float], resolution: float) -> float:
    """Return a resolution as a share of the geometric mean of times."""
    return resolution / math.exp(statistics.fmean(math.log(time) for time in times))


def log_variance(times: Sequence[float]) -> float:
    """Return the variance of the logarithms of at least two positive times."""
    return _variance([math.log(time) for time in times])


def _variance(values: Sequence[float]) -> float:
    """Return the variance of at least two values; `statistics` uses fractions, which are slow."""
    mean = statistics.fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _welch(errors: Sequence[float], counts: Sequence[int]) -> float:
    """Return the degrees of freedom of a difference of means with these squared errors."""
    if not sum(errors):
        return math.inf
    # Welch-Satterthwaite: the two sides may have different variances.
    return sum(errors) ** 2 / sum(
        error**2 / (count - 1) for error, count in zip(errors, counts, strict=True)
    )


def _margins(
    change: float, error: float, freedom: float, alpha: float
) -> tuple[float, float, float]:
    """Return the margins of two-sided and one-sided intervals, and the two-sided p-value."""
    if not error:
        return 0, 0, float(change == 0)
    quantiles = (-student_quantile(freedom, share) for share in (alpha / 2, alpha))
    two_sided, one_sided = (quantile * error for quantile in quantiles)
    return two_sided, one_sided, 2 * student(freedom, -abs(change) / error)


def false_discovery(p_values: Sequence[float]) -> list[float]:
    """Return Benjamini and Hochberg's q for each p: the share of false ones among all up to it.

    At most 5 % of the changes with q below 5 % are expected to be false.  This holds for
    independent tests and for tests that a slow run moves together.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    found = [1.0] * len(p_values)
    least = 1.0
    for rank in range(len(order), 0, -1):
        at = order[rank - 1]
        least = min(least, p_values[at] * len(order) / rank)
        found[at] = least
    return found


def verdict_of(
    change: Change,
    q: float | None,
    *,
    interleaved: bool = True,
    alpha: float = ALPHA,
    limit_pct: float | None = None,
) -> str:
    """Return the verdict on a change; `q` is its p-value, adjusted for multiple tests.

    `regressed` or `improved` if q is below `alpha`, the change exceeds the threshold (that of drift
    if the runs of the two sides did not alternate), and no modes explain it.  `same` if two
    one-sided tests show that it is within the threshold, `unreplicated` with a single run on a
    side, else `inconclusive`.  `limit_pct` replaces the default threshold.
    """
    if q is None or change.within is None:
        return "unreplicated"
    limit = thresholds()["compare.change_pct"] if limit_pct is None else limit_pct
    least = limit if interleaved else max(limit, thresholds()["compare.drift_pct"])
    size = abs(math.log1p(change.ratio))
    if q < alpha and size > math.log1p(least / 100):
        if change.modes:
            return "inconclusive"
        return "regressed" if change.ratio > 0 else "improved"
    return "same" if change.within <= limit / 100 else "inconclusive"


def timer_step(durations: Iterable[float]) -> int | None:
    """Return the timer step behind durations, ns; None with too few durations.

    That is the largest of TIMER_STEPS that divides them within a nanosecond: host time is derived
    from GPU time, at a rate that is not exactly one.  1 if they have no step.
    """
    seen = {round(duration) for duration in durations if 0 < duration < LONGEST_WITH_STEPS_NS}
    if len(seen) < _FEWEST_DURATIONS:
        return None
    for step in TIMER_STEPS:
        beside = sum(min(duration % step, -duration % step) <= 1 for duration in seen)
        if beside >= _SHARE_ON_STEPS * len(seen):
            return step
    return 1


def interleaved(before: Collection[str | None], after: Collection[str | None]) -> bool | None:
    """Return whether runs of two sides alternated, from their start times.

    They did if the side changes at least as often as the smaller side has runs: A B B A, A B A B.
    None if the order is unknown.
    """
    known = [(time, 0) for time in before if time] + [(time, 1) for time in after if time]
    times = {time for time, _ in known}
    if len(times) < len(before) + len(after):
        return None
    sides = [side for _, side in sorted(known)]
    turns = sum(a != b for a, b in itertools.pairwise(sides))
    return turns >= min(len(before), len(after))
