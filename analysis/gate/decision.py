"""The decision of a gate: whether compared times got faster or slower, and what to do.

The primary endpoint of a configuration is the time of an iteration without a profiler.  Without one
it is the first that both sides have: a step on the timeline, a launch from start to end without a
profiler, the whole capture, the sum of the profiled kernels.  Kernels are shown next to it and do
not decide: many are tested at once, and a step can be as fast with a slower kernel in it.  Energy
decides instead of time if it was asked for; whichever does not decide is shown next to the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from perfpipe.analysis.gate import advice
from perfpipe.analysis.gate.compare.certain import direction_of, times_of
from perfpipe.analysis.gate.compare.comparison import Compared, Pairs
from perfpipe.analysis.gate.judging import ALPHA, ONE_RUN, ends
from perfpipe.analysis.gate.limits import told
from perfpipe.analysis.gate.power import MOST_RUNS, further_runs
from perfpipe.analysis.gate.sides import ENDPOINTS, ENERGIES
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.trying.results import Compared as Results
from perfpipe.analysis.trying.series import Kind
from perfpipe.calibrationrecord import Calibration


class Endpoint(StrEnum):
    """What decides."""

    TIME = "time"
    ENERGY = "energy"


class Verdict(StrEnum):
    """The result; the most severe one of several configurations stands for all."""

    FAILED = "failed"
    REGRESSED = "regressed"
    NOT_COMPARABLE = "not comparable"
    INCONCLUSIVE = "inconclusive"
    UNREPLICATED = "unreplicated"
    IMPROVED = "improved"
    SAME = "same"


class Action(StrEnum):
    """The recommended action."""

    CONTINUE = "continue"
    INVESTIGATE = "investigate"
    REVERT = "revert"


#: Advice of the actions.
_ADVICE = {
    Action.CONTINUE: "no regression found",
    Action.INVESTIGATE: "measure more before you accept or reject the change",
    Action.REVERT: "fresh runs confirmed the regression",
}

_FALSE_ALARM = "this is a false alarm; 'perfpipe gate calibrate' finds this machine's threshold"

#: Advice if both sides are the same program.
_ADVICE_ALIKE = {
    Verdict.SAME: "the two equal sides were judged equal, as they should be",
    Verdict.REGRESSED: _FALSE_ALARM,
    Verdict.IMPROVED: _FALSE_ALARM,
    Verdict.INCONCLUSIVE: "the runs vary too much for this number of rounds",
}


@dataclass(frozen=True)
class Decision:
    """A verdict on two sides, with the reason and what to do.

    `endpoints` are the configurations of the primary endpoint, `kernels` the tested kernels, both
    most severe first.  `further_runs` is how many more runs a side would decide an inconclusive
    verdict, None if unknown.  `basis` says which changes count, and why.
    `alike` says that both sides are the same program (A/A): any difference is a false alarm.
    `results` says whether both sides print the same results, None if they were not compared.
    `endpoint` is what decided, `others` the pairs of what did not: energies, or times.
    `mean` is the pair of the mean of several configurations, None with one, or if a run lacks one.
    `notes` are sentences on what else was seen, such as a slower first launch.
    `remedy` is advice for this case, empty if that of the action applies.
    """

    verdict: Verdict
    action: Action
    reason: str
    endpoints: tuple[Compared, ...] = ()
    kernels: tuple[Compared, ...] = ()
    further_runs: int | None = None
    basis: str = ""
    alike: bool = False
    results: Results | None = None
    endpoint: Endpoint = Endpoint.TIME
    others: tuple[Compared, ...] = ()
    notes: tuple[str, ...] = ()
    mean: Compared | None = None
    remedy: str = ""

    @property
    def advice(self) -> str:
        """The advice for this action and verdict."""
        alike = _ADVICE_ALIKE.get(self.verdict) if self.alike else None
        return alike or self.remedy or _ADVICE[self.action]

    @property
    def results_note(self) -> str:
        """A sentence if the results differ; the verdict on the times does not depend on them."""
        if self.results is None or self.results.kind != Kind.DIFFER:
            return ""
        return f"Results differ: {self.results.why[:1].lower()}{self.results.why[1:]}"

    @property
    def tested(self) -> tuple[Compared, ...]:
        """The mean of several configurations, if there is one, and the configurations."""
        return (*((self.mean,) if self.mean else ()), *self.endpoints)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences besides the verdict: whether the results differ, and the notes."""
        return tuple(text for text in (self.results_note, *self.notes) if text)


