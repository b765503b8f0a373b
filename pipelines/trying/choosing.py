"""Chooses the levers to try: those that findings call for, and those that cost nothing."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfpipe.analysis.report.findings import whole
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.session import Session
from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.trying.levers import Lever
from perfpipe.store import Store
from perfpipe.trialrecord import NO_BUDGET, NO_FINDING, NO_TIMELINE, UNUSED, Trial

#: Gain that is expected of a lever without a bound, %: of one that a finding calls for, and others.
_CALLED_PCT, _UNCALLED_PCT = 2.0, 1.0

#: Share of that for the default variant and for others, unless a technique prefers one of them.
_DEFAULT, _VARIANT = 0.9, 0.5

#: Views that the diagnosis reads.
_VIEWS = ("recommendations", "timeline_bottleneck")


@dataclass(frozen=True)
class Advice:
    """A technique that a finding recommends, with the bound on its gain, % of `of`, if known."""

    technique: str
    finding: str
    bound_pct: float | None
    of: str


@dataclass(frozen=True)
class Candidate:
    """A lever with the advice that it answers; `expected_pct` is what it is expected to gain.

    `left_out` is why it is not tried; None if it is.
    """

    lever: Lever
    advice: Advice | None = None
    expected_pct: float = 0.0
    left_out: str | None = None


def advice_of(store: Store, reports: Sequence[str]) -> tuple[dict[str, Advice], bool]:
    """Return the techniques that the findings of reports recommend, by key.

    Also returns whether the program waits for requests most of the time, on every GPU.  Raises
    PerfpipeError if the reports cannot be analyzed.
    """
    if not reports:
        return {}, False
    advised = (
        "SELECT technique, coalesce(bound, subject), gain_pct, share_of "
        "FROM recommendations ORDER BY rank"
    )
    idle = (
        "SELECT coalesce(bool_and(bound = 'no_work' AND share_pct > 50), false) "
        "FROM timeline_bottleneck"
    )
    with Session.open(store, reports, use=_VIEWS) as session:
        found: dict[str, Advice] = {}
        for technique, finding, gain_pct, share_of in rows_of(session.con, advised):
            found.setdefault(technique, Advice(technique, finding, gain_pct, whole(share_of)))
        return found, bool(rows_of(session.con, idle)[0][0])
    raise PerfpipeError("unreachable")


def candidates(
    known: Iterable[Lever],
    advice: Mapping[str, Advice],
    seen: Collection[str],
    trials: Sequence[Trial] = (),
    *,
    asked: bool = False,
    timeline: bool = True,
) -> list[Candidate]:
    """Return all levers, first those that promise the most; `seen` is what the program imported.

    With `asked`, the levers were named by the user and need no finding.  Without a `timeline`,
    there are no findings.
    """
    uncalled = NO_FINDING if timeline else NO_TIMELINE
    found = []
    for lever in known:
        own = _candidate(lever, advice, trials)
        if lever.needs != "any" and lever.needs not in seen:
            own = replace(own, left_out=f"{UNUSED}{_library(lever.needs)}")
        elif not asked and own.advice is None and not lever.free:
            own = replace(own, left_out=uncalled)
        found.append(own)
    return sorted(found, key=lambda own: -own.expected_pct)


def within_budget(
    found: Sequence[Candidate], costs: Mapping[str, float], left_s: float, most: int | None
) -> list[Candidate]:
    """Return the candidates, with those left out that a budget in s does not allow."""
    chosen, kept, promised = [], 0, False
    for own in found:
        if own.left_out is None:
            cost = costs[own.lever.name]
            promises = own.lever.usual_pct or (own.advice and own.advice.bound_pct)
            if most is not None and kept >= most:
                own = replace(own, left_out=f"--most {most}")
            elif cost > left_s or (promised and not kept and not promises):
                # A lever that promises nothing is no use for what one with a bound lacks.
                own = replace(own, left_out=NO_BUDGET)
                promised = promised or bool(promises)
            else:
                left_s -= cost
                kept += 1
        chosen.append(own)
    return chosen


def _candidate(lever: Lever, advice: Mapping[str, Advice], trials: Sequence[Trial]) -> Candidate:
    best = _combined([advice[key] for key in lever.answers if key in advice])
    share = _share_of_bound(lever, trials)
    bound = best.bound_pct if best is not None else None
    unbounded = max(lever.usual_pct, _UNCALLED_PCT if best is None else _CALLED_PCT)
    expected = unbounded if bound is None else share * bound
    if best is None or best.technique not in lever.prefers:
        expected *= _DEFAULT if lever.default else _VARIANT
    return Candidate(lever, best, expected)


def _combined(matching: Sequence[Advice]) -> Advice | None:
    """Return the advice that promises most, with the bound of all findings that a lever answers.

    Findings are about different parts of the same time, so their bounds add up.
    """
    if not matching:
        return None
    best = max(matching, key=lambda own: own.bound_pct or 0.0)
    bounds: dict[str, float] = {}
    for own in matching:
        if own.bound_pct is not None and own.of == best.of:
            bounds[own.finding] = max(bounds.get(own.finding, 0.0), own.bound_pct)
    return replace(best, bound_pct=min(100.0, sum(bounds.values())) if bounds else None)


def _share_of_bound(lever: Lever, trials: Sequence[Trial]) -> float:
    """Return the share of its bound that a lever gained in earlier trials, in the median."""
    shares = [
        max(0.0, own.gained.gain_pct or 0.0) / own.bound_pct
        for trial in trials
        for own in trial.levers
        if own.name == lever.name and own.launches and own.bound_pct
    ]
    return statistics.median([*shares, lever.prior])


def _library(needs: str) -> str:
    named = {"torch": "PyTorch", "jax": "JAX", "checkpointing": "activation checkpointing"}
    return named.get(needs, needs)
