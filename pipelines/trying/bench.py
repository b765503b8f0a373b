"""The launches of a trial within its budget: what they cost, and how the arms compare."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perfpipe.analysis.energy import Unknown, course_of
from perfpipe.analysis.trying.energy import unit_j
from perfpipe.analysis.trying.pace import Pace, Window, window
from perfpipe.errors import TaskFailed
from perfpipe.pipelines.collectors.base import Say
from perfpipe.pipelines.trying.launching import PLAIN, Arm, Launched, Launches, failed
from perfpipe.trialrecord import Used

#: How much longer than the plain program a launch may take: times, and s.
_TIMES, _MORE_S = 3.0, 60.0

#: The same for an arm that compiles, s.
_COMPILING_S = 600.0

#: How long a build may take if nothing is left of the budget, s.
_LEAST_BUILD_S = 5.0

#: What compilation is expected to take in an arm that was not launched yet, s.
COMPILES_S = 40.0


@dataclass
class Bench:
    """Launches of a program until a budget is used up; `done` has those of each arm by name."""

    launches: Launches
    budget_s: float
    say: Say
    began: float = field(default_factory=time.monotonic)
    done: dict[str, list[Launched]] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        """What is left of the budget, s."""
        return self.budget_s - (time.monotonic() - self.began)

    @property
    def plain(self) -> list[Launched]:
        """The plain launches that count."""
        return self.done.get(PLAIN.name, [])

    @property
    def plain_s(self) -> float:
        """How long a plain launch takes, s."""
        return statistics.median(own.seconds for own in self.plain)

    def cost(self, arm: Arm) -> float:
        """Return how long a launch of an arm is expected to take, s."""
        known = [own.seconds for own in self.done.get(arm.name, ()) if own.failure is None]
        if known:
            return known[-1]
        return self.plain_s + COMPILES_S * arm.compiles

    def fits(self, arms: Sequence[Arm], rounds: int = 1, reserve_s: float = 0) -> bool:
        """Return whether the budget allows some rounds of arms, and a reserve."""
        return self.left_s - reserve_s >= rounds * sum(map(self.cost, arms))

    def timeout(self, arm: Arm) -> float | None:
        """Return how long a launch of an arm may take, s; None before a plain launch.

        A lever may take what is left of the budget at most, but always longer than plain.
        """
        if not self.plain:
            return None
        usual = _TIMES * self.plain_s
        limit = usual + (_COMPILING_S if arm.compiles else _MORE_S)
        return limit if arm == PLAIN else min(limit, max(usual, self.left_s))

    def launch(self, arm: Arm, *, counts: bool = True, verify: bool = False) -> Launched:
        """Launch an arm, and keep the launch if it counts.

        Raises TaskFailed if the plain program fails.
        """
        timeout = self.timeout(arm)
        self.say(f"launch {self.launches.count + 1}: {arm.name}")
        try:
            launched = self.launches.launch(
                arm, verify=verify, timeout=timeout, build_s=max(self.left_s, _LEAST_BUILD_S)
            )
        except TaskFailed as error:
            launched = failed(arm, error)
        if arm == PLAIN and launched.failure is not None:
            raise TaskFailed(f"the program fails without any change: {launched.why}")
        if counts:
            self.done.setdefault(arm.name, []).append(launched)
        return launched


class Sides(NamedTuple):
    """The times of a unit in the launches of two arms, ms, and the window that was compared."""

    before: list[float]
    after: list[float]
    window: Window


def sides(before: Sequence[Launched], after: Sequence[Launched]) -> Sides:
    """Return the time of a unit in each launch of two arms, over the same units.

    Batches that loaders may hold are left out.  Sides are empty if nothing can be compared.
    """
    held = max((own.batches_held for own in (*before, *after)), default=0)
    chosen = window([own.pace for own in (*before, *after)], at_least=held)
    return Sides(times(chosen.ms, before), times(chosen.ms, after), chosen)


def times(of: Callable[[Pace], float | None], launches: Iterable[Launched]) -> list[float]:
    """Return what a function finds in each launch, ms, without those whose time is unknown."""
    return [ms for own in launches if (ms := of(own.pace)) is not None]


@dataclass(frozen=True)
class UnitEnergy:
    """The energy of a unit, J: the median of launches, with its source; or why it is unknown."""

    joules: float | None = None
    source: str | None = None
    missing: str | None = None


def energy_of(launches: Iterable[Launched], chosen: Window) -> UnitEnergy:
    """Return the energy of a unit in launches; unknown unless it is known in all of them."""
    found, source = [], None
    try:
        for own in launches:
            course = course_of(own.readings)
            source = course.source
            found.append(unit_j(course, own.pace, chosen))
    except Unknown as why:
        return UnitEnergy(source=source, missing=str(why))
    return UnitEnergy(statistics.median(found), source) if found else UnitEnergy()


def used(plain: Sequence[Launched], other: Sequence[Launched], chosen: Window) -> Used:
    """Return the energy of a unit in the launches of an arm, and of the plain program."""
    joules, plain_joules = (energy_of(side, chosen).joules for side in (other, plain))
    return Used(joules, plain_joules)