def decide(
    pairs: Pairs,
    *,
    failed: Sequence[str] = (),
    replayed: bool = False,
    confirmed: bool = False,
    alike: bool = False,
    calibration: Calibration | None = None,
    endpoint: Endpoint = Endpoint.TIME,
    rounds: Callable[[int], float] | None = None,
) -> Decision:
    """Decide on two sides that were compared.

    `failed` are the configurations that failed, each with the reason, `replayed` whether a side was
    replayed, `confirmed` whether a round on fresh runs has found the same regression: only then is
    the advice to revert, unless more than the code differs between the sides.  `alike` says that
    both sides are the same program; `calibration` is the one that times were judged by.  `rounds`
    gives the level of the last test of a number of rounds, if the sides were measured in rounds.
    """
    other = Endpoint.ENERGY if endpoint == Endpoint.TIME else Endpoint.TIME
    found = replace(
        _decided(pairs, failed, replayed, confirmed, endpoint, _Plan(pairs, rounds)),
        basis=basis_of(
            calibration if endpoint == Endpoint.TIME else None,
            order=pairs.order,
        ),
        endpoint=endpoint,
        others=tuple(pair for pair in primary(pairs, other) if pair.change),
    )
    if not alike:
        return found
    false_alarm = found.verdict in (Verdict.REGRESSED, Verdict.IMPROVED)
    action = Action.INVESTIGATE if false_alarm else found.action
    return replace(found, action=action, alike=True)


def after_fresh(decision: Decision, first: int, *, again: bool) -> Decision:
    """Return the decision on all rounds after `first` rounds found a regression.

    `again` says whether the fresh rounds alone find it.  A regression that all rounds no longer
    support is inconclusive.
    """
    if decision.verdict in (Verdict.FAILED, Verdict.NOT_COMPARABLE):
        return decision
    if decision.verdict == Verdict.REGRESSED:
        if again:
            return decision
        reason = f"{decision.reason}; the fresh rounds alone do not show a regression"
        return replace(decision, reason=reason)
    return replace(
        decision,
        verdict=Verdict.INCONCLUSIVE,
        action=Action.INVESTIGATE,
        reason=f"{decision.reason}; the first {first} rounds showed a regression that all rounds "
        "together do not support",
    )


def headline(decision: Decision) -> str:
    """Return the decision as a sentence."""
    verdict = f"A/A, {decision.verdict}" if decision.alike else decision.verdict.capitalize()
    return f"{verdict}: {decision.reason}. {decision.action.capitalize()}: {decision.advice}"


def basis_of(calibration: Calibration | None, order: str = "") -> str:
    """Return a sentence on which changes of a program's own times count, and why.

    `order` says that the runs of the two sides did not alternate, so that a change may be drift.
    """
    limits = calibration.limits.values() if calibration else ()
    drift = thresholds()["compare.drift_pct"]
    if order and drift > max(limits, default=0):
        return (
            f"Changes below {told((drift,))} are treated as noise (the runs of the two sides "
            f"{order}, so a change may be drift)"
        )
    if calibration is None:
        return f"Changes below {told(())} are treated as noise (default threshold, not calibrated)"
    return (
        f"Changes below {told(limits)} are treated as noise (calibrated "
        f"{calibration.at[:10]} from {len(calibration.runs)} launches; machine: "
        f"{calibration.machine})"
    )


