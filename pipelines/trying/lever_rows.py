"""The rows of a trial: what a lever is, and what came of it."""

from __future__ import annotations

from perfpipe.analysis.trying.results import Compared
from perfpipe.pipelines.trying.choosing import Candidate
from perfpipe.pipelines.trying.launching import Launched
from perfpipe.trialrecord import NOT_MEASURED, UNKNOWN_ENERGY, Gained, LeverTrial, Used

_NOTHING = "the program has nothing that it applies to"


def useless(launched: Launched) -> tuple[str, str] | None:
    """Return the verdict and the reason if a launch of a lever shows that it is of no use."""
    if launched.failure == "hung":
        return "hung", launched.why
    if launched.failure is not None:
        return "failed", launched.why
    for effect in launched.effects.values():
        if effect.failed and not effect.applied:
            return "failed", "; ".join(effect.failed)
        if not effect.applied:
            return "not applied", "; ".join(effect.refused) or effect.why or _NOTHING
        if effect.effective is False:
            return "not applied", effect.why or "it had no effect"
    return None


def row(
    own: Candidate,
    launched: Launched | None,
    verdict: str,
    why: str = "",
    *,
    gained: Gained = NOT_MEASURED,
    in_steps: Gained = NOT_MEASURED,
    energy: Used = UNKNOWN_ENERGY,
    results: Compared | None = None,
    start_up_s: float | None = None,
    pays_after: float | None = None,
    launches: int = 0,
) -> LeverTrial:
    """Return the row of a lever."""
    lever, advice = own.lever, own.advice
    effect = launched.effects.get(lever.name) if launched else None
    applied = [{"where": text, "count": count} for text, count in effect.applied] if effect else []
    return LeverTrial(
        name=lever.name,
        title=lever.title,
        verdict=verdict,
        gained=gained,
        in_steps=in_steps,
        energy=energy,
        why=why,
        technique=advice.technique if advice else next(iter(lever.answers), None),
        finding=advice.finding if advice else None,
        bound_pct=advice.bound_pct if advice else None,
        bound_of=advice.of if advice else None,
        applied=effect.where if effect else (),
        results=results.kind if results else "unknown",
        results_why=results.why if results else "",
        start_up_s=start_up_s,
        pays_after=pays_after,
        memory_bytes=launched.memory_bytes if launched else None,
        launches=launches,
        difficulty=lever.difficulty,
        risks=lever.risks,
        manual=lever.manual(applied),
    )


def left_out(own: Candidate) -> LeverTrial:
    """Return the row of a lever that is not tried."""
    return row(own, None, "not tried", own.left_out or "")
