"""One trial: the plain program against itself, each lever against plain, then the stack."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfpipe.analysis.trying.pace import fewest_units, pays_after, reached_ms, start_up_s
from perfpipe.analysis.trying.results import Compared, compare
from perfpipe.analysis.trying.verdict import (
    ALPHA,
    GAIN,
    INCONCLUSIVE,
    Judged,
    Schedule,
    aa,
    adds,
    confirmed,
    drop_once,
    judged,
    least_gain_pct,
    order,
    scatter_of,
)
from perfpipe.pipelines.collectors.base import Say
from perfpipe.pipelines.trying.bench import COMPILES_S, Bench, Sides, sides, times, used
from perfpipe.pipelines.trying.choosing import Candidate, within_budget
from perfpipe.pipelines.trying.launching import PLAIN, Arm, Launched
from perfpipe.pipelines.trying.lever_rows import row, useless
from perfpipe.pipelines.trying.levers import exclusive
from perfpipe.trialrecord import (
    EQUAL_RESULTS,
    NO_BUDGET,
    NOT_MEASURED,
    Gained,
    LeverTrial,
    StackTrial,
)
from perfpipe.units import counted, format_ns

#: Plain launches one after another, which show the scatter of times and results.  Two may be alike
#: by chance, and noise with a period of a few launches then makes gains.
FIRST = 3

#: Rounds of levers: most, and fewest in which anything can be decided.
MOST_ROUNDS, FEWEST_ROUNDS = 5, 2

#: Rounds that choose between two stacks, and rounds that confirm the best.
CHOOSING, CONFIRMING = 2, 3

#: Launches that one lever takes at least: its rounds, and those that confirm it.
_LEAST_LAUNCHES = 4 * FEWEST_ROUNDS


@dataclass
class Trying:
    """A trial in progress: its bench, the seed of its order, and what has been decided so far.

    With `accept`, levers that change the results may be part of the stack.  `first` are the plain
    launches before the rounds, including one that may have filled caches, whose time does not
    count.  `family` is the number of levers that may be tried, whose chances of a false gain add
    up.  `untested` says that the stack was not compared with a smaller one.
    """

    bench: Bench
    seed: int = 0
    accept: bool = False
    rounds: int | None = None
    first: list[Launched] = field(default_factory=list)
    levers: list[LeverTrial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    family: int = 0
    untested: bool = False
    _verified: Launched | None = None
    _begin: int = 0

    def measure_plain(self, warm: Launched) -> None:
        """Launch the plain program a few times, fewer if no lever fits into the budget then.

        Raises TaskFailed if it fails.
        """
        self.first = [warm]
        for left in reversed(range(FIRST)):
            self.first.append(self.bench.launch(PLAIN))
            if (left + _LEAST_LAUNCHES) * self.bench.plain_s > self.bench.left_s:
                break

    @property
    def plain_results(self) -> list[Launched]:
        """All plain launches whose results count."""
        return [*self.first[:1], *self.bench.plain]

    @property
    def plain_ms(self) -> float | None:
        """Time of a unit of the plain program, ms: the median of its launches."""
        found = sides(self.bench.plain, self.bench.plain).before
        return statistics.median(found) if found else None

    def aa(self) -> Gained:
        """Compare the time of the plain program with itself."""
        found = sides(self.bench.plain, self.bench.plain).before
        return Gained(*aa(found)) if len(found) > FIRST else NOT_MEASURED

    def aa_results(self) -> Compared:
        """Compare the results of the last plain launch with those before it."""
        found = [launched.results for launched in self.plain_results]
        return compare(found[:-1], found[-1:], None)

    @property
    def unsteady(self) -> str:
        """Why plain launches cannot be compared, empty if they can: their work differs."""
        return sides(self.bench.plain, self.bench.plain).window.different_work

    def choose(self, found: Sequence[Candidate], most: int | None) -> list[Candidate]:
        """Leave out what the budget does not allow, and all levers of an unsteady program."""
        if self.unsteady:
            why = "the program does different work in each launch"
            return [replace(own, left_out=own.left_out or why) for own in found]
        chosen = self._affordable(found, most)
        self.family = sum(own.left_out in (None, NO_BUDGET) for own in chosen)
        over = [own for own in chosen if own.left_out == NO_BUDGET]
        if over and all(own.left_out is not None for own in chosen):
            plain_s, best = self.bench.plain_s, over[0]
            least = self.bench.budget_s - self._left_s + self._cost_s(best)
            self.notes.append(
                f"a launch takes {format_ns(1e9 * plain_s)}: {best.lever.name} needs a budget of "
                f"about {math.ceil(least / 60)}m{self._shorter(best)}"
            )
        return chosen

    def _shorter(self, own: Candidate) -> str:
        """Return how to end launches so early that a lever fits, empty if too few units remain."""
        pace = self.bench.plain[0].pace
        if pace.unit not in ("step", "token", "call"):
            return ""
        units_s = math.fsum(pace.units_ms()) / 1e3
        launches = FIRST + 2 * (self.rounds or FEWEST_ROUNDS) + 2 * FEWEST_ROUNDS
        each_s = (self.bench.budget_s - COMPILES_S * own.lever.compiles) / launches
        fewer = int(pace.units * (each_s - self.bench.plain_s + units_s) / units_s)
        fewer -= fewer % 10
        if not fewest_units(pace) <= fewer < pace.units:
            return ""
        return f", or --steps {fewer}"

    def _affordable(self, found: Sequence[Candidate], most: int | None) -> list[Candidate]:
        costs = {own.lever.name: self._cost_s(own) for own in found}
        return within_budget(found, costs, self._left_s, most)

    def _cost_s(self, own: Candidate) -> float:
        """Return the time that a lever needs, s."""
        return self._rounds_s + COMPILES_S * own.lever.compiles

    @property
    def _left_s(self) -> float:
        """Time for levers, s: without what plain and the confirmation need."""
        return self.bench.left_s - self._reserve_s - self._rounds_s

    @property
    def _rounds_s(self) -> float:
        """Time that the rounds take for each arm, s, without compilation."""
        return (self.rounds or FEWEST_ROUNDS) * self.bench.plain_s

    def choose_again(self, found: Sequence[Candidate], most: int | None) -> list[Candidate]:
        """Return the candidates after some were tried: the time that is left may allow others."""
        rest = [replace(own, left_out=None) for own in found if own.left_out == NO_BUDGET]
        tried = sum(own.left_out is None for own in found)
        chosen = iter(self._affordable(rest, None if most is None else most - tried))
        return [next(chosen) if own.left_out == NO_BUDGET else own for own in found]

    @property
    def _reserve_s(self) -> float:
        """Time that is kept for the launches that confirm the stack, s."""
        return 2 * FEWEST_ROUNDS * self.bench.plain_s

    def planned_rounds(self, chosen: Sequence[Candidate]) -> int:
        """Return the number of rounds that the budget allows."""
        if self.rounds:
            return self.rounds
        compiling = COMPILES_S * sum(own.lever.compiles for own in chosen)
        each = self.bench.plain_s * (len(chosen) + 1)
        # One lever is never compared with a stack.
        reserve_s = self._reserve_s * min(2, len(chosen))
        fitting = int((self.bench.left_s - reserve_s - compiling) / max(each, 1e-9))
        return max(FEWEST_ROUNDS, min(MOST_ROUNDS, fitting))

    def measure_levers(self, chosen: Sequence[Candidate], rounds: int) -> None:
        """Launch each lever and the plain program in turns, until each lever is decided."""
        own_of = {own.lever.name: own for own in chosen}
        active = {own.lever.name: Arm(own.lever.name, (own.lever,)) for own in chosen}
        self._begin = len(self.bench.plain)
        try:
            self._rounds(own_of, active, rounds)
        except BaseException:
            # What was measured is worth keeping, whatever ended the trial.
            for name, arm in active.items():
                if self.bench.done.get(name) and (found := self._judged(arm, None)) is not None:
                    self.levers.append(self._measured(own_of[name], arm, found, verify=False))
            raise

    def _rounds(self, own_of: Mapping[str, Candidate], active: dict[str, Arm], rounds: int) -> None:
        """Launch rounds of levers; those that are decided are no longer active."""
        schedule = Schedule(levers=max(self.family, len(active)), rounds=rounds)
        for arm in active.values():
            if any(lever.fills for lever in arm.levers):
                self.bench.launch(arm, counts=False)
        done, last = 0, rounds
        while active and done < last:
            arms = [PLAIN, *active.values()]
            for arm in self._turns(done, arms):
                launched = self.bench.launch(arm)
                if arm != PLAIN and (why := useless(launched)) is not None:
                    del active[arm.name]
                    self.levers.append(
                        row(
                            own_of[arm.name],
                            launched,
                            *why,
                            launches=len(self.bench.done[arm.name]),
                        )
                    )
            done += 1
            if FEWEST_ROUNDS <= done < rounds and not self.bench.fits(arms, 1, self._reserve_s):
                # The budget does not depend on the times, so the last look may spend what is left.
                self.notes.append(f"the budget ended the rounds after {done} of {rounds}")
                schedule, last = Schedule(levers=schedule.levers, rounds=done), done
            level = schedule.level(done, sum(own.verdict == GAIN for own in self.levers))
            for name, arm in [*active.items()]:
                found = self._judged(arm, level)
                if found is None or done == last or found.verdict != INCONCLUSIVE:
                    del active[name]
                    self.levers.append(self._measured(own_of[name], arm, found))

    def _turns(self, number: int, arms: Sequence[Arm]) -> list[Arm]:
        """Return arms in the random order of a round."""
        by_name = {arm.name: arm for arm in arms}
        return [by_name[name] for name in order(number, [*by_name], self.seed)]

    def _judged(self, arm: Arm, level: float | None) -> Judged | None:
        """Return the gain of an arm; None if it cannot be compared with plain.

        Without a level, it is too early for a verdict.
        """
        rounds = self.bench.plain[self._begin :]
        found = sides(rounds, self.bench.done[arm.name])
        if not found.before or not found.after:
            return None
        first = times(found.window.ms, self.first[1:])
        # An arm whose times are unknown says nothing about the scatter.
        arms = [
            times(found.window.ms, launches)
            for name, launches in self.bench.done.items()
            if name not in (PLAIN.name, arm.name)
        ]
        result = judged(
            found.before,
            found.after,
            alpha=level or ALPHA / 2,
            limit_pct=least_gain_pct(first),
            scatter=scatter_of(first, (found.before, found.after, *arms)),
        )
        return result if level is not None else result._replace(verdict=INCONCLUSIVE)

    def _measured(
        self, own: Candidate, arm: Arm, found: Judged | None, *, verify: bool = True
    ) -> LeverTrial:
        """Return the row of a lever that was launched as often as needed."""
        launched = self.bench.done[arm.name]
        both = sides(self.bench.plain, launched)
        if found is None:
            why = both.window.different_work or both.window.note or "its time is unknown"
            return row(own, launched[-1], "different work", why, launches=len(launched))
        results = self.results(arm, verify=verify)
        start_up, pays = self._start_up(both, launched)
        return row(
            own,
            launched[-1],
            found.verdict,
            both.window.note,
            gained=Gained(found.gain_pct, found.low_pct, found.high_pct),
            in_steps=_in_steps(both, self.bench.plain, launched),
            energy=used(self.bench.plain, launched, both.window),
            results=results,
            start_up_s=start_up,
            pays_after=pays,
            launches=len(launched),
        )

    def _start_up(
        self, both: Sides, launched: Sequence[Launched]
    ) -> tuple[float | None, float | None]:
        """Return the time that a lever takes once, s, and the units after which it pays."""
        first = both.window.first
        plain = times(lambda pace: reached_ms(pace, first), self.bench.plain)
        if not plain or reached_ms(launched[0].pace, first) is None:
            return None, None
        # The first launch has no cache of compiled code yet.
        taken = start_up_s(launched[0].pace, first, statistics.median(plain))
        saved = statistics.fmean(both.before) - statistics.fmean(both.after)
        return taken, pays_after(taken, saved)

    def results(self, arm: Arm, *, verify: bool = True) -> Compared:
        """Compare the results of an arm with those of the plain program.

        If they differ, both are launched again with the same random numbers, in compiled code and
        in the workers of loaders: a lever may only draw other ones.
        """
        plain = [launched.results for launched in self.plain_results]
        own = [launched.results for launched in self.bench.done[arm.name]]
        found = compare(plain, own, arm.tolerance, exact=arm.exact, of_steps=arm.regroups)
        verify &= any(lever.verify for lever in arm.levers)
        if found.kind in EQUAL_RESULTS or not verify or not self.bench.fits([PLAIN, arm]):
            return found
        if self._verified is None:
            self._verified = self.bench.launch(PLAIN, counts=False, verify=True)
        again = self.bench.launch(arm, counts=False, verify=True)
        if again.failure is not None:
            return found
        pair = [self._verified.results], [again.results]
        alike = compare(*pair, arm.tolerance, exact=arm.exact, of_steps=arm.regroups)
        return alike if alike.kind in EQUAL_RESULTS else found

    def helpful(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """Return the levers that help and keep the results, the one that gains most first."""
        own_of = {own.lever.name: own for own in chosen}
        rows = [
            own
            for own in self.levers
            if own.verdict == GAIN and (self.accept or own.results in EQUAL_RESULTS)
        ]
        rows.sort(key=lambda own: -(own.gained.gain_pct or 0.0))
        return [own_of[own.name] for own in rows]

    def best_stack(self, helpful: Sequence[Candidate]) -> Arm | None:
        """Return the levers that help together: added one by one, then dropped one by one.

        Where the budget does not allow that, all are combined, for the confirmation to measure.
        """
        chosen = list(helpful[:1])
        for own in helpful[1:]:
            if any(exclusive(own.lever, other.lever) for other in chosen):
                continue
            arms = [_stacked(chosen), _stacked([*chosen, own])]
            if not self.bench.fits(arms, CHOOSING, self._reserve_s):
                self.untested = True
                chosen.append(own)
                continue
            both = self._in_turns(arms)
            if both is not None and adds(both[0], both[1], self._limit_pct):
                chosen.append(own)
        if len(chosen) > 2:
            chosen = self._dropped(chosen)
        return _stacked(chosen) if chosen else None

    def _dropped(self, chosen: list[Candidate]) -> list[Candidate]:
        """Return a stack without the lever that it needs least, if it does not need the lever."""
        # The last one was just added to the others.
        parts = {
            own.lever.name: _stacked([other for other in chosen if other is not own])
            for own in chosen[:-1]
        }
        every = self._in_turns([_stacked(chosen), *parts.values()])
        if every is None:
            return chosen
        stack, *rest = every
        name = drop_once(stack, dict(zip(parts, rest, strict=True)), self._limit_pct)
        return [own for own in chosen if own.lever.name != name]

    @property
    def _limit_pct(self) -> float:
        """The least gain that counts, %."""
        return least_gain_pct(sides(self.first[1:], self.first[1:]).before)

    def _in_turns(self, arms: Sequence[Arm]) -> list[list[float]] | None:
        """Return the times of a unit in a few rounds of stacks; None if one is of no use."""
        if not self.bench.fits(arms, CHOOSING, self._reserve_s):
            return None
        launches: dict[str, list[Launched]] = {arm.name: [] for arm in arms}
        for number in range(CHOOSING):
            for arm in self._turns(number, arms):
                launched = self.bench.launch(arm)
                if (why := useless(launched)) is not None:
                    self.notes.append(f"{arm.name}: {why[1]}")
                    return None
                launches[arm.name].append(launched)
        if not self.accept and self.results(arms[-1]).kind not in EQUAL_RESULTS:
            self.notes.append(f"{arms[-1].name} changes the results")
            return None
        first, *others = launches.values()
        both = [sides(first, other) for other in others]
        return [both[0].before, *(own.after for own in both)] if both[0].before else None

    def confirm_best(
        self, arm: Arm, helpful: Sequence[Candidate], rows: Mapping[str, LeverTrial], say: Say
    ) -> StackTrial:
        """Confirm a stack; if its levers do not help together, confirm the best of them alone."""
        say(f"confirming {arm.name} on fresh launches")
        found, best = self.confirm(arm, rows), _stacked(helpful[:1])
        if not self.untested:
            return found
        why = self._worse(found, rows[best.name].gained)
        if not why:
            self.notes.append(
                f"the budget did not allow comparing {arm.name} with fewer of these levers"
            )
            return found
        self.notes.append(f"{arm.name}: {why}")
        if not self.bench.fits([PLAIN, best], FEWEST_ROUNDS):
            return found
        say(f"confirming {best.name} on fresh launches")
        return self.confirm(best, rows)

    def _worse(self, stack: StackTrial, best: Gained) -> str:
        """Return why a stack is worse than the best of its levers, empty if it is not."""
        if stack.verdict == "failed":
            return stack.results_why
        if stack.verdict != GAIN:
            return f"{stack.verdict} on fresh launches"
        if not self.accept and stack.results not in EQUAL_RESULTS:
            return "together they change the results"
        less = (stack.gained.gain_pct or 0.0) < (best.low_pct or 0.0)
        return "together they gain less than the best of them alone" if less else ""

    def confirm(self, arm: Arm, rows: Mapping[str, LeverTrial]) -> StackTrial:
        """Measure a stack on fresh launches, in turns with the plain program."""
        fresh: dict[str, list[Launched]] = {PLAIN.name: [], arm.name: []}
        for number in range(CONFIRMING):
            if number >= FEWEST_ROUNDS and not self.bench.fits([PLAIN, arm]):
                break
            for own in self._turns(MOST_ROUNDS + number, [PLAIN, arm]):
                launched = self.bench.launch(own)
                if launched.failure is not None:
                    return _unconfirmed(arm, launched.why)
                fresh[own.name].append(launched)
        both = sides(fresh[PLAIN.name], fresh[arm.name])
        if not both.before or not both.after:
            return _unconfirmed(arm, both.window.different_work or both.window.note)
        first = times(both.window.ms, self.first[1:])
        found = confirmed(
            both.before,
            both.after,
            limit_pct=least_gain_pct(first),
            scatter=scatter_of(first, (both.before, both.after)),
        )
        results = self.results(arm)
        return StackTrial(
            levers=tuple(lever.name for lever in arm.levers),
            verdict=found.verdict,
            gained=Gained(found.gain_pct, found.low_pct, found.high_pct),
            results=results.kind,
            results_why=results.why,
            ms=statistics.median(both.after),
            plain_ms=statistics.median(both.before),
            memory_bytes=fresh[arm.name][-1].memory_bytes,
            energy=used(fresh[PLAIN.name], fresh[arm.name], both.window),
            launches=len(fresh[arm.name]),
            manual="\n".join(text for own in arm.levers if (text := rows[own.name].manual)),
        )


def _stacked(chosen: Sequence[Candidate]) -> Arm:
    """Return the arm of some levers, which are applied in their order."""
    levers = sorted((own.lever for own in chosen), key=lambda lever: lever.order)
    return Arm("+".join(own.lever.name for own in chosen), tuple(levers))


def _unconfirmed(arm: Arm, why: str) -> StackTrial:
    names = tuple(lever.name for lever in arm.levers)
    return StackTrial(names, "failed", NOT_MEASURED, "unknown", why)


def _in_steps(both: Sides, plain: Sequence[Launched], other: Sequence[Launched]) -> Gained:
    """Return the gain of steps alone, with a 95 % interval."""
    before, after = (times(both.window.ms_within, side) for side in (plain, other))
    if not before or not after:
        return NOT_MEASURED
    found = confirmed(before, after, limit_pct=0)
    return Gained(found.gain_pct, found.low_pct, found.high_pct)


def announced(bench: Bench, chosen: Sequence[Candidate], rounds: int) -> str:
    """Return how often the program will be launched, and for how long, before it is."""
    compiling = sum(own.lever.compiles for own in chosen)
    launches = rounds * (1 + len(chosen)) + 2 * CONFIRMING
    seconds = launches * bench.plain_s + 2 * COMPILES_S * compiling
    return (
        f"{counted(len(chosen), 'lever')}, {counted(rounds, 'round')} at most: up to "
        f"{counted(launches, 'launch')} of about {bench.plain_s:.3g} s, and more for stacks; "
        f"about {seconds / 60:.1f} min"
    )
