"""The figure of a history: times of runs or commits with intervals, and their levels."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, entry, points_of, spot
from perfpipe.viewmodel import Table

#: Maximum number of points; the table has the rest.
_MOST = 200

_TIME, _LEVEL, _CHANGE = "#2f6fde", "#808890", "#d9730d"


def history_figure(table: Table) -> Drawing | None:
    """Return times in order, with 95 % intervals, levels, and where these change."""
    names = ("name", "at", "time_ms", "level_ms", "low_ms", "high_ms", "change", "between")
    points = points_of(table, names, names[2:4], _MOST)
    if len(points) < 2:
        return None

    def draw(axes: Any) -> Marks:
        axes.set(xlabel=f"{table.columns[0].title.lower()}s, oldest first", ylabel="time (ms)")
        axes.yaxis.set_major_formatter("{x:g}")
        drawn: Marks = {}
        for at, (name, when, time, _, low, high, change, between) in enumerate(points):
            colour = _CHANGE if change else _TIME
            text = f"{name} ({when}): {time:.4g} ms"
            if low is not None and high is not None:
                axes.plot([at, at], [low, high], color=colour, linewidth=1.5, alpha=0.6)
                text += f" ({low:.4g} to {high:.4g} ms)"
            spot(axes, (at, time), 26, colour, "s" if change else "o", f"run-{at}", zorder=3)
            drawn[f"run-{at}"] = Mark(f"{text}; {change} {between}" if change else text)
            if change:
                axes.axvline(at - 0.5, color=GREY, linewidth=1, linestyle=":")
        axes.step(range(len(points)), [p[3] for p in points], where="mid", color=_LEVEL, zorder=1)
        entry(axes, "time, 95 % interval", _TIME, "o")
        axes.plot([], [], color=_LEVEL, label="level")
        if any(point[6] for point in points):
            entry(axes, "new level", _CHANGE)
        return drawn

    return Drawing(draw, width=8.0, height=3.6)
