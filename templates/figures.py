"""Figures as deterministic SVG, legible on light and dark pages."""

from __future__ import annotations

import io
import re
from typing import Any

from perfpipe.viewmodel import Table

#: Colours and marks of the classes; both, so that colour is not the only cue.
_CLASSES = {
    "compute": ("#2f6fde", "o"),
    "memory": ("#d9730d", "s"),
    "latency": ("#8e5bd0", "^"),
    "launch": ("#5b9a32", "D"),
    "balanced": ("#c2417a", "P"),
}
_GREY = "#808890"

#: Marks drawn; the rest is in the table.
_MOST = 200


def sol_figure(table: Table) -> str | None:
    """Return compute against memory speed of light of the profiled kernels, area by duration.

    `table` is the one of profiled kernels; None where it holds no classified launch.
    """
    points = _points(table)
    if not points:
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {
        "svg.hashsalt": "perfpipe",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "text.color": _GREY,
        "axes.edgecolor": _GREY,
        "axes.labelcolor": _GREY,
        "xtick.color": _GREY,
        "ytick.color": _GREY,
    }
    with rc_context(style):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.add_subplot(
            xlim=(-5, 105), ylim=(-5, 105), xlabel="memory SOL (%)", ylabel="compute SOL (%)"
        )
        axes.grid(color=_GREY, alpha=0.25, linewidth=0.6)
        longest = max(duration for *_, duration in points)
        titles = {}
        for number, (name, bound, memory, compute, duration) in enumerate(points):
            colour, mark = _CLASSES.get(bound, (_GREY, "x"))
            size = 14 + 500 * duration / longest
            marks = axes.scatter([memory], [compute], s=size, c=colour, marker=mark, alpha=0.65)
            marks.set_gid(f"kernel-{number}")
            titles[f"kernel-{number}"] = (
                f"{name}: compute {compute:.1f} %, memory {memory:.1f} %, {bound}"
            )
        present = [bound for bound in _CLASSES if bound in {point[1] for point in points}]
        for bound in present:
            colour, mark = _CLASSES[bound]
            axes.scatter([], [], c=colour, marker=mark, label=bound)
        figure.legend(frameon=False, loc="outside upper left", ncols=5, labelcolor=_GREY)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _with_titles(buffer.getvalue(), titles)


def _points(table: Table) -> list[tuple[str, str, float, float, float]]:
    at = {column.name: index for index, column in enumerate(table.columns)}
    wanted = ("kernel_name", "bound", "memory_sol_pct", "compute_sol_pct", "duration_ns")
    rows = [tuple(row[at[name]] for name in wanted) for row in table.rows]
    return [
        (str(name), str(bound), float(memory), float(compute), float(duration))
        for name, bound, memory, compute, duration in rows
        if memory is not None and compute is not None and duration is not None
    ][:_MOST]


def _with_titles(svg: str, titles: dict[str, str]) -> str:
    """Give each mark the text that a browser shows on hover, and drop the XML prologue."""
    from markupsafe import escape

    for gid, title in titles.items():
        svg = svg.replace(f'<g id="{gid}">', f'<g id="{gid}"><title>{escape(title)}</title>', 1)
    svg = svg[svg.index("<svg") :]
    return re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
