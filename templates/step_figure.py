"""The figure of steps: duration of each by category."""

from __future__ import annotations

from typing import Any, NamedTuple

from perfpipe.templates.bars import CATEGORIES
from perfpipe.templates.figures import Drawing, Mark, Marks, block, entry, gpus_of
from perfpipe.templates.formats import shorten
from perfpipe.units import words
from perfpipe.viewmodel import Table

#: Maximum number of columns, shared among the GPUs; the table has the rest.
_MOST = 80


class _Step(NamedTuple):
    gpu: str
    name: str
    ms: float
    shares: dict[str, float]


def steps_figure(table: Table) -> Drawing | None:
    """Return a stacked column per step, as high as its duration; GPUs side by side.

    None where there are fewer than two steps.
    """
    found = _steps(table)
    if len(found) < 2:
        return None
    gpus = list(dict.fromkeys(step.gpu for step in found))
    each = max(1, _MOST // len(gpus))
    kept = [[step for step in found if step.gpu == gpu][:each] for gpu in gpus]
    cut = sum(map(len, kept)) < table.total_rows
    longest = max(step.ms for steps in kept for step in steps)
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
                    title = (
                        f"{step.gpu} {step.name}: {words(name)} {share:.1f} % of {step.ms:.4g} ms"
                    )
                    drawn[gid] = Mark(title, series=words(name))
                    below += height
                place += 1
            place += 1
        for name in present:
            entry(axes, words(name), CATEGORIES[name])
        some = f"the first {each} of each GPU" if len(gpus) > 1 else f"the first {each}"
        axes.set(ylabel="ms", xlabel=f"step ({some})" if cut else "step")
        axes.set(xlim=(-0.8, place - 1.2), xticks=[], ylim=(0, 1.05 * longest))
        if len(gpus) > 1:
            axes.set_xticks(middles)
            axes.set_xticklabels(
                [shorten(gpu, max(12, 96 // len(gpus))) for gpu in gpus], fontsize=8
            )
        return drawn

    return Drawing(draw, 8.4, 3.6)


def _steps(table: Table) -> list[_Step]:
    named = [column.name for column in table.columns]
    parts = [name for name in CATEGORIES if f"{name}_pct" in named]
    wanted = ("step", "step_ns", *(f"{name}_pct" for name in parts))
    found = []
    for gpu, (name, length, *shares) in gpus_of(table, wanted, ("step_ns",), table.total_rows):
        known = {part: share for part, share in zip(parts, shares, strict=True) if share}
        found.append(_Step(gpu, str(name), length / 1e6, known))
    return found
