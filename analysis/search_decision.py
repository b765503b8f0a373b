"""What a search may conclude: paired speedups, which of them are proven, and convergence.

The sample is a launch: in it, candidate and baseline alternate, each in a process of its own.  The
logarithm of baseline / candidate, averaged over the cases, is free of what both share, such as
clocks and other users of the machine.  If nothing differs between the two, its distribution is
symmetric about 0, whatever the noise is.

The best of many measurements overstates the gain, so that a gain is proven only on fresh launches
of a few finalists (`proven`), at a level that is divided by their number and by later looks.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from perfpipe.analysis.distributions import student_quantile
from perfpipe.analysis.thresholds import thresholds
from perfpipe.searchrecord import INCUMBENT, Attempt, Confirmation

#: Share of searches without a gain that may claim one, over all looks: half of it on the first.
FALSE_GAINS = 0.01

#: Level of intervals within a search, which guide it but prove nothing.
GUIDING = 0.05

#: Most finalists that are confirmed.
FINALISTS = 3

#: Launches beyond which the exact test samples no more sign patterns than it can enumerate.
_ENUMERATED = 16


@dataclass(frozen=True)
class Speedup:
    """A speedup with its interval; None for the ends with a single launch."""

    ratio: float
    low: float | None
    high: float | None
    launches: int

    @property
    def text(self) -> str:
        """The speedup in words: 1.250 x (1.200 to 1.302)."""
        if self.low is None or self.high is None:
            return f"{self.ratio:.3f} x (one launch)"
        return f"{self.ratio:.3f} x ({self.low:.3f} to {self.high:.3f})"


class Paired(Protocol):
    """Times of a case beside a baseline, as in `Times` and in the scores of a judgement."""

    @property
    def against(self) -> str: ...
    @property
    def candidate_ms(self) -> tuple[float, ...]: ...
    @property
    def baseline_ms(self) -> tuple[float, ...]: ...


def log_gains(attempt: Attempt, against: str) -> tuple[float, ...]:
    """Return the logarithm of the speedup of a candidate for each launch, as `gains_of` does."""
    return gains_of(attempt.times, against)


def gains_of(times: Iterable[Paired], against: str) -> tuple[float, ...]:
    """Return the logarithm of the speedup for each launch, averaged over the cases."""
    cases = [one for one in times if one.against == against]
    launches = min((len(one.candidate_ms) for one in cases), default=0)
    return tuple(
        statistics.fmean(math.log(one.baseline_ms[at] / one.candidate_ms[at]) for one in cases)
        for at in range(launches)
    )


def speedup_of(gains: Sequence[float], level: float = GUIDING) -> Speedup | None:
    """Return the speedup with Student's interval at 1 - `level`; None without launches."""
    if not gains:
        return None
    mean = statistics.fmean(gains)
    if len(gains) < 2:
        return Speedup(math.exp(mean), None, None, 1)
    margin = _margin(gains, level)
    # A wide interval must not overflow.
    low, high = (math.exp(max(-300.0, min(300.0, mean + by))) for by in (-margin, margin))
    return Speedup(math.exp(mean), low, high, len(gains))


def _margin(gains: Sequence[float], level: float) -> float:
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return -student_quantile(len(gains) - 1, level / 2) * error


def sign_flip_p(gains: Sequence[float]) -> float:
    """Return the exact one-sided p-value of a positive mean under symmetry about 0.

    It is the share of all sign patterns whose sum is at least that found (R. A. Fisher, The Design
    of Experiments, 1935, section 21).  Of more than 16 gains, neighbors are added in pairs first,
    which keeps the symmetry.
    """
    sums = [*gains]
    while len(sums) > _ENUMERATED:
        sums = [a + b for a, b in itertools.zip_longest(sums[::2], sums[1::2], fillvalue=0.0)]
    found = math.fsum(sums)
    slack = 1e-12 * math.fsum(map(abs, sums))
    totals = [0.0]
    for one in sums:
        totals = [total + sign for total in totals for sign in (one, -one)]
    return sum(total >= found - slack for total in totals) / len(totals)


