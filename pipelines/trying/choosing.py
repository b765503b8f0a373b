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
from perfpipe.trialrecord import NO_BUDGET, NO_TIMELINE, Trial

#: Gain that is expected of a lever without a bound, %.
_USUAL_GAIN_PCT = 2.0

#: Share of that for the default variant and for others, unless a technique prefers one of them.
_DEFAULT, _VARIANT = 0.9, 0.5

#: Views that the diagnosis reads.
_VIEWS = ("recommendations",)


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


def advice_of(store: Store, reports: Sequence[str]) -> dict[str, Advice]:
    """Return the techniques that the findings of reports recommend, by key.

    Raises PerfpipeError if the reports cannot be analyzed.
    """
    if not reports:
        return {}
    sql = (
        "SELECT technique, coalesce(bound, subject), gain_pct, share_of "
        "FROM recommendations ORDER BY rank"
    )
    with Session.open(store, reports, use=_VIEWS) as session:
        found: dict[str, Advice] = {}
        for technique, finding, gain_pct, share_of in rows_of(session.con, sql):
            found.setdefault(technique, Advice(technique, finding, gain_pct, whole(share_of)))
        return found
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
    uncalled = "no finding calls for it" if timeline else NO_TIMELINE
    found = []
    for lever in known:
        own = _candidate(lever, advice, trials)
        if lever.needs != "any" and lever.needs not in seen:
            own = replace(own, left_out=f"the program does not use {_library(lever.needs)}")
        elif not asked and own.advice is None and not lever.free:
            own = replace(own, left_out=uncalled)
        found.append(own)
    return sorted(found, key=lambda own: -own.expected_pct)


def within_budget(
    found: Sequence[Candidate], costs: Mapping[str, float], left_s: float, most: int | None
) -> list[Candidate]:
    """Return the candidates, with those left out that a budget in s does not allow."""
    chosen, kept = [], 0
    for own in found:
        if own.left_out is None:
            cost = costs[own.lever.name]
            if most is not None and kept >= most:
                own = replace(own, left_out=f"only {most} levers were asked for")
            elif cost > left_s:
                own = replace(own, left_out=NO_BUDGET)
            else:
                left_s -= cost
                kept += 1
        chosen.append(own)
    return chosen


def _candidate(lever: Lever, advice: Mapping[str, Advice], trials: Sequence[Trial]) -> Candidate:
    matching = [advice[key] for key in lever.answers if key in advice]
    best = max(matching, key=lambda own: own.bound_pct or 0.0, default=None)
    share = _share_of_bound(lever, trials)
    bound = best.bound_pct if best is not None else None
    expected = _USUAL_GAIN_PCT if bound is None else share * bound
    if best is None or best.technique not in lever.prefers:
        expected *= _DEFAULT if lever.default else _VARIANT
    return Candidate(lever, best, expected)


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
    return {"torch": "PyTorch", "transformers": "transformers", "jax": "JAX"}.get(needs, needs)