def _decided(
    pairs: Pairs,
    failed: Sequence[str],
    replayed: bool,
    confirmed: bool,
    endpoint: Endpoint,
    plan: _Plan,
) -> Decision:
    endpoints = primary(pairs, endpoint)
    kernels = tuple(sorted(pairs.kernels, key=lambda pair: _severity(pair.verdict)))
    if failed:
        reason = f"{failed[0]}{_and_more(failed)}"
        # The other side of a failed configuration is no comparison.
        both = tuple(pair for pair in endpoints if pair.change)
        return Decision(
            Verdict.FAILED, Action.INVESTIGATE, reason, both, kernels, remedy=advice.PROGRAM
        )
    if why := "a replayed side measures nothing" if replayed else pairs.unlike:
        remedy = advice.REPLAY if replayed else advice.UNLIKE
        return _not_comparable(why, remedy, endpoints, kernels)
    if pairs.lost:
        reason = _first_of(pairs.lost)
        return Decision(
            Verdict.FAILED, Action.INVESTIGATE, reason, endpoints, kernels, remedy=advice.LOST
        )
    if endpoint == Endpoint.ENERGY and pairs.no_energy:
        return _not_comparable(_first_of(pairs.no_energy), advice.ENERGY, endpoints, kernels)
    known = [pair for pair in endpoints if pair.verdict in {*Verdict}]
    if not known:
        reason = "the two sides have no measurement in common"
        return _not_comparable(reason, advice.ALIKE, endpoints, kernels)
    mean = _mean_of(pairs, known)
    found = _of_several(mean, known, plan) if mean else _of_worst(known, plan)
    # Only the code can be reverted.
    action = _action(found.verdict, confirmed and not pairs.beside)
    reason = found.reason
    if pairs.beside and found.verdict in (Verdict.REGRESSED, Verdict.IMPROVED):
        reason += f", with {'; '.join(pairs.beside)}"
    remedy = _remedy(found, known, in_turns=bool(pairs.in_turns))
    if found.verdict == Verdict.UNREPLICATED and (faster := _direction(known)) is not None:
        action, remedy = (Action.CONTINUE if faster else action), advice.DIRECTION
    return Decision(
        found.verdict, action, reason, endpoints, kernels, found.more, mean=mean, remedy=remedy
    )


def _direction(known: Sequence[Compared]) -> bool | None:
    """Return whether all changes are certainly faster, False if slower, None if not certain."""
    certain = {
        (pair.change.ratio < 0) if pair.change and direction_of(pair) else None for pair in known
    }
    return certain.pop() if len(certain) == 1 else None


def _not_comparable(
    reason: str, remedy: str, endpoints: tuple[Compared, ...], kernels: tuple[Compared, ...]
) -> Decision:
    verdict, action = Verdict.NOT_COMPARABLE, Action.INVESTIGATE
    return Decision(verdict, action, reason, endpoints, kernels, remedy=remedy)


def _remedy(found: _Found, known: Sequence[Compared], *, in_turns: bool) -> str:
    """Return advice for what more runs alone do not change; empty if there is none."""
    if found.verdict == Verdict.NOT_COMPARABLE:
        return advice.comparable_if(next(p for p in known if p.verdict == found.verdict))
    if found.verdict != Verdict.INCONCLUSIVE:
        return ""
    if not in_turns:
        return advice.ALTERNATE
    return "" if found.more else advice.STEADIER


@dataclass(frozen=True)
class _Plan:
    """How many runs would decide; `rounds` gives the level of the last test of that many rounds."""

    pairs: Pairs
    rounds: Callable[[int], float] | None

    def further(self, pairs: Iterable[Compared]) -> int | None:
        """Return how many more runs per side would probably decide all pairs, None if unknown."""
        known: list[int] = []
        for pair in pairs:
            if (count := self._further(pair)) is None:
                return None
            known.append(count)
        return max(known, default=None)

    def _further(self, pair: Compared) -> int | None:
        if pair.change and pair.change.modes:
            return None
        drift = thresholds()["compare.drift_pct"] if self.pairs.order else 0
        return further_runs(
            pair.before.medians,
            pair.after.medians,
            pair.limit_pct / 100,
            least=max(pair.limit_pct, drift) / 100,
            level_at=self.rounds or (lambda _: ALPHA),
        )

    def told(self, pair: Compared, more: int | None) -> str:
        """Return in words how many runs per side would decide."""
        if not more:
            return "more runs may not be enough to decide"
        runs = more + min(len(pair.before.medians), len(pair.after.medians))
        text = f"about {runs} runs per side would probably decide"
        return f"{text} (try --rounds {runs})" if self.rounds else text


