"""Summary of an autotuning run: generations, common values of the best, trade-offs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfpipe.analysis.history import History, Trial
from perfpipe.analysis.search_gain import gains
from perfpipe.runrecord import Scalar
from perfpipe.units import words

#: A generation that gains less than this over the best so far has converged, %.
CONVERGED_PCT = 1.0

#: Share of the valid configurations that count as the best, and their minimum number.
BEST_SHARE, FEWEST_BEST = 0.2, 3


@dataclass(frozen=True)
class Generation:
    """A generation of a search; times in ms, None if no configuration was valid."""

    number: int
    tried: int
    worked: int
    failures: str
    best_ms: float | None
    median_ms: float | None
    worst_ms: float | None
    best_so_far_ms: float | None
    gain_pct: float | None


@dataclass(frozen=True)
class Trait:
    """A value of a parameter: how many of the best have it, and of all valid ones."""

    parameter: str
    value: str
    best: int
    of_best: int
    all: int
    of_all: int

    @property
    def best_pct(self) -> float:
        """Share among the best, %."""
        return 100 * self.best / self.of_best

    @property
    def all_pct(self) -> float:
        """Share among all valid ones, %."""
        return 100 * self.all / self.of_all


def generations(history: History) -> list[Generation]:
    """Return the generations in order; gains are over the best of all earlier ones, %."""
    made = []
    so_far: float | None = None
    for number in sorted({trial.generation for trial in history.trials}):
        tried = [trial for trial in history.trials if trial.generation == number]
        times = [trial.time_ms for trial in tried if trial.time_ms is not None]
        failures = Counter(trial.failure for trial in tried if trial.failure)
        best = min(times, default=None)
        gain = 100 * (so_far / best - 1) if best and so_far else None
        so_far = min((time for time in (so_far, best) if time is not None), default=None)
        made.append(
            Generation(
                number,
                len(tried),
                len(times),
                _kinds(failures),
                best,
                statistics.median(times) if times else None,
                max(times, default=None),
                so_far,
                None if gain is None else max(0.0, gain),
            )
        )
    return made


def convergence(rounds: Sequence[Generation]) -> int | None:
    """Return the generation after which none gains CONVERGED_PCT or more.

    None where the last one still gains, and for a single one.
    """
    gaining = [r.number for r in rounds if r.gain_pct is None or r.gain_pct >= CONVERGED_PCT]
    if not rounds or not gaining or gaining[-1] == rounds[-1].number:
        return None
    return gaining[-1]


def best_of(history: History) -> list[Trial]:
    """Return the best configurations: BEST_SHARE of the valid ones, at least FEWEST_BEST."""
    worked = history.worked
    return worked[: count_of_best(len(worked))]


def count_of_best(worked: int) -> int:
    """Return how many of some valid configurations count as the best."""
    return max(FEWEST_BEST, round(BEST_SHARE * worked))


def traits(history: History) -> list[Trait]:
    """Return each parameter value among the best, most distinctive first."""
    return traits_of(
        [trial.params for trial in best_of(history)], [trial.params for trial in history.worked]
    )


def traits_of(
    best: Sequence[Mapping[str, Scalar]], worked: Sequence[Mapping[str, Scalar]]
) -> list[Trait]:
    """Return each parameter value among the best of some valid ones, most distinctive first.

    A value is distinctive if it is much more frequent among the best than among all valid ones.
    """
    found = []
    names = dict.fromkeys(name for params in worked for name in params)
    for name in names:
        in_best = Counter(str(params.get(name)) for params in best)
        in_all = Counter(str(params.get(name)) for params in worked)
        found += [
            Trait(name, value, count, len(best), in_all[value], len(worked))
            for value, count in in_best.items()
        ]
    return sorted(found, key=lambda t: (t.all_pct - t.best_pct, t.parameter, t.value))


def shared_by_best(history: History) -> list[Trait]:
    """Return the values that all best configurations share, but not all valid ones."""
    return [t for t in traits(history) if t.best == t.of_best and t.all < t.of_all]


def pareto(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that no other beats in both time and registers, fastest first.

    Among equals the first trial is kept.  Trials without registers or time are excluded.
    """
    known = [t for t in trials if t.time_ms is not None and t.registers is not None]
    front: list[Trial] = []
    for trial in sorted(known, key=lambda t: (t.time_ms, t.registers, t.index)):
        if not front or (trial.registers or 0) < (front[-1].registers or 0):
            front.append(trial)
    return front


