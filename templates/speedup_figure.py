"""The figure of a search: speedups of candidates by generation, with intervals and lineage."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, entry, points_of, spot
from perfpipe.viewmodel import Table

_TRIED, _FINALIST, _PROVEN = "#2f6fde", "#d9730d", "#5b9a32"

#: Colors and marks by the place of a candidate in the confirmation.
_PLACES = {"": (_TRIED, "o"), "finalist": (_FINALIST, "s"), "proven": (_PROVEN, "D")}

#: How far variants of a generation are apart, and the room around the speedups, as a factor.
_APART, _ROOM = 0.12, 1.2

#: From this ratio of the largest to the smallest speedup on, the axis is logarithmic.
_WIDE = 8


def speedup_figure(table: Table) -> Drawing | None:
    """Return speedups over the baseline by generation; lines lead from parents to candidates.

    None if no candidate was timed.
    """
    names = ("name", "generation", "variant", "parents", "speedup", "low", "high", "place")
    points = points_of(table, names, ("speedup",))
    if not points:
        return None
    first, last = min(point[1] for point in points), max(point[1] for point in points)
    middle = max(point[2] for point in points) / 2 + 0.5
    places = {
        name: (generation + _APART * (variant - middle), speedup)
        for name, generation, variant, _, speedup, *_ in points
    }

    def draw(axes: Any) -> Marks:
        axes.set(xlabel="generation", ylabel="speedup over the baseline")
        axes.axhline(1, color=GREY, linewidth=1, linestyle="--", label="baseline")
        drawn: Marks = {}
        for number, (name, _, _, parents, speedup, low, high, place) in enumerate(points):
            at = places[name]
            for parent in (parents or "").split(", "):
                if parent in places:
                    pair = zip(places[parent], at, strict=True)
                    axes.plot(*pair, color=GREY, linewidth=0.7, alpha=0.6, zorder=1)
            colour, mark = _PLACES.get(place or "", _PLACES[""])
            text = f"{name}: {speedup:.3f} x"
            if low is not None and high is not None:
                axes.plot([at[0], at[0]], [low, high], color=colour, linewidth=1.5, alpha=0.5)
                text += f" ({low:.3f} to {high:.3f})"
            spot(axes, at, 30, colour, mark, f"candidate-{number}", zorder=3)
            drawn[f"candidate-{number}"] = Mark(text)
        for place in dict.fromkeys(point[7] or "" for point in points):
            colour, mark = _PLACES.get(place, _PLACES[""])
            entry(axes, place or "candidate", colour, mark)
        speedups = [1.0, *(point[4] for point in points)]
        if max(speedups) > _WIDE * min(speedups):
            axes.set_yscale("log")
        axes.set_ylim(min(speedups) / _ROOM, max(speedups) * _ROOM)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xticks(range(first, last + 1))
        return drawn

    return Drawing(draw, width=8.0, height=3.8)