class _Found(NamedTuple):
    """A verdict with its reason, and how many more runs per side would decide, None if unknown."""

    verdict: Verdict
    reason: str
    more: int | None = None


def _of_worst(known: Sequence[Compared], plan: _Plan) -> _Found:
    """Return the most severe verdict of configurations."""
    worst = min(known, key=lambda pair: _severity(pair.verdict))
    verdict = Verdict(worst.verdict or "")
    more = plan.further(pair for pair in known if pair.verdict == Verdict.INCONCLUSIVE)
    return _Found(verdict, _reason(verdict, worst, plan.told(worst, more)), more)


#: Verdicts on configurations from which a verdict on all of them follows.
_TESTED = (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.SAME)


def _mean_of(pairs: Pairs, known: Sequence[Compared]) -> Compared | None:
    """Return the pair of the mean of several configurations; None if any was not tested."""
    parts = {(pair.key.profiler, pair.key.part) for pair in known}
    if len(known) < 2 or len(parts) > 1 or any(pair.verdict not in _TESTED for pair in known):
        return None
    return next(
        (
            mean
            for mean in pairs.means
            if (mean.key.profiler, mean.key.part) in parts and mean.verdict in _TESTED
        ),
        None,
    )


def _of_several(mean: Compared, known: Sequence[Compared], plan: _Plan) -> _Found:
    """Return the verdict on several configurations: of the mean, and of each.

    A regression or an improvement is that of any configuration, or of the mean.  Otherwise they are
    the same if the mean is, if nothing was withheld, and if no configuration may have changed by
    more than some times the threshold.
    """
    every = [mean, *known]
    for pair in (*known, mean):
        if pair.verdict == Verdict.REGRESSED:
            return _Found(Verdict.REGRESSED, _reason_of_several(pair, mean, known))
    withheld = [pair for pair in every if pair.verdict == Verdict.INCONCLUSIVE and pair.note]
    if withheld:
        return _Found(Verdict.INCONCLUSIVE, f"{name_of(withheld[0])}: {withheld[0].note}")
    better = [pair for pair in every if pair.verdict == Verdict.IMPROVED]
    if not better and mean.verdict == Verdict.INCONCLUSIVE:
        return _of_worst([mean], plan)
    widest = max(known, key=lambda pair: _bound(pair, slower=bool(better)))
    bound = _bound(widest, slower=bool(better))
    most = thresholds()["compare.several_factor"] * widest.limit_pct / 100
    if bound > most:
        may = f"{name_of(widest)} may have changed by {ends(*(widest.bounds or (0, 0)))}"
        return _Found(Verdict.INCONCLUSIVE, f"{_told(mean)}, but {may}", _narrower(widest, most))
    if better:
        return _Found(Verdict.IMPROVED, _reason_of_several(better[0], mean, known))
    return _Found(Verdict.SAME, f"{_told(mean)}; each changed by less than {100 * bound:.1f} %")


def _bound(pair: Compared, *, slower: bool) -> float:
    """Return the most that a configuration may have changed, or slowed down, as ratio - 1."""
    low, high = pair.bounds or (-math.inf, math.inf)
    return high if slower else max(high, math.expm1(-math.log1p(low)) if low > -1 else math.inf)