def _gain(history: History) -> str:
    """Return how much faster the fastest is than the default, and whether it is significant."""
    best, default = history.best, history.default
    if best is None or default is None or not default.time_ms:
        return ""
    if best is default:
        return "It is the default: the search found nothing faster."
    gain = gains(history)[best.index]
    text = f"It is {_faster(gain.pct)} than the default ({gain.default_ms:.4g} ms)"
    counts = " and ".join(map(str, gain.launches))
    if gain.interval_pct is None:
        spreads = [f"{t.spread_pct:.1f}" for t in (default, best) if t.spread_pct is not None]
        scatter = f", samples spread by {' and '.join(spreads)} %" if spreads else ""
        return (
            f"{text}, unreplicated: {counts} launches{scatter}; launch both again before you rely "
            "on it (see `confirm` in tune)."
        )
    low, high = gain.interval_pct
    judged = f"{text}, {gain.verdict}: 95 % interval {low:.1f} to {high:.1f} %"
    if not gain.confirmed:
        return (
            f"{judged}, {counts} launches. No proven gain: the fastest was chosen by these times, "
            "and nothing was launched again (see `confirm` in tune)."
        )
    searched = history.gain_over_default_pct() or 0
    return (
        f"{judged}, {counts} alternating launches after the search; during the search it was "
        f"{_faster(searched)}."
    )


def _faster(pct: float) -> str:
    return f"{abs(pct):.1f} % {'faster' if pct >= 0 else 'slower'}"


def story(history: History) -> list[str]:
    """Return sentences that summarize an autotuning run, outcome first."""
    rounds, best = generations(history), history.best
    failed = Counter(trial.failure for trial in history.trials if trial.failure)
    kinds = _kinds(failed)
    total = f"{len(history.trials)} configurations in {len(rounds)} generations"
    if best is None:
        return [f"None of {total} is valid: {kinds}."]
    said = [f"The fastest of {total} takes {best.time_ms:.4g} ms: {best.label}."]
    if gain := _gain(history):
        said.append(gain)
    point = convergence(rounds)
    said.append(
        f"The search converged in generation {point}: later ones gained less than "
        f"{CONVERGED_PCT:g} %."
        if point is not None
        else "The fastest is of the last generation, in single launches: convergence is not proven."
        if len(rounds) > 1
        else "One generation cannot show whether the search has converged."
    )
    if common := shared_by_best(history):
        shared = ", ".join(f"{t.parameter}={t.value}" for t in common)
        said.append(f"All {common[0].of_best} best configurations have {shared}.")
    if kinds:
        said.append(f"Rejected: {kinds}.")
    return said + _about_registers(history)


def _kinds(failures: Counter[str]) -> str:
    """Return failures as text: 2 wrong results, 1 timeout."""
    return ", ".join(
        f"{count} {words(kind)}{_plural(count, kind)}"
        for kind, count in sorted(failures.items(), key=str)
    )


def _plural(count: int, word: str) -> str:
    return "" if count == 1 or word.endswith("s") or word == "failed" else "s"


def _about_registers(history: History) -> list[str]:
    best = [trial for trial in best_of(history) if trial.registers is not None]
    rest = [trial for trial in history.worked if trial.spills is not None]
    said = []
    if best:
        used = [trial.registers or 0 for trial in best]
        said.append(f"The best configurations use {min(used)} to {max(used)} registers per thread.")
    spilling = [trial for trial in rest if trial.spills]
    if spilling and history.best and history.best.time_ms:
        slow = statistics.median(t.time_ms or 0 for t in spilling) / history.best.time_ms
        none = "; the best ones do not spill" if not any(t.spills for t in best) else ""
        count = f"{len(spilling)} configuration{_plural(len(spilling), '')}"
        said.append(
            f"{count} with register spills: median time {slow:.1f} times that of the fastest{none}."
        )
    return said
