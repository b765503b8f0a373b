"""Bisects commits or versions: launches what the search asks for, and keeps every round."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from perfpipe import bisectrecord
from perfpipe.analysis.gate.ab import Round as Turn
from perfpipe.analysis.gate.ab import side_of_rounds
from perfpipe.analysis.gate.bisect import (
    Answer,
    Ask,
    History,
    Kind,
    Like,
    Outcome,
    Round,
    expected_stages,
    like,
    likely_places,
    next_step,
)
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.compare.story import Comparison, compare
from perfpipe.analysis.gate.decision import decide
from perfpipe.analysis.gate.limits import USUAL, Limits
from perfpipe.analysis.gate.sides import ITERATION, Key, own_time
from perfpipe.analysis.gate.timed import comparable
from perfpipe.bisectrecord import BisectRecord, MeasuredRound
from perfpipe.directories import storing
from perfpipe.errors import InputError, PerfpipeError, StoreError, TaskFailed
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.gate import ab
from perfpipe.pipelines.gate.arms import Arm
from perfpipe.pipelines.gate.line import Line
from perfpipe.pipelines.gate.turns import Measuring
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.tasks import directory_of
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store
from perfpipe.units import counted


@dataclass(frozen=True)
class Found:
    """The answer of a bisection, with what it took: probes and launches.

    `launches` counts all, also warm-ups and failed ones; `measured` those that the answer is from.
    `rounds` is the largest number that compare two places.
    `runs` are those of the places before and after the change in fresh rounds; `skipped` says why
    places could not be measured.
    """

    answer: Answer
    limits: Limits
    probes: int
    launches: int
    measured: int
    rounds: int
    skipped: dict[int, str]
    runs: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def limit_pct(self) -> float:
        """The smallest change that counts, %."""
        return self.limits[_KEY]


#: The endpoint of a program without parameters.
_KEY = Key("", "-", ITERATION)


class Bisection:
    """A bisection of a line of commits or versions; its record is in `directory`."""

    def __init__(
        self,
        line: Line,
        store: Store,
        directory: Path,
        progress: Progress,
        *,
        rounds: int,
        limits: Limits = USUAL,
    ) -> None:
        self.line, self.store, self.progress = line, store, progress
        self._directory, self._rounds, self._limits = directory, rounds, limits
        self._sides: dict[int, Measuring] = {}
        self._results: dict[str, TaskResult] = {}
        self._record = BisectRecord()
        self._said = ""
        self._expected = expected_stages(len(line.names) - 1)

    @property
    def measured(self) -> int:
        """The number of launches that are kept."""
        return sum(len(one.runs) for one in self._record.rounds)

    def find(self) -> Found:
        """Measure until the search has an answer; continues what an interrupted one measured.

        Raises TaskFailed if GOOD or BAD cannot be built or fails.
        """
        self._record = self._kept()
        try:
            with ExitStack() as stack:
                answer = self._search(stack)
        finally:
            # Launches of a cut round are counted too.
            if self._record.rounds:
                self._keep(self._record)
        history = self._history()
        ends = (answer.before, answer.after)
        names = [self.line.names[place] for place in ends]
        pairs = [one.runs for one in self._record.rounds if one.kind == Kind.PAIR]
        fresh = [own for own in pairs if {*names} <= {*own}]
        runs = tuple(tuple(own[name] for own in fresh) for name in names)
        skipped = {self.line.names.index(name): why for name, why in self._record.skipped.items()}
        return Found(
            answer,
            self._limits,
            len(history.probes),
            self._record.launches,
            self.measured,
            self._rounds,
            skipped,
            (runs[0], runs[1]),
        )

    def _search(self, stack: ExitStack) -> Answer:
        asked: Ask | None = None
        while True:
            history = self._history()
            step = next_step(history)
            if asked is not None and (isinstance(step, Answer) or step != asked):
                self._report(asked, history)
            if isinstance(step, Answer):
                return step
            asked = step if self._measured(step, stack) else None

    def _measured(self, ask: Ask, stack: ExitStack) -> bool:
        """Measure a round; False if a place cannot be measured, which is then skipped."""
        for place in ask.places:
            if (why := self._fault(place, stack)) is not None:
                self._skip(place, why)
                return False
        turn = self.measured
        for at, place in enumerate(_shuffled(ask.places)):
            self.progress.detail(f"{self.line.noun} {self.line.label(place)}")
            if (error := self._launch(place, turn + at)) is not None:
                self._skip(place, error)
                return False
        sides = {self.line.names[place]: self._sides[place] for place in ask.places}
        self._results |= {self._sides[at].runs[-1]: self._latest(at) for at in ask.places}
        if (unlike := self._unlike(ask)) is not None:
            of = self.line.label(ask.places[0])
            self._skip(unlike, f"either it or {of} prints times, so they cannot be compared")
            return False
        new = MeasuredRound(ask.kind, {name: side.runs[-1] for name, side in sides.items()})
        self._keep(replace(self._record, rounds=(*self._record.rounds, new)))
        return True

    def _launch(self, place: int, turn: int) -> str | None:
        """Launch a place, once more if it fails: it ran before; returns why it failed again."""
        side = self._sides[place]
        for _ in range(2):
            self._count()
            side.measure(turn)
            if (error := self._latest(place).error) is None:
                return None
        name = self.line.names[place]
        runs = {one.runs[name] for one in self._record.rounds if name in one.runs} | {*side.runs}
        # The first launch, which succeeded, is no run.
        return f"failed in {len(side.failures)} of {len(runs) + 1} launches: {error}"

    def _count(self) -> None:
        self._record = replace(self._record, launches=self._record.launches + 1)

    def _unlike(self, ask: Ask) -> int | None:
        """Return a place that prints times and the first place does not, or the reverse."""
        prints = {place: self._latest(place).prints_times for place in ask.places}
        return next((at for at, own in prints.items() if own != prints[ask.places[0]]), None)

    def _latest(self, place: int) -> TaskResult:
        """Return the result of the latest launch of a place."""
        return self._sides[place].rounds[-1].results[0]

    def _fault(self, place: int, stack: ExitStack) -> str | None:
        """Build a place and launch it once, unless that was done; returns why this fails."""
        if place in self._sides:
            return None
        self.progress.detail(f"preparing {self.line.label(place)}")
        try:
            arm = self.line.arm(place)
            _require_one(arm)
            launcher = Launcher(arm.workload.execution, directory_of(arm.workload, arm.path))
            stack.enter_context(launcher)
            side = Measuring(arm, launcher, self.store, self.progress.detail)
            if (why := self._warm_up(place, side)) is not None:
                return why
        except (StoreError, InputError):
            raise
        except PerfpipeError as error:
            return str(error)
        self._sides[place] = side
        return None

    def _warm_up(self, place: int, side: Measuring) -> str | None:
        """Launch a place once, which fills caches; returns why it fails.

        It is launched once more if this fails and it ran before.
        """
        name = self.line.names[place]
        ran = sum(1 for one in self._record.rounds if name in one.runs)
        self._count()
        error = side.warm_up()
        if error is None or not ran:
            return error
        self._count()
        error = side.warm_up()
        return error and f"failed in 2 of {ran + 2} launches: {error}"

    def _skip(self, place: int, why: str) -> None:
        label = self.line.label(place)
        if place in (0, len(self.line.names) - 1):
            raise TaskFailed(f"{'BAD' if place else 'GOOD'}, {label}: {why}")
        self.progress.note(f"skipped {label}: {why}")
        skipped = {**self._record.skipped, self.line.names[place]: why}
        self._keep(replace(self._record, skipped=skipped))

    def _keep(self, record: BisectRecord) -> None:
        self._record = record
        with storing(self._directory):
            bisectrecord.write(self._directory, record)

    def _kept(self) -> BisectRecord:
        """Return the record so far, with the rounds whose runs are still in the store."""
        record = bisectrecord.read(self._directory)
        known = {run.run_id: run.tasks for run in self.store.runs()} if record.rounds else {}
        rounds = [one for one in record.rounds if all(known.get(run) for run in one.runs.values())]
        for one in rounds:
            self._results |= {run: known[run][0] for run in one.runs.values()}
        if rounds:
            count = sum(len(one.runs) for one in rounds)
            self.progress.note(
                f"continuing with {counted(count, 'launch')} of an interrupted bisection"
            )
        return replace(record, rounds=tuple(rounds))

    def _history(self) -> History:
        """Return the search so far."""
        names = [run for one in self._record.rounds for run in one.runs.values()]
        (results,) = comparable([[self._results[run] for run in names]]) if names else ((),)
        times = {run: _time(own) for run, own in zip(names, results, strict=True)}
        place = {name: at for at, name in enumerate(self.line.names)}
        history = History(
            len(self.line.names) - 1,
            tuple(
                Round(Kind(one.kind), {place[name]: times[run] for name, run in one.runs.items()})
                for one in self._record.rounds
            ),
            limit_pct=self._limits[_KEY],
            pair_rounds=self._rounds,
        )
        for name in self._record.skipped:
            history = history.without(place[name])
        return history

    def _report(self, asked: Ask, history: History) -> None:
        """Say what the latest rounds found, unless that was the latest line."""
        place = asked.places[-1]
        if asked.kind == Kind.ENDS:
            text = "GOOD and BAD are compared"
        elif asked.kind == Kind.PAIR:
            text = f"compared {self.line.label(place)} with the {self.line.noun} before it"
        else:
            left = likely_places(history)
            noun = counted(len(left), f"likely {self.line.noun}")
            text = f"{self._likeness(asked, history)}" + (f"; {noun} left" if left else "")
        if text == self._said:
            return
        self._said = text
        # A search may need more probes and pairs than exact times would.
        expected = self._expected.get(asked.kind, 0)
        self._expected[asked.kind] = expected - 1
        (self.progress.step if expected > 0 else self.progress.note)(text)

    def _likeness(self, asked: Ask, history: History) -> str:
        """Return in words which of the two others in its rounds a probed place is like."""
        first, last, place = asked.places
        one, other = (self._end(at) for at in (first, last))
        words = {
            Like.FIRST: f"is like {one}",
            Like.SECOND: f"is like {other}",
            Like.NEITHER: f"is unlike {one} and {other}",
            Like.UNCLEAR: f"may be like {one} or {other}",
        }
        return f"{self.line.label(place)} {words[like(history, place, (first, last))]}"

    def _end(self, place: int) -> str:
        return {0: "GOOD", len(self.line.names) - 1: "BAD"}.get(place) or self.line.label(place)


def explained(bisection: Bisection, found: Found, *, profiles: bool) -> Comparison | None:
    """Return the comparison of the places before and after the change.

    With `profiles` it has a profile of each.  None if they were not measured.
    """
    answer = found.answer
    if not found.runs[0] or answer.outcome not in (Outcome.FOUND, Outcome.RANGE):
        return None
    # Numbers of turns, which alternate: launches may follow one another within a second.
    before, after = (
        side_of_rounds(
            bisection.line.label(place),
            [Turn(2 * at + later, bisection.store.run(run).tasks) for at, run in enumerate(own)],
            ["-"],
        )
        for later, (place, own) in enumerate(
            zip((answer.before, answer.after), found.runs, strict=True)
        )
    )
    comparison = compare(before, after, limits=found.limits, no_timeline=ab.NOT_PROFILED)
    if not profiles:
        return comparison
    arms = bisection.line.arm(answer.before), bisection.line.arm(answer.after)
    decision = decide(pairs_of(before, after, limits=found.limits))
    rounds = len(found.runs[0])
    outcome = ab.Outcome(decision, comparison, rounds, found.runs, found.limits)
    return ab.with_profiles(outcome, arms, bisection.store, bisection.progress.note).comparison


def _require_one(arm: Arm) -> None:
    if len(arm.tasks) != 1:
        count = counted(len(arm.tasks), "configuration")
        raise InputError(f"{arm.path} has {count}, but a bisection needs one configuration")


def _shuffled(places: tuple[int, ...]) -> list[int]:
    return random.sample(places, len(places))


def _time(result: TaskResult) -> float:
    timed = own_time(result)
    if timed is None:
        raise TaskFailed(f"{result.label}: no time was measured")
    return timed[1]
