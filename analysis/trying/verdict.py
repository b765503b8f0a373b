"""Whether a lever saves time: verdicts that hold for all levers, looks and the stack together.

A run tries many levers, looks at the times after each round, and reports the best.  Each of these
finds gains that do not exist, so a test at 5 % for each lever is wrong in one of two runs.  Here:

- ALPHA is the share of runs without any real gain in which a gain is reported.  It is divided among
  the levers that are not yet decided (Holm), and among the looks as in `perfpipe ab`.
- The scatter is that of all launches of the run together, if that is larger than that of the two
  arms.  Two or three launches of an arm may be alike by chance, above all where launches are in two
  modes, and all levers are compared with the same plain launches.  The scatter is at least that of
  the plain launches that come first, one after another, because noise with a period may be in step
  with the rounds.
- Arms are in a random order in each round, so noise with any period and drift hit all alike.
- The best of many levers is overestimated, so the gain of the stack is measured in fresh rounds.
  If no lever gains, there is no stack, so its test needs no share of ALPHA.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perfpipe.analysis.gate.ab import level_after
from perfpipe.analysis.gate.judging import Change, Scatter, change_of, log_variance
from perfpipe.analysis.thresholds import thresholds

#: Verdicts on a lever.
GAIN, NO_GAIN, SLOWER, INCONCLUSIVE = "gain", "no gain", "slower", "inconclusive"

#: Share of runs in which a gain is reported although no lever has one.
ALPHA = 0.05

#: Largest share for one lever, one-sided.  A few rounds with two arms may be in step with noise of
#: a period, one time in eight with three rounds, and only the size of a gain can rule that out.
MOST_PER_LEVER = 0.01

#: Smallest level that a look is worth.
_LEAST_LEVEL = 1e-9


class Judged(NamedTuple):
    """The time that a lever saves, % of plain and negative where slower; its interval; one-sided p.

    The interval has the level of the look: it excludes 0 where p is below the level.  It is None,
    as is p, where the scatter is unknown.
    """

    gain_pct: float
    low_pct: float | None
    high_pct: float | None
    p: float | None
    verdict: str


@dataclass(frozen=True)
class Schedule:
    """The levels of the looks at some levers in at most some rounds."""

    levers: int
    rounds: int

    def level(self, done: int, found: int = 0) -> float | None:
        """Return the one-sided level to test a lever at after `done` rounds; None if too early.

        `found` is the number of levers with a gain so far: their shares go to the others.
        """
        alpha = min(ALPHA / max(1, self.levers - found), MOST_PER_LEVER)
        shared = level_after(done, self.rounds)
        # The looks share alike, however many levers there are: few rounds can decide large gains.
        level = None if shared is None else shared * alpha / ALPHA
        return level if level and level >= _LEAST_LEVEL else None


def scatter_of(first: Sequence[float], arms: Iterable[Sequence[float]]) -> Scatter | None:
    """Return the scatter of launches: pooled over arms, and at least that of `first`.

    `first` are the times of plain launches one after another, without a launch that was slower
    because it filled caches; `arms` are the times of plain and of each lever in the rounds.  None
    if no arm has two launches.
    """
    known = [times for times in (first, *arms) if len(times) > 1]
    freedom = sum(len(times) - 1 for times in known)
    if not freedom:
        return None
    pooled = math.fsum((len(times) - 1) * log_variance(times) for times in known) / freedom
    own = log_variance(first) if len(first) > 1 else 0
    return Scatter(max(pooled, own), freedom)


def least_gain_pct(first: Sequence[float]) -> float:
    """Return the least gain that counts: the scatter of plain launches, or more."""
    own = 100 * math.sqrt(log_variance(first)) if len(first) > 1 else 0
    return max(own, thresholds()["trial.least_gain_pct"])


def judged(
    plain: Sequence[float],
    other: Sequence[float],
    *,
    alpha: float,
    limit_pct: float,
    scatter: Scatter | None = None,
) -> Judged:
    """Return how much time an arm saves, and the verdict at a one-sided level.

    `gain` and `slower` if the interval excludes no change, the change exceeds the limit, and no two
    modes explain it.  `no gain` if the lever can be dropped: a gain beyond the limit is unlikely
    (5 %, by this look alone).  Without a `scatter` it is that of the two arms, which is not enough
    where many levers are compared with the same plain launches.
    """
    scatter = scatter or scatter_of((), (plain, other))
    change = change_of(plain, other, alpha=2 * alpha, scatter=scatter)
    gain, low, high = _gain(change)
    if change.p is None or low is None or high is None:
        return Judged(gain, None, None, None, INCONCLUSIVE)
    p = change.p / 2 if gain > 0 else 1 - change.p / 2
    verdict = INCONCLUSIVE
    if not change.modes and min(p, 1 - p) < alpha and abs(gain) > limit_pct:
        verdict = GAIN if gain > 0 else SLOWER
    elif gain < limit_pct:
        most = _gain(change_of(plain, other, alpha=2 * ALPHA, scatter=scatter))[2]
        verdict = NO_GAIN if most is not None and most < limit_pct else INCONCLUSIVE
    return Judged(gain, low, high, p, verdict)


def confirmed(
    plain: Sequence[float],
    stack: Sequence[float],
    *,
    limit_pct: float,
    scatter: Scatter | None = None,
) -> Judged:
    """Return what a stack saves, with a 95 % interval.

    All launches are fresh: those that chose the levers of the stack overstate it.
    """
    return judged(plain, stack, alpha=ALPHA / 2, limit_pct=limit_pct, scatter=scatter)


def aa(plain: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the gain of plain over itself, and its 95 % interval, %.

    `plain` are times in the order of the launches, at least two.  Drift cancels: the launches are
    parted as A B A, or as A B B A if their number is even.  The interval is None with one launch.
    """
    even = len(plain) % 2 == 0
    second = [bool((at + at // 2) % 2 if even else at % 2) for at in range(len(plain))]
    sides = [[own for own, of in zip(plain, second, strict=True) if of is b] for b in (False, True)]
    if not all(sides):
        return 0.0, None, None
    # The two sides are one program: what lies between them is scatter, too.
    scatter = Scatter(log_variance(plain), len(plain) - 1)
    return _gain(change_of(sides[0], sides[1], scatter=scatter))


def order(round_: int, arms: Sequence[str], seed: int) -> list[str]:
    """Return the order of the arms in a round, which is random and the same for the same seed."""
    return random.Random(f"{seed} {round_}").sample(arms, len(arms))  # noqa: S311


def by_gain(levers: Mapping[str, Judged]) -> list[str]:
    """Return the levers with a gain, the largest first: the order in which they are stacked."""
    gains = {name: own.gain_pct for name, own in levers.items() if own.verdict == GAIN}
    return sorted(gains, key=lambda name: (-gains[name], name))


def adds(stack: Sequence[float], more: Sequence[float], limit_pct: float) -> bool:
    """Return whether a stack with one more lever saves enough over the stack to keep the lever.

    By the estimate alone: the lever has a gain of its own, and the stack is confirmed afterwards.
    """
    return _gain(change_of(stack, more))[0] > limit_pct


def drop_once(
    stack: Sequence[float], without: Mapping[str, Sequence[float]], limit_pct: float
) -> str | None:
    """Return the lever that a stack needs least, if it does not need the lever.

    `without` are the times of the stack without each of its levers.  Two levers may replace each
    other, so only one is dropped, and the others are measured again.
    """
    adding = {name: _gain(change_of(times, stack))[0] for name, times in without.items()}
    least = min(adding, key=adding.__getitem__, default=None)
    return least if least is not None and adding[least] <= limit_pct else None


def _gain(change: Change) -> tuple[float, float | None, float | None]:
    """Return the time that is saved with its interval, % of the time before."""
    low = None if change.high is None else -100 * change.high
    high = None if change.low is None else -100 * change.low
    return 0.0 - 100 * change.ratio, low, high
