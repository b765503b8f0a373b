"""Figures of intervals: nodes or GPUs compared, and levers that were tried."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, entry, points_of, spot
from perfpipe.templates.formats import shorten
from perfpipe.viewmodel import Table

#: Maximum number of places; the table has the rest.
_MOST = 24

#: Colors and marks by verdict; gray for those like the others.
_VERDICTS = {"slower": ("#d9730d", "s"), "faster": ("#2f6fde", "^")}


#: Colors and marks of levers by verdict; gray for those that gain nothing.
_TRIED = {
    "gain": ("#5b9a32", "o"),
    "results differ": ("#c2417a", "X"),
    "results unknown": ("#d9730d", "s"),
}


def places_figure(table: Table) -> Drawing | None:
    """Return how places differ from the median one, with intervals; None if none was compared."""
    names = ("place", "change_pct", "low_pct", "high_pct", "verdict")
    return _intervals(
        points_of(table, names, names[1:4], _MOST),
        "time for the same work, change from the median (%)",
        _VERDICTS,
    )


def tried_figure(table: Table) -> Drawing | None:
    """Return the time that levers save, with intervals, and their bounds; None without any."""
    names = ("lever", "gain_pct", "low_pct", "high_pct", "verdict", "bound_pct")
    points = points_of(table, names, names[1:4], _MOST)
    return _intervals(points, "time saved (% of the unchanged program)", _TRIED)


def _intervals(
    points: list[tuple[Any, ...]], label: str, verdicts: dict[str, tuple[str, str]]
) -> Drawing | None:
    """Return a figure of (name, value, low, high, verdict), and a bound if there is a sixth."""
    if not points:
        return None

    def draw(axes: Any) -> Marks:
        axes.set(xlabel=label)
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set_yticks(range(len(points)), [shorten(str(point[0]), 32) for point in points])
        axes.invert_yaxis()
        drawn = {}
        for at, (name, value, low, high, verdict, *bound) in enumerate(points):
            colour, mark = verdicts.get(verdict, (GREY, "o"))
            axes.plot([low, high], [at, at], color=colour, linewidth=2)
            for limit in bound:
                if limit is not None:
                    axes.plot([limit], [at], color=GREY, marker="|", markersize=14)
            spot(axes, (value, at), 36, colour, mark, f"p-{at}", zorder=3)
            text = f"{name}: {value:+.1f} % ({low:+.1f} to {high:+.1f} %)"
            drawn[f"p-{at}"] = Mark(text, series=verdict)
        for verdict, (colour, mark) in verdicts.items():
            if any(point[4] == verdict for point in points):
                entry(axes, verdict, colour, mark)
        return drawn

    return Drawing(draw, height=1 + 0.3 * len(points))
