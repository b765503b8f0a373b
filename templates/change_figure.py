"""The figure of a change: from the step before to the step after, by category."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.bars import CATEGORIES
from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, points_of
from perfpipe.units import format_ns, words
from perfpipe.viewmodel import Table

#: Least share of the larger step that has a bar of its own.
_LEAST = 0.002


def change_figure(table: Table) -> Drawing | None:
    """Return bars from the step before over the change of each category to the step after."""
    rows = points_of(table, ("part", "change_ns", "so_far_ns"), ("so_far_ns",))
    if len(rows) < 3:
        return None
    largest = max(so_far for _, _, so_far in rows)
    shown = [row for row in rows if row[1] is None or abs(row[1]) >= _LEAST * largest]

    def draw(axes: Any) -> Marks:
        drawn: Marks = {}
        axes.set(xlabel="ms")
        for place, (part, change, so_far) in enumerate(shown):
            left, width = (0, so_far) if change is None else (so_far - change, change)
            colour = CATEGORIES.get(part, GREY)
            hatch = None if change is None or change > 0 else "//"
            (bar,) = axes.barh(
                [place],
                [width / 1e6],
                0.7,
                left / 1e6,
                color=colour,
                hatch=hatch,
                edgecolor="white",
            )
            bar.set_gid(f"change-{place}")
            ns = so_far if change is None else change
            sign = "" if change is None else "+" if change > 0 else "-"
            said = f"{sign}{format_ns(abs(ns))}"
            drawn[f"change-{place}"] = Mark(f"{words(part)}: {said}")
            end = max(left, left + width) / 1e6
            axes.text(end, place, f" {said}", va="center", fontsize=9)
        axes.set_yticks(range(len(shown)), [words(part) for part, *_ in shown])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.12e-6 * largest)
        axes.grid(visible=False, axis="y")
        return drawn

    return Drawing(draw, 8.4, 0.7 + 0.26 * len(shown))
