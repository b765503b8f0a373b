"""The first screen of a comparison: the change of the step, and where it went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfpipe.analysis.gate.compare.certain import direction_of, times_of
from perfpipe.analysis.gate.compare.comparison import Compared
from perfpipe.analysis.gate.compare.story import Comparison
from perfpipe.analysis.gate.sides import CAPTURE, ENDPOINTS, ITERATION, PROFILED, STEP, WALL
from perfpipe.analysis.report.opening.parts import Part
from perfpipe.units import counted, format_ns, words
from perfpipe.viewmodel import Column, Fact, Source, Table, Tile, Value

#: What is compared, as the subject of a sentence.
_WHAT = {
    ITERATION: "An iteration",
    WALL: "A run of the program, from start to end,",
    STEP: "A step",
    CAPTURE: "The capture",
    PROFILED: "The profiled kernels",
}

#: Title of the table of the change by category.
CHANGE = "Change of the step by category"

_COLUMNS = (
    Column("part", "Part", "text", "", "category of the budget, as in gpu_time_budget"),
    Column("change_ns", "Change", "ns", "", "change in the step time, mean over the steps"),
    Column("so_far_ns", "So far", "ns", "", "step time with this change and the changes above it"),
)

#: Rows of the comparison on the first screen.
_ROWS = 8

#: A category with no more than this share of its time before is gone.
_GONE = 0.01

#: From this ratio on, a change is shown as a multiple.
_MULTIPLE = 1.2


def change_of(compared: Comparison) -> Part | None:
    """Return how much faster or slower it is; None if the sides have no time in common."""
    primary = _primary(compared, ENDPOINTS)
    if primary is None:
        return None
    source = Source("comparison", tuple(fact.text for fact in compared.sides))
    parts = _parts(primary, compared.pairs.steps)
    fact = Fact("", _sentence(primary, parts), source)
    drawn = any(_waterfall(parts))
    lead, rows = (CHANGE, 0) if drawn else ("Regression check: steps", _ROWS)
    return Part(fact, tuple(_tiles(primary, parts, source)), lead, rows)


def change_table(compared: Comparison) -> Iterator[Table]:
    """Yield how the categories of its budget change the step that changed most."""
    primary = _primary(compared, (STEP, CAPTURE))
    if primary is None:
        return
    source = Source("comparison", tuple(fact.text for fact in compared.sides))
    rows = tuple(_waterfall(_parts(primary, compared.pairs.steps)))
    if rows:
        doc = "Change in the step time from before to after, by budget category."
        yield Table(CHANGE, doc, _COLUMNS, rows, len(rows), source, "change")


def _waterfall(parts: Sequence[Compared]) -> Iterator[tuple[Value, ...]]:
    """Yield the categories with their change and the running total, ns."""
    told = [part for part in parts if part.total_ns]
    if not told:
        return
    before = sum(part.before_ns or 0 for part in parts)
    after = sum(part.after_ns or 0 for part in parts)
    yield "before", None, before
    so_far = before
    for part in told:
        so_far += part.total_ns or 0
        yield part.key.part, part.total_ns, so_far
    yield "after", None, after


def _primary(compared: Comparison, parts: Sequence[str]) -> Compared | None:
    """Return the most important change: the largest one of the first of these times."""
    known = [p for part in parts for p in compared.pairs.steps if p.key.part == part and p.change]
    own = [pair for pair in known if pair.key.part == known[0].key.part]
    return max(own, key=lambda pair: abs(pair.total_ns or 0), default=None)


def _parts(primary: Compared, steps: Sequence[Compared]) -> list[Compared]:
    """Return the categories of the step's budget by their change, largest first."""
    label = primary.key.label
    own = [p for p in steps if p.key.part not in ENDPOINTS and p.key.label == label and p.total_ns]
    profilers = dict.fromkeys(pair.key.profiler for pair in own)
    own = [pair for pair in own if pair.key.profiler == next(iter(profilers))]
    return sorted(own, key=lambda pair: -abs(pair.total_ns or 0))


def _sentence(primary: Compared, parts: Sequence[Compared]) -> str:
    text = (
        f"{_WHAT[primary.key.part]} takes {format_ns(primary.after_ns or 0)} instead of "
        f"{format_ns(primary.before_ns or 0)}: "
    )
    direction = direction_of(primary)
    # Digits that a single run does not support are not shown.
    text += times_of(primary.change.ratio) if direction and primary.change else _how_much(primary)
    if primary.verdict and not direction:
        text += f" ({primary.verdict})"
    same = [p for p in parts if ((p.total_ns or 0) > 0) == ((primary.total_ns or 0) > 0)]
    if same:
        part = same[0]
        gone = (part.after_ns or 0) <= _GONE * (part.before_ns or 0)
        sign = "+" if (part.total_ns or 0) > 0 else "-"
        change = f"{sign}{format_ns(abs(part.total_ns or 0))}"
        text += f"; {words(part.key.part)} {f'is gone ({change})' if gone else change}"
    return f"{text}. {direction[:1].upper()}{direction[1:]}" if direction else text


def _how_much(pair: Compared) -> str:
    ratio = 1 + (pair.change.ratio if pair.change else 0)
    if ratio <= 1 / _MULTIPLE:
        return f"{1 / ratio:.3g} times faster"
    if ratio >= _MULTIPLE:
        return f"{ratio:.3g} times as long"
    return f"{100 * (ratio - 1):+.1f} %"


def _tiles(primary: Compared, parts: Sequence[Compared], source: Source) -> Iterator[Tile]:
    counts = [len(side.medians) for side in (primary.before, primary.after)]
    for name, ns, runs in (
        ("Before", primary.before_ns, counts[0]),
        ("After", primary.after_ns, counts[1]),
    ):
        note = f"{_WHAT[primary.key.part].lower()}, {runs} run{'s' if runs != 1 else ''}"
        yield Tile(name, format_ns(ns or 0), note, source)
    change = primary.change
    if change is not None:
        note = primary.note or f"{counted(counts[0], 'run')} before, {counts[1]} after"
        if change.interval:
            note = f"95 % CI {change.interval}"
        verdict = f"; {primary.verdict}" if primary.verdict else ""
        yield Tile("Change", f"{100 * change.ratio:+.1f} %", f"{note}{verdict}", source)
    for part in parts[:1]:
        sign = "+" if (part.total_ns or 0) > 0 else "-"
        note = f"{words(part.key.part)} per step"
        number = f"{sign}{format_ns(abs(part.total_ns or 0))}"
        yield Tile("Largest part of the change", number, note, source)
