"""The answer of a bisection in sentences, and as JSON data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from perfpipe.analysis.gate.bisect import Outcome
from perfpipe.analysis.gate.compare.explain import Explanation
from perfpipe.analysis.gate.judging import Change
from perfpipe.pipelines.gate.bisect import Found
from perfpipe.pipelines.gate.line import Line
from perfpipe.units import counted

#: Reasons for skipped places that a terminal shows.
_SHOWN = 5


def headline(found: Found, line: Line) -> str:
    """Return the answer as a sentence."""
    answer = found.answer
    total = f"BAD is {_told(answer.total)} against GOOD"
    before, after = (line.label(place) for place in (answer.before, answer.after))
    match answer.outcome:
        case Outcome.FOUND:
            return f"The time changed with {line.noun} {after}: {_step(found)}"
        case Outcome.RANGE:
            return (
                f"The time changed after {before}, at the latest with {after}: {_step(found)}; "
                f"{counted(answer.after - answer.before - 1, line.noun)} between them could not be "
                "measured"
            )
        case Outcome.SPREAD:
            return (
                f"Spread: {total}, but no single {line.noun} after {before}, up to {after}, "
                f"changes the time by more than {found.limit_pct:.3g} %"
            )
        case Outcome.NOT_REPRODUCIBLE:
            return f"Not reproducible: {total}, which is within {found.limit_pct:.3g} %"
        case Outcome.UNDECIDED if answer.after - answer.before < len(line.names) - 1:
            return (
                f"Undecided: {total}; the change probably came after {before}, at the latest with "
                f"{after}"
            )
    return f"Undecided: {total}; more rounds may decide (--rounds)"


def notes(found: Found, line: Line) -> Iterator[str]:
    """Yield further sentences: the whole change, what is left to search, what was skipped."""
    answer, step = found.answer, found.answer.step
    if answer.outcome in (Outcome.FOUND, Outcome.RANGE):
        yield f"From GOOD to BAD the time changed by {_told(answer.total)}."
        if step and _apart(step, answer.total):
            last = len(line.names) - 1
            parts = [(0, answer.before), (answer.after, last)]
            spans = " or ".join(line.span(*part) for part in parts if part[0] < part[1])
            if spans:
                yield f"Other {line.noun}s changed it too; to search them: {spans}."
    skipped = found.skipped.items()
    for place, why in [*skipped][:_SHOWN]:
        yield f"Skipped {line.label(place)}: {why}"
    if len(found.skipped) > _SHOWN:
        yield f"Skipped {counted(len(found.skipped) - _SHOWN, f'further {line.noun}')}."
    probes, launches = counted(found.probes, "probe"), counted(found.launches, "launch")
    yield (
        f"{probes}, {launches} ({found.measured} of them measured); changes below "
        f"{found.limit_pct:.3g} % are treated as noise."
    )


def as_data(found: Found, line: Line, why: Explanation | None) -> dict[str, Any]:
    """Return the answer as JSON data."""
    answer = found.answer
    return {
        "outcome": answer.outcome,
        "reason": headline(found, line),
        "noun": line.noun,
        "before": _place(line, answer.before),
        "after": _place(line, answer.after),
        "change": answer.step and _percent(answer.step),
        "total": _percent(answer.total),
        "limit_pct": found.limit_pct,
        "probes": found.probes,
        "launches": found.launches,
        "measured_launches": found.measured,
        "places": len(line.names) - 1,
        "skipped": [{**_place(line, place), "why": own} for place, own in found.skipped.items()],
        "runs": {"before": found.runs[0], "after": found.runs[1]},
        "why": why and {"text": why.text, "differences": [asdict(row) for row in why.rows]},
    }


def _place(line: Line, place: int) -> dict[str, Any]:
    return {"name": line.names[place], "label": line.label(place)}


def _step(found: Found) -> str:
    step = found.answer.step
    return "unknown" if step is None else _told(step)


def _told(change: Change) -> str:
    if change.low is None or change.high is None:
        return f"{100 * change.ratio:+.1f} %"
    interval = f"{100 * change.low:+.1f} to {100 * change.high:+.1f} %"
    return f"{100 * change.ratio:+.1f} % ({interval})"


def _percent(change: Change) -> dict[str, float | None]:
    return {
        "change_pct": 100 * change.ratio,
        "low_pct": None if change.low is None else 100 * change.low,
        "high_pct": None if change.high is None else 100 * change.high,
    }


def _apart(one: Change, other: Change) -> bool:
    """Return whether two changes differ: their intervals do not overlap."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.high < other.low or other.high < one.low
