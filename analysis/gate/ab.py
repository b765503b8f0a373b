"""Rounds of an A/B test: the sides that they give, and when they may stop early.

Looking at the results after each round and stopping at the first p below 5 % would find a false
change far more often than in 5 % of cases.  So each look may only spend a part of the
5 %: the increments of the spending function of O'Brien and Fleming (Lan and DeMets, Biometrika 70,
1983), little at first and most at the last look.  The increments add up to 5 %, so the false alarms
of all looks add up to at most 5 %, whatever their dependence (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfpipe.analysis.distributions import normal, normal_quantile
from perfpipe.analysis.facts import MACHINE, MODEL, facts_of
from perfpipe.analysis.gate.compare.comparison import Compared
from perfpipe.analysis.gate.judging import timer_step
from perfpipe.analysis.gate.sides import (
    Key,
    Measured,
    Side,
    clocks_of,
    energies_of,
    no_energy,
    own_time,
)
from perfpipe.runrecord import TaskResult


@dataclass(frozen=True)
class Round:
    """The results of an arm in a round, one per configuration; `turn` counts launches."""

    turn: int
    results: tuple[TaskResult, ...]


def side_of_rounds(name: str, rounds: Sequence[Round], labels: Sequence[str]) -> Side:
    """Return the side of an arm: one time and energy per round and configuration.

    `labels` name the configurations, which may have different names in the two arms.
    """
    measured: dict[Key, Measured] = {}
    for one in rounds:
        for label, result in zip(labels, one.results, strict=True):
            if (timed := own_time(result)) is None:
                continue
            part, time = timed
            own = measured.setdefault(Key("", label, part), Measured())
            own.medians.append(time)
            own.totals.append(time)
            own.launches.append(1)
            sm_mhz, memory_mhz = clocks_of(result.gpu_state)
            own.sm_mhz.append(sm_mhz)
            own.memory_mhz.append(memory_mhz)
            for part, joules in energies_of(result):
                energies = measured.setdefault(Key("", label, part), Measured())
                energies.medians.append(joules)
                energies.launches.append(1)
    seen = [time * 1e6 for one in rounds for result in one.results for time in result.times_ms]
    step = timer_step(seen)
    # Numbers instead of times: turns may follow one another within a second.
    began = tuple(f"{one.turn:09}" for one in rounds)
    timers = {} if step is None else {"": step}
    known = facts_of([one.results for one in rounds])
    models = frozenset(known.values(MACHINE, MODEL))
    lacks = no_energy(own for one in rounds for own in zip(labels, one.results, strict=True))
    return Side(measured, models, (name,), began, timers, facts=known, no_energy=lacks)


#: Rate of false alarms of all looks together.
ALPHA = 0.05

#: Rounds before the first look: fewer do not show the scatter.
FIRST_LOOK = 3


def spent(look: int, looks: int, alpha: float = ALPHA) -> float:
    """Return the level that look number `look` of `looks` may test at; the first is 1.

    The levels of all looks add up to `alpha`.

    >>> [round(spent(k, 3), 4) for k in (1, 2, 3)]
    [0.0007, 0.0157, 0.0336]
    """
    before = _spending((look - 1) / looks, alpha) if look > 1 else 0
    return _spending(look / looks, alpha) - before


def _spending(share: float, alpha: float) -> float:
    """Return how much of `alpha` may be spent at a share of the information."""
    return 2 * normal(normal_quantile(alpha / 2) / math.sqrt(share))


def level_after(
    rounds: int, most: int, *, early: bool = True, alpha: float = ALPHA
) -> float | None:
    """Return the level to test at after some rounds; None before the first look.

    Without `early` the only look is after the last round, and spends all.
    """
    first = min(FIRST_LOOK, most) if early else most
    if rounds < first:
        return None
    return spent(rounds - first + 1, most - first + 1, alpha)


def certain(endpoints: Iterable[Compared]) -> bool:
    """Return whether each endpoint is decided, so that further rounds are not needed."""
    verdicts = [pair.verdict for pair in endpoints]
    return bool(verdicts) and all(
        verdict in ("improved", "regressed", "same") for verdict in verdicts
    )
