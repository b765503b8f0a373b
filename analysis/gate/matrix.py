"""Several configurations that are tested together: their scatter, and their mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from perfpipe.analysis.distributions import digamma, tetragamma, trigamma
from perfpipe.analysis.gate.judging import Scatter
from perfpipe.analysis.gate.sides import Measured

#: Fewest configurations whose scatter says anything about that of another one.
FEWEST = 3


def moderated(errors: Sequence[Scatter]) -> list[Scatter]:
    """Return squared errors that have learned from each other, as far as they are alike.

    With few runs the scatter of a configuration is a matter of chance.  Each error is the mean of
    its own and of the common one, weighted by degrees of freedom; those of the common one follow
    from how much the errors differ: without limit if not more than by chance, few if more (Smyth,
    Statistical Applications in Genetics and Molecular Biology 3, 2004, section 6).  Without scatter
    in one of them, or fewer than FEWEST, nothing changes.
    """
    if len(errors) < FEWEST or min(error.variance for error in errors) <= 0:
        return [*errors]
    halves = [error.freedom / 2 for error in errors]
    centred = [
        math.log(error.variance) - digamma(half) + math.log(half)
        for error, half in zip(errors, halves, strict=True)
    ]
    chance = statistics.fmean(trigamma(half) for half in halves)
    beyond = statistics.variance(centred) - chance
    middle = statistics.fmean(centred)
    total = math.fsum(error.freedom for error in errors)
    if beyond <= 0:
        return [Scatter(math.exp(middle), total)] * len(errors)
    half = _inverse_trigamma(beyond)
    common = Scatter(math.exp(middle + digamma(half) - math.log(half)), 2 * half)
    return [_weighted(error, common, total) for error in errors]


def _weighted(own: Scatter, common: Scatter, most: float) -> Scatter:
    """Return the mean of two squared errors, with at most some degrees of freedom."""
    freedom = own.freedom + common.freedom
    variance = (own.freedom * own.variance + common.freedom * common.variance) / freedom
    return Scatter(variance, min(freedom, most))


def _inverse_trigamma(value: float) -> float:
    """Return the number whose trigamma function has a positive value (Newton, as in Smyth)."""
    found = 0.5 + 1 / value
    for _ in range(50):
        own = trigamma(found)
        step = own * (1 - own / value) / tetragamma(found)
        found += step
        if -step / found < 1e-8:
            break
    return found


def mean_of(configurations: Sequence[Measured]) -> Measured | None:
    """Return the geometric mean of configurations in each run; None if runs lack some of them."""
    if len({len(own.medians) for own in configurations}) != 1:
        return None
    times = [
        math.exp(statistics.fmean(math.log(time) for time in of_run))
        for of_run in zip(*(own.medians for own in configurations), strict=True)
    ]
    unknown: list[float | None] = [None] * len(times)
    return Measured(times, [*times], [1] * len(times), unknown, [*unknown])
