"""The answer of a bisection in sentences, and as JSON data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from perfpipe.analysis.gate.bisect import Outcome, Part
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
    total = f"BAD is {_against(answer.total, 'GOOD')}"
    before, after = (line.label(place) for place in (answer.before, answer.after))
    match answer.outcome:
        case Outcome.FOUND:
            return f"{after} made the program {_step(found)}"
        case Outcome.RANGE:
            return (
                f"The program became {_step(found)} after {before}, at the latest with {after}; "
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
            what = "a part of this" if answer.partial else "the change"
            more = f"try --rounds {2 * found.rounds}"
            if answer.after == answer.before + 1:
                return (
                    f"Undecided: {total}; {what} probably came with {after}, but its comparison "
                    f"with {before} is not clear; {more}"
                )
            return (
                f"Undecided: {total}; {what} probably came after {before}, at the latest with "
                f"{after}; {more}"
            )
    return (
        f"Undecided: {total}, which may be noise after {counted(found.rounds, 'round')}; try "
        f"--rounds {2 * found.rounds}"
    )


def notes(found: Found, line: Line) -> Iterator[str]:
    """Yield further sentences: the whole change, what is left to search, what was skipped."""
    answer, step = found.answer, found.answer.step
    if answer.outcome in (Outcome.FOUND, Outcome.RANGE):
        yield f"BAD is {_against(answer.total, 'GOOD')}."
        spans = [_span(line, part) for part in answer.others if part.counts]
        if spans and step and _apart(step, answer.total):
            yield f"Other {line.noun}s changed it too; to search them: {' or '.join(spans)}."
    if answer.outcome == Outcome.SPREAD and answer.searched and answer.others:
        rest = " and ".join(_span(line, part) for part in answer.others)
        yield f"Searched: {_span(line, answer.searched)}. Not searched: {rest}."
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


def _span(line: Line, part: Part) -> str:
    """Return the options that search a part, with its change."""
    return f"{line.span(part.first, part.last)} ({100 * part.ratio:+.1f} %)"


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
    return "slower or faster" if step is None else f"{_how(step)}{_interval(step)}"


def _against(change: Change, other: str) -> str:
    same = f"{abs(100 * change.ratio):.1f}" == "0.0"
    how = f"as fast as {other}" if same else f"{_how(change)} than {other}"
    return f"{how}{_interval(change)}"


def _how(change: Change) -> str:
    """Return a change of a time in words; the percentage is that of the time."""
    return f"{abs(100 * change.ratio):.1f} % {'faster' if change.ratio < 0 else 'slower'}"


def _interval(change: Change) -> str:
    return f" ({change.interval})" if change.interval else ""


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
