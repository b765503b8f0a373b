"""How much of a delay reaches the time of a unit of work: the slope, its interval, and the slack.

A program is launched with several delays, in turns.  The slope is the time that a delay adds to a
unit, divided by the delay itself.  It is near 1 if the unit waits for what is delayed, and near 0
if other work hides it.  If a small delay is hidden and a larger one is not, the slope changes
between them: what is delayed has time to spare, its slack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

#: Share of intervals that contain the true value.
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A value and its interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        """Return the estimate of a multiple of the value."""
        return Estimate(factor * self.value, factor * self.low, factor * self.high)


@dataclass(frozen=True)
class Slopes:
    """The slope over all delays, and the slope between each two neighboring delays.

    `kink` is the last of these less the first one; None with two delays.
    """

    overall: Estimate
    parts: tuple[Estimate, ...]
    kink: Estimate | None

    @property
    def bends(self) -> bool:
        """Whether the slope certainly grows with the delay."""
        return self.kink is not None and self.kink.low > 0


def slopes_of(
    rounds: Sequence[Sequence[float]], delays: Sequence[float], confidence: float = CONFIDENCE
) -> Slopes:
    """Return the slopes of times that were measured in rounds, one time per delay in each.

    Delays ascend; times and delays have the same unit.  What all times of a round share, such as
    the clock of the GPU, does not count: the scatter is what is left after the means of rounds and
    of delays (an analysis of variance in blocks).  Raises ValueError with fewer than two rounds or
    delays.
    """
    if len(rounds) < 2 or len(delays) < 2 or any(len(own) != len(delays) for own in rounds):
        raise ValueError("a slope needs two rounds of two delays")
    if not all(before < after for before, after in pairwise(delays)):
        raise ValueError("delays must ascend")
    means = [fmean(column) for column in zip(*rounds, strict=True)]
    mean = fmean(means)
    rest = math.fsum(
        (time - fmean(own) - at + mean) ** 2
        for own in rounds
        for time, at in zip(own, means, strict=True)
    )
    freedom = (len(rounds) - 1) * (len(delays) - 1)
    scatter = math.sqrt(rest / freedom / len(rounds)) * _quantile(freedom, confidence)

    def estimate(weights: Sequence[float]) -> Estimate:
        value = math.fsum(weight * at for weight, at in zip(weights, means, strict=True))
        wide = scatter * math.hypot(*weights)
        return Estimate(value, value - wide, value + wide)

    count = len(delays)
    middle = fmean(delays)
    spread = math.fsum((delay - middle) ** 2 for delay in delays)
    steps = [_step(place, delays) for place in range(count - 1)]
    kink = [after - before for before, after in zip(steps[0], steps[-1], strict=True)]
    return Slopes(
        overall=estimate([(delay - middle) / spread for delay in delays]),
        parts=tuple(map(estimate, steps)),
        kink=estimate(kink) if count > 2 else None,
    )


def _step(place: int, delays: Sequence[float]) -> list[float]:
    """Return the weights of the slope between a delay and the next one."""
    width = delays[place + 1] - delays[place]
    return [(own == place + 1) / width - (own == place) / width for own in range(len(delays))]


def _quantile(freedom: int, confidence: float) -> float:
    """Return the quantile of Student's distribution for a two-sided interval."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))
