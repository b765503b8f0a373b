"""The figure of what PyTorch's memory is for, over time."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, byte_scale, entry, gpus_of
from perfpipe.units import format_bytes
from perfpipe.viewmodel import Table

#: Colors of categories, from the bottom of the stack; those that stay come first.
_COLOURS = {
    "earlier": "#b0b8c0",
    "parameters": "#2f6fde",
    "optimizer state": "#8e5bd0",
    "gradients": "#20808d",
    "activations": "#d9730d",
    "forward": "#e0a060",
    "backward": "#5b9a32",
    "temporary": "#c7b42c",
    "unknown": "#708090",
}

_HELD = "held"

#: Maximum number of GPUs; the table has the rest.
_MOST = 4

#: Categories by column, with the memory of each interval.
_Courses = dict[str, list[int]]


def snapshot_figure(table: Table) -> Drawing | None:
    """Return the memory by category over the events of each GPU, with the reserved memory."""
    gpus: dict[str, _Courses] = {}
    names = ("category", "parts_bytes")
    for gpu, (category, parts) in gpus_of(table, names, names):
        gpus.setdefault(gpu, {})[category] = [int(value) for value in parts.split()]
    shown = list(gpus.items())[:_MOST]
    if not shown:
        return None
    most = max(max(parts) for _, courses in shown for parts in courses.values())
    scale, unit = byte_scale(most)

    def draw(axes: Any) -> Marks:
        drawn: Marks = {}
        panels = axes if isinstance(axes, list) else [axes]
        for (gpu, courses), own in zip(shown, panels, strict=True):
            _draw(own, gpu, courses, scale, drawn)
            own.set(xlabel="events (%)", xlim=(0, 100), ylim=(0, 1.08 * max(most, 1) / scale))
            if len(shown) > 1:
                own.set_title(gpu, fontsize=9, color=GREY)
        panels[0].set_ylabel(f"memory ({unit})")
        present = {category for _, courses in shown for category in courses}
        for category, colour in _COLOURS.items():
            if category in present:
                entry(panels[0], category, colour)
        return drawn

    return Drawing(draw, 8.4, 3.4, len(shown))


def _draw(axes: Any, gpu: str, courses: _Courses, scale: float, drawn: Marks) -> None:
    known = [(name, courses[name]) for name in _COLOURS if name in courses]
    count = len(next(iter(courses.values())))
    edges = [100 * at / count for at in range(count + 1)]
    below = [0.0] * (count + 1)
    for name, parts in known:
        above = [low + value / scale for low, value in zip(below, (*parts, parts[-1]), strict=True)]
        gid = f"snapshot-{len(drawn)}"
        area = axes.fill_between(
            edges, below, above, step="post", color=_COLOURS[name], linewidth=0, alpha=0.85
        )
        area.set_gid(gid)
        drawn[gid] = Mark(f"{gpu}: {name} up to {format_bytes(max(parts))}", series=name)
        below = above
    if held := courses.get(_HELD):
        gid = f"snapshot-{len(drawn)}"
        heights = [value / scale for value in (*held, held[-1])]
        (line,) = axes.step(
            edges, heights, where="post", color=GREY, linewidth=1, linestyle=(0, (4, 2))
        )
        line.set_gid(gid)
        drawn[gid] = Mark(f"{gpu}: reserved up to {format_bytes(max(held))}")