@dataclass(frozen=True)
class Decision:
    """What a confirmation shows: speedups of the finalists, corrected for all of them.

    `winner` is the finalist whose gain is proven, None if none is; `leader` is the best in any
    case, None without finalists.  `speedups` has the best first.  `level` is that of each interval,
    `tested` how many finalists it was divided by.
    """

    speedups: Mapping[str, Speedup]
    winner: str | None
    leader: str | None
    level: float
    tested: int
    least_pct: float

    @property
    def best(self) -> str | None:
        """The winner, else the leader."""
        return self.winner or self.leader

    @property
    def sure_pct(self) -> float:
        """The probability with which all intervals together hold, %."""
        return 100 * (1 - self.level * self.tested)


def proven(gains: Mapping[str, Sequence[float]], look: int = 0, tested: int = 0) -> Decision:
    """Return which gain is proven by fresh launches; `gains` are logarithms by finalist.

    A gain is proven if the lower end of its interval exceeds the smallest change that counts, and
    the exact test agrees, which does not need normal noise.  Both are at a level that is divided by
    the number of finalists (`tested`, if some dropped out), and halved for each earlier `look`: all
    looks together claim a false gain in at most FALSE_GAINS of searches.
    """
    count = max(1, tested, len(gains))
    # One-sided: half of all false gains are allowed at the first look, a quarter at the second ...
    one_sided = FALSE_GAINS / 2 ** (look + 1) / count
    least_pct = thresholds()["compare.change_pct"]
    found = [
        (name, speedup)
        for name, own in gains.items()
        if (speedup := speedup_of(own, 2 * one_sided)) is not None
    ]
    speedups = dict(sorted(found, key=lambda pair: rank(pair[1]), reverse=True))
    sure = (
        name
        for name, speedup in speedups.items()
        if (speedup.low or 0.0) > 1 + least_pct / 100 and sign_flip_p(gains[name]) <= one_sided
    )
    leader = next(iter(speedups), None)
    return Decision(speedups, next(sure, None), leader, 2 * one_sided, count, least_pct)


def decided(confirmation: Confirmation) -> Decision:
    """Return what a confirmation shows."""
    return proven(confirmation.gains(), confirmation.look, len(confirmation.finalists))


def rank(speedup: Speedup) -> tuple[bool, float]:
    """Return the key by which candidates are ranked: the lower end of the interval."""
    return speedup.low is not None, speedup.low if speedup.low is not None else speedup.ratio


def ranked(attempts: Sequence[Attempt], baseline: str) -> list[tuple[Attempt, Speedup]]:
    """Return the correct and timed candidates with their speedups, the best first."""
    found = [
        (one, speedup)
        for one in attempts
        if one.correct and (speedup := speedup_of(log_gains(one, baseline))) is not None
    ]
    return sorted(found, key=lambda pair: (*rank(pair[1]), -pair[0].generation), reverse=True)


@dataclass(frozen=True)
class Convergence:
    """Whether the last generation could still gain: `most_pct` is a bound on it, if known."""

    proven: bool
    why: str
    most_pct: float | None = None


def convergence(attempts: Sequence[Attempt]) -> Convergence:
    """Return whether the last generation shows that the search has converged.

    It has if no candidate of the last generation can be faster than the incumbent by more than the
    drift of the gate: at the upper ends of the intervals of their speedups over the incumbent,
    which ran in the same launches, at a level that is divided by the number of candidates.
    """
    last = max((one.generation for one in attempts), default=0)
    own = [one for one in attempts if one.generation == last]
    gains = [found for one in own if one.correct and (found := log_gains(one, INCUMBENT))]
    if last <= 1 or not gains:
        why = (
            "one generation cannot show it"
            if last <= 1
            else f"no candidate of generation {last} was timed against the best before it"
        )
        return Convergence(False, why)
    bounds = [speedup_of(one, 2 * GUIDING / len(gains)) for one in gains]
    if any(bound is None or bound.high is None for bound in bounds):
        return Convergence(False, "one launch each has no interval")
    most = 100 * (max(bound.high or 0.0 for bound in bounds if bound) - 1)
    limit = thresholds()["compare.drift_pct"]
    said = f"generation {last} may be up to {max(0.0, most):.1f} % faster than the best before it"
    return Convergence(most <= limit, said, most)