def _narrower(pair: Compared, most: float) -> int | None:
    """Return how many more runs per side should narrow the bounds of a pair to `most`."""
    change, bounds = pair.change, pair.bounds
    if change is None or bounds is None:
        return None
    margin = (math.log1p(bounds[1]) - math.log1p(bounds[0])) / 2
    room = math.log1p(most) - abs(math.log1p(change.ratio))
    have = min(len(pair.before.medians), len(pair.after.medians))
    wanted = have * (margin / room) ** 2 if room > 0 else math.inf
    return math.ceil(wanted) - have if wanted <= MOST_RUNS else None


def _reason_of_several(pair: Compared, mean: Compared, known: Sequence[Compared]) -> str:
    """Return the change of a configuration, or the mean, and those of the others in short."""
    changed = sum(own.verdict == pair.verdict for own in known)
    told = f"{_told(pair)}; {changed} of {len(known)} configurations {pair.verdict}"
    return told if pair is mean else f"{told}, {_told(mean)}"


def _first_of(faults: Mapping[str, str]) -> str:
    """Return what is wrong with the first of some configurations."""
    label, why = next(iter(faults.items()))
    what = "the only configuration" if label in ("", "-") else label
    return f"{what} {why}{_and_more(faults)}"


def _and_more(faults: Collection[str]) -> str:
    return f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""


def primary(pairs: Pairs, endpoint: Endpoint = Endpoint.TIME) -> tuple[Compared, ...]:
    """Return the pair of the primary endpoint of each configuration, most severe first.

    A configuration that only one side measured gets the pair of that side.
    """
    found: dict[str, Compared] = {}
    times = endpoint == Endpoint.TIME
    for part in ENDPOINTS if times else ENERGIES:
        # With several profilers, the first in the table's order.
        for pair in pairs.steps if times else pairs.energies:
            if pair.key.part == part and (pair.key.label not in found or _unmatched(found, pair)):
                found[pair.key.label] = pair
    return tuple(sorted(found.values(), key=lambda pair: _severity(pair.verdict)))


def _unmatched(found: Mapping[str, Compared], pair: Compared) -> bool:
    """Return whether a pair has a change, unlike the earlier pair of its configuration."""
    return pair.change is not None and found[pair.key.label].change is None


def name_of(pair: Compared) -> str:
    """Return the name of a pair: kernel and configuration, else the part that was timed."""
    key = pair.key
    # A configuration without parameters has no name of its own.
    label = "" if key.label == "-" else key.label
    if pair.is_energy:
        return f"{label} {key.part}".strip()
    return " ".join(part for part in (key.kernel, label) if part) or key.part


def _severity(verdict: str | None) -> int:
    order = [str(one) for one in Verdict]
    return order.index(verdict) if verdict in order else len(order)


def _action(verdict: Verdict, confirmed: bool) -> Action:
    if verdict in (Verdict.SAME, Verdict.IMPROVED):
        return Action.CONTINUE
    if verdict == Verdict.REGRESSED and confirmed:
        return Action.REVERT
    return Action.INVESTIGATE


def _told(pair: Compared) -> str:
    """Return the change of a pair with its interval."""
    change = pair.change
    if change is None or not change.interval:
        return f"{name_of(pair)}: {pair.verdict}"
    test = ", by ranks because of outliers" if change.outliers else ""
    return f"{name_of(pair)}: {100 * change.ratio:+.1f} % ({change.interval}{test})"


def _reason(verdict: Verdict, worst: Compared, plan: str) -> str:
    what = f"{name_of(worst)}: "
    if worst.note:
        return f"{what}{worst.note}"
    if verdict == Verdict.UNREPLICATED:
        direction = direction_of(worst)
        if direction and worst.change:
            return f"{what}{times_of(worst.change.ratio)}; {direction}"
        return f"{what}{ONE_RUN}"
    change = worst.change
    if change is None or change.low is None or change.high is None:
        return f"{what}{verdict}"
    text = _told(worst)
    if verdict != Verdict.INCONCLUSIVE:
        return text
    return (
        f"{text}: the change may be above or below the threshold of {worst.limit_pct:.3g} %; {plan}"
    )
