"""Whether the first launch of a program took longer than later ones, because it filled caches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perfpipe.analysis.distributions import student_quantile
from perfpipe.analysis.gate.judging import log_variance
from perfpipe.analysis.gate.limits import Limits
from perfpipe.analysis.gate.sides import WALL, Key, Side, own_time
from perfpipe.runrecord import TaskResult
from perfpipe.units import format_ns

#: Share of programs without a first-run effect for which one is reported.
_ALPHA = 0.01


class _Effect(NamedTuple):
    """The excess of a first launch as a logarithm, and the times behind it, ns."""

    excess: float
    arm: str
    label: str
    part: str
    first_ns: float
    later_ns: float

    @property
    def told(self) -> str:
        """A sentence on the arm, without a capital letter."""
        what = "the program" if self.part == WALL else "an iteration"
        where = "" if self.label in ("", "-") else f" ({self.label})"
        return (
            f"{what} of arm {self.arm}{where} took {format_ns(self.first_ns)} in the first launch "
            f"and {format_ns(self.later_ns)} in later launches"
        )


def first_run_effect(
    arms: Sequence[tuple[str, Side, Sequence[TaskResult]]], labels: Sequence[str], limits: Limits
) -> str:
    """Return a sentence on the largest first-run effect of each arm; empty without one.

    Each arm has its name, its side without the first launches, and the result of the first launch
    of each configuration.  A first launch is longer if it exceeds the threshold for changes and the
    prediction interval for a further launch (1 % over all of them), with the scatter of all arms.
    """
    tests = sum(len(first) for *_, first in arms)
    found = [effect for arm in arms for effect in _effects(arm, arms, labels, limits, tests)]
    if not found:
        return ""
    largest = {effect.arm: effect for effect in sorted(found)}
    told = "; ".join(largest[arm].told for arm in sorted(largest))
    return (
        f"{told[0].upper()}{told[1:]}; the first launch of an arm does not count (typical causes: "
        "cold caches, compilation, idle clocks)"
    )


def _effects(
    arm: tuple[str, Side, Sequence[TaskResult]],
    arms: Sequence[tuple[str, Side, Sequence[TaskResult]]],
    labels: Sequence[str],
    limits: Limits,
    tests: int,
) -> Iterator[_Effect]:
    name, own, first = arm
    for label, result in zip(labels, first, strict=False):
        if (timed := own_time(result)) is None:
            continue
        key = Key("", label, timed[0])
        later = own[key].medians
        several = [side[key].medians for _, side, _ in arms if len(side[key].medians) > 1]
        freedom = sum(len(times) - 1 for times in several)
        if not later or not freedom:
            continue
        squares = math.fsum((len(times) - 1) * log_variance(times) for times in several)
        error = math.sqrt(squares / freedom * (1 + 1 / len(later)))
        excess = math.log(timed[1]) - statistics.fmean(math.log(time) for time in later)
        margin = student_quantile(freedom, 1 - _ALPHA / tests) * error
        if excess > max(margin, math.log1p(limits[key] / 100)):
            yield _Effect(excess, name, label, *timed, statistics.median(later))
