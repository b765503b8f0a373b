"""What a search of candidates found, in words: gain, convergence, failures, what the best share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from perfpipe.analysis.search_decision import (
    Convergence,
    Decision,
    Speedup,
    convergence,
    decided,
    log_gains,
    ranked,
)
from perfpipe.analysis.search_story import Trait, count_of_best, traits_of
from perfpipe.errors import InputError
from perfpipe.jsonfile import json_lines
from perfpipe.searchrecord import CANDIDATE, DUPLICATE, PROPOSED, Attempt, Search, attempt_of
from perfpipe.units import counted

#: Values that all of the best share are named up to this number.
_NAMED = 6

#: Whether a candidate imports a module.
PRESENT, ABSENT = "yes", "no"


@dataclass(frozen=True)
class Generation:
    """A generation: how many candidates were tried, judged right, and the best of them."""

    number: int
    tried: int
    correct: int
    timed: int
    failures: str
    best: str | None
    speedup: Speedup | None


@dataclass(frozen=True)
class Found:
    """Candidates with paired times against `baseline`; `search` is None for a bare history."""

    attempts: tuple[Attempt, ...]
    baseline: str
    search: Search | None = None

    @cached_property
    def ranking(self) -> list[tuple[Attempt, Speedup]]:
        """The correct and timed candidates, the best first."""
        return ranked(self.attempts, self.baseline)

    @cached_property
    def decision(self) -> Decision | None:
        """What the last confirmation shows; None without one."""
        made = self.search.confirmations if self.search else ()
        return decided(made[-1]) if made else None

    @property
    def best(self) -> str | None:
        """The best finalist, else the best of the search; None if no candidate was timed."""
        confirmed = self.decision.best if self.decision else None
        return confirmed or next((own.name for own, _ in self.ranking), None)

    @cached_property
    def convergence(self) -> Convergence:
        """Whether the last generation could still gain."""
        return convergence(self.attempts)

    @cached_property
    def generations(self) -> list[Generation]:
        """The generations, in order."""
        return [self._generation(n) for n in sorted({one.generation for one in self.attempts})]

    @cached_property
    def traits(self) -> list[Trait]:
        """Values of parameters, and modules, of the best; the most distinctive first."""
        modules = dict.fromkeys(name for one, _ in self.ranking for name in one.uses)
        worked = [
            {
                **{f"import {name}": PRESENT if name in one.uses else ABSENT for name in modules},
                **one.params,
            }
            for one, _ in self.ranking
        ]
        return traits_of(worked[: count_of_best(len(worked))], worked)

    @property
    def shared(self) -> list[Trait]:
        """What all of the best have, but not all that were timed."""
        common = [t for t in self.traits if t.best == t.of_best and t.all < t.of_all]
        return [t for t in common if t.value != ABSENT]

    @property
    def shared_text(self) -> str:
        """What all of the best have, in words; empty if they have nothing in common."""
        return ", ".join(
            t.parameter if t.value == PRESENT else f"{t.parameter}={t.value}"
            for t in self.shared[:_NAMED]
        )

    def of(self, name: str) -> Attempt | None:
        """Return a candidate by name."""
        return next((one for one in self.attempts if one.name == name), None)

    def label(self, name: str) -> str:
        """Return the name of a candidate with its parameters."""
        found = self.of(name)
        return found.label if found else name

    def _generation(self, number: int) -> Generation:
        own = [one for one in self.attempts if one.generation == number]
        best = next(((a, s) for a, s in self.ranking if a.generation == number), None)
        return Generation(
            number,
            len(own),
            sum(one.correct for one in own),
            sum(bool(log_gains(one, self.baseline)) for one in own),
            failures(own),
            best[0].name if best else None,
            best[1] if best else None,
        )


def failures(attempts: Sequence[Attempt]) -> str:
    """Return how many candidates failed, by status: 2 crash, 1 wrong result."""
    kinds = Counter(one.status for one in attempts if not one.correct and one.status != PROPOSED)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def headline(found: Found) -> str:
    """Return whether a gain is proven, and how large it is, in one sentence."""
    decision, baseline = found.decision, found.baseline
    if decision is None or (name := decision.best) is None:
        return f"No proven gain: {_why_unconfirmed(found)}."
    finalists = counted(decision.tested, "finalist")
    speedup = decision.speedups[name]
    pct, launches = decision.sure_pct, speedup.launches
    basis = f"{pct:.3g} % interval over {finalists}, {launches} fresh launches"
    said = f"{found.label(name)} is {speedup.text} as fast as {baseline}"
    if decision.winner is not None:
        return f"Proven gain: {said}, {basis}."
    if all(one.high is not None and one.high < 1 for one in decision.speedups.values()):
        return f"No proven gain: each finalist is slower than {baseline}; {said}, {basis}."
    return f"No proven gain: {said}, {basis}; the lower end must exceed {_least(decision)} x."


def _least(decision: Decision) -> str:
    return f"{1 + decision.least_pct / 100:.5g}"


def _why_unconfirmed(found: Found) -> str:
    if not found.attempts:
        return "no candidate was tried"
    if not found.ranking:
        return f"none of {counted(len(found.attempts), 'candidate')} is correct and timed"
    if found.decision is not None:
        return "no finalist was correct on fresh launches"
    best, speedup = found.ranking[0]
    return (
        f"nothing was confirmed on fresh launches; during the search, {best.label} was "
        f"{speedup.text} as fast as {found.baseline}, chosen among {len(found.ranking)}"
    )


def facts(found: Found) -> list[tuple[str, str]]:
    """Return what a search found as sentences with their topics, the gain first."""
    rounds = found.generations
    tried = f"{counted(len(found.attempts), 'candidate')} in {counted(len(rounds), 'generation')}"
    told = [f"{sum(one.correct for one in found.attempts)} correct"]
    if failed := failures(found.attempts):
        told.append(failed)
    said = [("Gain", headline(found)), ("Candidates", f"{tried}: {', '.join(told)}.")]
    if any(one.status == DUPLICATE for one in found.attempts):
        text = "A duplicate was not run again: the earlier verdict is its answer."
        said.append(("Duplicates", text))
    if rounds:
        own = found.convergence
        word = "Converged" if own.proven else "Convergence is not proven"
        said.append(("Progress", f"{word}: {own.why}."))
    if text := found.shared_text:
        text = f"All {found.shared[0].of_best} best candidates have {text}."
        said.append(("Shared by the best", text))
    if found.search is not None and found.search.stopped:
        said.append(("Stopped", f"The search stopped early: {found.search.stopped}."))
    return said


def sentences(found: Found) -> list[str]:
    """Return what a search found, the gain first."""
    return [text for _, text in facts(found)]


def data(found: Found) -> dict[str, Any]:
    """Return a search for JSON: the gain, generations, ranking, and all candidates."""
    decision = found.decision
    return {
        "headline": headline(found),
        "story": sentences(found),
        "baseline": found.baseline,
        "proven": bool(decision and decision.winner),
        "winner": decision.winner if decision else None,
        "finalists": {name: vars(own) for name, own in decision.speedups.items()}
        if decision
        else {},
        "interval_level": decision.level if decision else None,
        "converged": vars(found.convergence),
        "generations": [
            {**vars(own), "speedup": vars(own.speedup) if own.speedup else None}
            for own in found.generations
        ],
        "ranking": [{"name": own.name, **vars(speedup)} for own, speedup in found.ranking],
        "shared_by_best": [vars(trait) for trait in found.shared],
        "candidates": [
            {
                "name": own.name, "generation": own.generation, "parents": own.parents,
                "status": own.status, "reason": own.reason, "digest": own.digest,
                "same_as": own.same_as, "params": own.params,
            }
            for own in found.attempts
        ],
    }  # fmt: skip


def read_candidates(path: Path) -> Found | None:
    """Return the candidates of a JSON lines file that `perfpipe evaluate --history` wrote.

    None if the file has none; raises InputError for a damaged line, and if it also has other lines.
    """
    found: list[Attempt] = []
    others = ""
    for where, value in json_lines(path, "trial"):
        if value.get("kind") != CANDIDATE:
            others = others or where
            continue
        try:
            found.append(attempt_of(value))
        except ValueError as error:
            raise InputError(f"{where}: not a candidate ({error})") from error
    if found and others:
        raise InputError(f"{others}: not a candidate of perfpipe evaluate, unlike other lines")
    return Found(tuple(found), _strongest(found)) if found else None


def _strongest(attempts: Sequence[Attempt]) -> str:
    """Return the baseline that all timed candidates have, against which they gain least."""
    timed = [one for one in attempts if one.times]
    names = [{times.against for times in one.times} for one in timed]
    common = sorted(set.intersection(*names)) if names else []
    if not common:
        return "the baseline"
    return min(common, key=lambda name: sum(sum(log_gains(one, name)) for one in timed))
