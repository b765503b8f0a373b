"""The figure of nodes or GPUs compared."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, entry, points_of, spot
from perfpipe.templates.formats import shorten
from perfpipe.viewmodel import Table

#: Maximum number of places; the table has the rest.
_MOST = 24

#: Colors and marks by verdict; gray for those like the others.
_VERDICTS = {"slower": ("#d9730d", "s"), "faster": ("#2f6fde", "^")}


def places_figure(table: Table) -> Drawing | None:
    """Return how places differ from the median one, with intervals; None if none was compared."""
    names = ("place", "change_pct", "low_pct", "high_pct", "verdict")
    points = points_of(table, names, names[1:4], _MOST)
    if not points:
        return None

    def draw(axes: Any) -> Marks:
        axes.set(xlabel="time for the same work, change from the median (%)")
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set_yticks(range(len(points)), [shorten(str(point[0]), 32) for point in points])
        axes.invert_yaxis()
        drawn = {}
        for at, (name, change, low, high, verdict) in enumerate(points):
            colour, mark = _VERDICTS.get(verdict, (GREY, "o"))
            axes.plot([low, high], [at, at], color=colour, linewidth=2)
            spot(axes, (change, at), 36, colour, mark, f"p-{at}", zorder=3)
            text = f"{name}: {change:+.1f} % ({low:+.1f} to {high:+.1f} %)"
            drawn[f"p-{at}"] = Mark(text, series=verdict)
        for verdict, (colour, mark) in _VERDICTS.items():
            if any(point[4] == verdict for point in points):
                entry(axes, verdict, colour, mark)
        return drawn

    return Drawing(draw, height=1 + 0.3 * len(points))
