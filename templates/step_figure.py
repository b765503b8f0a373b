"""The figure of steps: duration of each by category."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from perfpipe.templates.bars import CATEGORIES, part_words
from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, block, entry, gpus_of, spot
from perfpipe.templates.formats import shorten
from perfpipe.units import format_ns
from perfpipe.viewmodel import Table

#: Maximum number of columns, shared among the GPUs; the table has the rest.
_MOST = 80

#: A step that takes more than this many times the median of its GPU ends above the axis.
LONG = 3


class _Step(NamedTuple):
    gpu: str
    name: str
    ms: float
    shares: dict[str, float]


def steps_figure(table: Table) -> Drawing | None:
    """Return a stacked column per step, as high as its duration; GPUs side by side.

    The axis ends above the longest step that is at most LONG times as long as the median of its
    GPU; an arrow with the duration marks each longer step.  None where there are fewer than two
    steps.
    """
    found = _steps(table)
    if len(found) < 2:
        return None
    gpus = list(dict.fromkeys(step.gpu for step in found))
    each = max(1, _MOST // len(gpus))
    kept = [[step for step in found if step.gpu == gpu][:each] for gpu in gpus]
    cut = sum(map(len, kept)) < table.total_rows
    top = 1.05 * max(map(_longest, kept))
    present = [name for name in CATEGORIES if any(step.shares.get(name) for step in found)]

    def draw(axes: Any) -> Marks:
        drawn = {}
        place, middles = 0.0, []
        for number, steps in enumerate(kept):
            middles.append(place + (len(steps) - 1) / 2)
            for at, step in enumerate(steps):
                below = 0.0
                for name, share in step.shares.items():
                    height = share * step.ms / 100
                    bar = block(axes, place - 0.425, below, 0.85, height, CATEGORIES[name])
                    gid = f"step-{number}-{at}-{name}"
                    bar.set_gid(gid)
                    said = part_words(name)
                    title = f"{step.gpu} {step.name}: {said} {share:.1f} % of {step.ms:.4g} ms"
                    drawn[gid] = Mark(title, series=said)
                    below += height
                if step.ms > top:
                    gid = f"step-{number}-{at}-above"
                    drawn[gid] = _arrow(axes, step, place, top, gid)
                place += 1
            place += 1
        for name in present:
            entry(axes, part_words(name), CATEGORIES[name])
        some = f"the first {each} of each GPU" if len(gpus) > 1 else f"the first {each}"
        axes.set(ylabel="ms", xlabel=f"step ({some})" if cut else "step")
        axes.set(xlim=(-0.8, place - 1.2), xticks=[], ylim=(0, top))
        if len(gpus) > 1:
            axes.set_xticks(middles)
            axes.set_xticklabels(
                [shorten(gpu, max(12, 96 // len(gpus))) for gpu in gpus], fontsize=8
            )
        return drawn

    return Drawing(draw, 8.4, 3.6)


def _longest(steps: Sequence[_Step]) -> float:
    """Return the duration of the longest step that is not far longer than the others, ms."""
    limit = LONG * statistics.median(step.ms for step in steps)
    return max(step.ms for step in steps if step.ms <= limit)


def _arrow(axes: Any, step: _Step, place: float, top: float, gid: str) -> Mark:
    """Mark a column that goes on above the axis, and state its duration."""
    spot(axes, (place, 0.97 * top), 26, "#fff", "^", gid)
    said = format_ns(1e6 * step.ms)
    axes.text(
        place, 1.02 * top, said, rotation=90, ha="center", va="bottom", fontsize=7, color=GREY
    )
    return Mark(f"{step.gpu} {step.name}: {said}, longer than the axis")


def _steps(table: Table) -> list[_Step]:
    named = [column.name for column in table.columns]
    parts = [name for name in CATEGORIES if f"{name}_pct" in named]
    wanted = ("step", "step_ns", *(f"{name}_pct" for name in parts))
    found = []
    for gpu, (name, length, *shares) in gpus_of(table, wanted, ("step_ns",), table.total_rows):
        known = {part: share for part, share in zip(parts, shares, strict=True) if share}
        found.append(_Step(gpu, str(name), length / 1e6, known))
    return found
