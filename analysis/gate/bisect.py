"""Which commit or version of a history changed the time: what to launch next, or the answer.

A history has the places 0 (GOOD) to `count` (BAD).  First the two ends are compared.  Then each
probe launches a place in turns with both ends, until its time is known to be that of one end: a
binary search with a probability for each place (Horstein, IEEE Trans. Inf. Theory 9, 1963), so that
a probe in doubt is repeated.  Last, fresh rounds compare the places before and after the change:
the search does not bias them.

All follows from the rounds so far, so a search that was interrupted continues with its rounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from perfpipe.analysis.gate.ab import level_after
from perfpipe.analysis.gate.judging import Change, change_of, verdict_of
from perfpipe.analysis.gate.levels import Levels, levels_of
from perfpipe.analysis.thresholds import thresholds

#: Largest number of rounds that compare two places, unless the caller sets another.
PAIR_ROUNDS = 10

#: Most rounds of a probe, and the fewest before a place counts as unlike both ends.
PROBE_ROUNDS, _FEWEST = 16, 3

#: Probability of a wrong side at which a probe ends.
_WRONG = 0.005

#: Probability of a place at which the search ends; that of the places that an open search names.
_SURE, _NAMED = 0.98, 0.95

#: How far times wander without a cause, as a share of the difference between the ends.
_WANDER = 0.1

#: Probability that a place is unlike both ends before it is measured, and when that is certain;
#: number of differences between the ends over which the time of such a place may lie.
_UNLIKE, _CERTAIN, _WIDTH = 0.1, 0.9, 4.0

#: Least likelihood, so that one odd time does not decide.
_ODD = 1e-4

#: Least difference between the ends, so that it can be divided by.
_LEAST = 1e-9

_CHANGED = ("regressed", "improved")


class Kind(StrEnum):
    """What a round is for: the ends, a probe with its ends, or the places around the change."""

    ENDS = "ends"
    PROBE = "probe"
    PAIR = "pair"


@dataclass(frozen=True)
class Round:
    """The times of a round by place: one launch each.  The place of a probe is the last."""

    kind: Kind
    times: Mapping[int, float]


@dataclass(frozen=True)
class Ask:
    """A round to measure: each place is launched once.  The place of a probe is the last."""

    kind: Kind
    places: tuple[int, ...]


class Outcome(StrEnum):
    """What a search found: a place, one of several, changes at many places, or no change."""

    FOUND = "found"
    RANGE = "range"
    SPREAD = "spread"
    UNDECIDED = "undecided"
    NOT_REPRODUCIBLE = "not reproducible"


@dataclass(frozen=True)
class Part:
    """A part of a history, whose ends were measured, and its change as ratio - 1.

    `counts` says whether this is as large as a change must be.
    """

    first: int
    last: int
    ratio: float
    counts: bool


@dataclass(frozen=True)
class Answer:
    """The outcome: the change is in the places after `before`, up to `after`.

    `total` is the change from GOOD to BAD; `step` that from `before` to `after` in fresh rounds,
    None if these were not measured.  `parts` are that from `before` to `after` and those around it,
    as far as their ends were launched with GOOD or BAD.  `partial` says that the change has several
    steps, and that only a part of the history was searched.
    """

    outcome: Outcome
    before: int
    after: int
    total: Change
    step: Change | None = None
    parts: tuple[Part, ...] = ()
    partial: bool = False

    @property
    def searched(self) -> Part | None:
        """The part from `before` to `after`."""
        return next((part for part in self.parts if part.first == self.before), None)

    @property
    def others(self) -> list[Part]:
        """The parts around it."""
        return [part for part in self.parts if part != self.searched]


class Like(StrEnum):
    """What the time of a place is like."""

    FIRST = "first"
    SECOND = "second"
    NEITHER = "neither"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class History:
    """A search so far: the last place, the rounds, and the places that cannot be measured.

    `limit_pct` is the smallest change that counts, %; None for the default.  `pair_rounds` is the
    largest number of rounds that compare two places.
    """

    count: int
    rounds: tuple[Round, ...] = ()
    skipped: Collection[int] = ()
    limit_pct: float | None = None
    pair_rounds: int = PAIR_ROUNDS

    @property
    def places(self) -> list[int]:
        """The places that can be measured."""
        return [place for place in range(self.count + 1) if place not in self.skipped]

    @property
    def probes(self) -> list[tuple[int, int]]:
        """The place of each probe in order, and its number of rounds."""
        places = [[*one.times][-1] for one in self.rounds if one.kind == Kind.PROBE]
        found: list[tuple[int, int]] = []
        for place in places:
            last, count = found[-1] if found else (None, 0)
            if place == last and count < PROBE_ROUNDS:
                found[-1] = place, count + 1
            else:
                found.append((place, 1))
        return found

    @property
    def most_probes(self) -> int:
        """The number of probes after which an undecided search ends."""
        return 2 * math.ceil(math.log2(max(2, self.count))) + 6

    @property
    def least(self) -> float:
        """The logarithm of the smallest change that counts."""
        usual = thresholds()["compare.change_pct"]
        return math.log1p((usual if self.limit_pct is None else self.limit_pct) / 100)

    def without(self, place: int) -> History:
        """Return the search with a place that cannot be measured, and without its times."""
        left = [
            Round(one.kind, {at: time for at, time in one.times.items() if at != place})
            for one in self.rounds
            if not (one.kind == Kind.PROBE and [*one.times][-1] == place)
        ]
        kept = tuple(one for one in left if len(one.times) > 1)
        return replace(self, rounds=kept, skipped=frozenset({*self.skipped, place}))


def expected_stages(count: int) -> dict[Kind, int]:
    """Return how many comparisons of the ends, probes and pairs a search of exact times needs."""
    return {Kind.ENDS: 1, Kind.PROBE: math.ceil(math.log2(max(1, count))), Kind.PAIR: 1}


def next_step(history: History) -> Ask | Answer:
    """Return the round to measure next, or the answer."""
    ends = (0, history.count)
    first = _compared(history, Kind.ENDS, ends)
    if first.verdict is None:
        return Ask(Kind.ENDS, ends)
    total = _total(history)
    if first.verdict == "same" or _verdict(history, total) == "same":
        return Answer(Outcome.NOT_REPRODUCIBLE, *ends, total)
    if first.verdict not in _CHANGED:
        return Answer(Outcome.UNDECIDED, *ends, total)
    search = _narrowed(history)
    step = search.next_step(total)
    if isinstance(step, Ask):
        return step
    partial = (search.first, search.last) != ends
    return replace(step, parts=_parts(history, step), partial=partial)


def like(history: History, place: int, ends: tuple[int, int]) -> Like:
    """Return which of two places a probed place is like, by all rounds so far."""
    own = _Search(history, _levels(history), *ends).like(place)
    odds = math.exp(own.first), math.exp(own.second)
    share = (1 - own.unlike) / math.fsum(odds)
    likely = {Like.NEITHER: own.unlike, Like.FIRST: share * odds[0], Like.SECOND: share * odds[1]}
    best = max(likely, key=likely.__getitem__)
    return best if likely[best] > _CERTAIN else Like.UNCLEAR


def likely_places(history: History) -> list[int]:
    """Return the places with which the change probably came, together 95 %; none if unknown."""
    compared = _compared(history, Kind.ENDS, (0, history.count)).verdict in _CHANGED
    search = _narrowed(history) if compared else None
    return [] if search is None or search.spread else sorted(search.likely)


def _parts(history: History, answer: Answer) -> tuple[Part, ...]:
    levels = _levels(history)
    cuts = sorted({0, answer.before, answer.after, history.count})
    changes = {
        pair: levels.apart(*pair)[0] for pair in itertools.pairwise(cuts) if {*pair} <= {*levels.at}
    }
    return tuple(
        Part(*pair, math.expm1(change), abs(change) >= history.least)
        for pair, change in changes.items()
    )


def _levels(history: History) -> Levels:
    """Return the levels of the places that were launched with others than their neighbors."""
    return levels_of([one.times for one in history.rounds if one.kind != Kind.PAIR])


@dataclass(frozen=True)
class _Compared:
    """The change between two places, and the verdict on it; None if more rounds are needed."""

    change: Change
    verdict: str | None


def _compared(history: History, kind: Kind, places: tuple[int, int]) -> _Compared:
    """Compare two places in the rounds of a kind, with a look after each round."""
    times = [one.times for one in history.rounds if one.kind == kind and {*places} <= {*one.times}]
    for done in range(1, len(times) + 1):
        if (level := level_after(done, history.pair_rounds)) is None:
            continue
        change = _change(times[:done], places, level)
        verdict = _verdict(history, change, level)
        if done == history.pair_rounds or verdict in ("same", *_CHANGED):
            return _Compared(change, verdict)
    return _Compared(Change(0), None)


def _total(history: History) -> Change:
    """Return the change between the ends in all rounds that launched both."""
    ends = (0, history.count)
    both = [one.times for one in history.rounds if {*ends} <= {*one.times}]
    return _change(both, ends)


def _change(
    rounds: Sequence[Mapping[int, float]], places: tuple[int, int], alpha: float = 0.05
) -> Change:
    before, after = ([times[place] for times in rounds] for place in places)
    return change_of(before, after, alpha=alpha)


def _verdict(history: History, change: Change, alpha: float = 0.05) -> str:
    return verdict_of(change, change.p, alpha=alpha, limit_pct=history.limit_pct)


@dataclass(frozen=True)
class _Place:
    """Log-likelihoods that a place is like the first or the second end; whether it is like neither.

    `unlike` is the probability of neither.
    """

    first: float
    second: float
    unlike: float


def _narrowed(history: History) -> _Search:
    """Return the search between two places that differ; it is spread if no neighbors differ enough.

    That is between GOOD and BAD, unless a place is unlike both: then the change has several steps,
    and the first part of the history whose ends differ enough is searched.
    """
    levels = _levels(history)
    search = _Search(history, levels, 0, history.count)
    while unlike := search.unlike:
        cuts = [search.first, *unlike, search.last]
        parts = (
            (one, other)
            for one, other in itertools.pairwise(cuts)
            if abs(levels.apart(one, other)[0]) >= history.least
        )
        if (part := next(parts, None)) is None:
            return replace(search, spread=True)
        search = _Search(history, levels, *part)
    return search


@dataclass(frozen=True)
class _Search:
    """A search for one step between two places that differ.

    If it is `spread`, there are several, each too small to count.
    """

    history: History
    levels: Levels
    first: int
    last: int
    spread: bool = False

    def next_step(self, total: Change) -> Ask | Answer:
        """Return the round to measure next, or the answer."""
        probability = {} if self.spread else self._probability
        if not probability:
            return Answer(Outcome.SPREAD, self.first, self.last, total)
        best = max(probability, key=probability.__getitem__)
        if probability[best] >= _SURE:
            return self._ending(best, total)
        probes = self.history.probes
        if probes and self._goes_on(*probes[-1]):
            return Ask(Kind.PROBE, (self.first, self.last, probes[-1][0]))
        if len(probes) >= self.history.most_probes:
            likely = self.likely
            return Answer(Outcome.UNDECIDED, self._before(min(likely)), max(likely), total)
        return Ask(Kind.PROBE, (self.first, self.last, self._halving))

    def _ending(self, after: int, total: Change) -> Ask | Answer:
        before = self._before(after)
        found = _compared(self.history, Kind.PAIR, (before, after))
        if found.verdict is None:
            return Ask(Kind.PAIR, (before, after))
        outcome = Outcome.FOUND if after - before == 1 else Outcome.RANGE
        if found.verdict not in _CHANGED:
            outcome = Outcome.UNDECIDED
        return Answer(outcome, before, after, total, found.change)

    @property
    def unlike(self) -> list[int]:
        """The places between the ends that were measured and are like neither."""
        counts = dict.fromkeys(self._inside, 0)
        for one in self.history.rounds:
            counts.update({at: counts[at] + 1 for at in one.times if at in counts})
        return [
            place
            for place, own in self._measured.items()
            if own.unlike > _CERTAIN and counts[place] >= _FEWEST
        ]

    def _before(self, place: int) -> int:
        return max(at for at in self.history.places if at < place)

    @cached_property
    def _inside(self) -> list[int]:
        return [place for place in self.history.places if self.first < place < self.last]

    @cached_property
    def _measured(self) -> dict[int, _Place]:
        """What the measured places between the ends are like."""
        return {place: self.like(place) for place in self._inside if place in self.levels.at}

    def like(self, place: int) -> _Place:
        """Return what a measured place is like."""
        gap, _ = self.levels.apart(self.first, self.last)
        from_first, one = self.levels.apart(self.first, place)
        from_last, other = self.levels.apart(self.last, place)
        wander = (_WANDER * gap) ** 2
        first, second = (
            self._likelihood(from_first, one + wander),
            self._likelihood(from_last, other + wander),
        )
        spread = math.sqrt(2 * math.pi * ((one + other) / 2 + wander))
        share = spread / (_WIDTH * max(abs(gap), _LEAST))
        neither = _UNLIKE * share
        either = (1 - _UNLIKE) * (first + second) / 2
        return _Place(math.log(first + _ODD), math.log(second + _ODD), neither / (neither + either))

    def _likelihood(self, distance: float, variance: float) -> float:
        """Return Student's likelihood of a distance of 0, relative to the best."""
        freedom = self.levels.freedom
        return float((1 + distance**2 / variance / freedom) ** (-(freedom + 1) / 2))

    @cached_property
    def _probability(self) -> dict[int, float]:
        """The probability of each place that the change came with it; empty if no place is left."""
        tested = {
            place for one in self.history.rounds if one.kind == Kind.PAIR for place in one.times
        }
        odds: dict[int, float] = {}
        for before, place in itertools.pairwise((self.first, *self._inside, self.last)):
            pair = (before, place)
            if {*pair} <= tested and _compared(self.history, Kind.PAIR, pair).verdict == "same":
                continue
            # Places that cannot be measured count with the next one.
            odds[place] = math.log(place - before) + math.fsum(
                own.second if at >= place else own.first for at, own in self._measured.items()
            )
        top = max(odds.values(), default=0)
        shares = {place: math.exp(own - top) for place, own in odds.items()}
        total = math.fsum(shares.values())
        return {place: own / total for place, own in shares.items()}

    @cached_property
    def _up_to(self) -> dict[int, float]:
        """The probability that the change came with a place or before it."""
        places = (*self._inside, self.last)
        sums = itertools.accumulate(self._probability.get(place, 0.0) for place in places)
        return dict(zip(places, sums, strict=True))

    def _doubt(self, place: int) -> float:
        """Return the probability of the less likely side of a place."""
        return min(self._up_to[place], 1 - self._up_to[place])

    def _goes_on(self, place: int, rounds: int) -> bool:
        """Return whether the latest probe needs another round."""
        if place not in self._measured or rounds >= PROBE_ROUNDS:
            return False
        return self._doubt(place) > _WRONG or self._measured[place].unlike > _UNLIKE

    @property
    def _halving(self) -> int:
        """The place that halves the probability; near places that cannot be measured is worse."""
        skipped = self.history.skipped

        def worth(place: int) -> float:
            away = min((abs(place - at) for at in skipped), default=math.inf)
            nearness = 1.0 if math.isinf(away) else away / (away + 2)
            return self._doubt(place) * nearness

        return max(self._inside, key=worth)

    @property
    def likely(self) -> list[int]:
        """The most likely places, which together are likely enough to be named."""
        order = sorted(self._probability, key=self._probability.__getitem__, reverse=True)
        total = itertools.accumulate(self._probability[place] for place in order)
        needed = sum(1 for own in total if own < _NAMED) + 1
        return order[:needed]
