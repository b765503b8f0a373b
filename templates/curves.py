"""Plots of a metric over a parameter, as figures that notebooks show."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from perfpipe.errors import InputError
from perfpipe.templates.figures import GREY, load_matplotlib, shade

#: Formats of files, by their ending.
_ENDINGS = (".png", ".svg", ".pdf")

#: From this ratio of the largest to the smallest value on, an axis is logarithmic.
_WIDE = 8


@dataclass(frozen=True)
class Curves:
    """Lines of points over a parameter, and horizontal lines at peaks, by their labels."""

    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[Any, float]]]
    peaks: Mapping[str, float]
    notice: str | None = None


def draw(curves: Curves) -> Any:
    """Return the figure; it is not registered with pyplot, so nothing needs to be closed."""
    from matplotlib.ticker import NullFormatter, NullLocator

    figure = _figure()(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.grid(color=GREY, alpha=0.25, linewidth=0.6)
    places = _places(curves)
    for number, (name, points) in enumerate(curves.lines.items()):
        colour, mark = shade(number)
        ordered = sorted((places[at], value) for at, value in points)
        axes.plot(
            [at for at, _ in ordered], [value for _, value in ordered],
            color=colour, marker=mark, linewidth=1, label=name or None,
        )  # fmt: skip
    for number, (label, peak) in enumerate(curves.peaks.items()):
        style = ("--", ":", "-.")[number % 3]
        axes.axhline(peak, color=GREY, linestyle=style, linewidth=1, label=label)
    if _is_wide(places):
        axes.set_xscale("log")
    axes.set_xticks(list(places.values()), [str(at) for at in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=curves.x, ylabel=curves.y)
    axes.set_ylim(bottom=0)
    if any(curves.lines) or curves.peaks:
        figure.legend(loc="outside upper left", frameon=False, ncols=3, fontsize="small")
    if curves.notice:
        figure.supxlabel(curves.notice, fontsize="x-small", color=GREY, wrap=True)
    return figure


def _places(curves: Curves) -> dict[Any, float]:
    """Return the place of each value on the axis: numbers are to scale, others in their order."""
    values = list(dict.fromkeys(at for points in curves.lines.values() for at, _ in points))
    if all(isinstance(at, int | float) and not isinstance(at, bool) for at in values):
        return {at: float(at) for at in sorted(values)}
    return {at: float(number) for number, at in enumerate(values)}


def _is_wide(places: Mapping[Any, float]) -> bool:
    smallest, largest = min(places.values()), max(places.values())
    return smallest > 0 and largest / smallest >= _WIDE and [*places] == [*places.values()]


@cache
def _figure() -> Any:
    load_matplotlib()
    from matplotlib.figure import Figure

    class Shown(Figure):
        """A figure that a notebook shows as an image, whatever its matplotlib backend."""

        def file(self, ending: str) -> bytes:
            """Return the content of a file; raises InputError for an unknown ending."""
            if ending not in _ENDINGS:
                raise InputError(
                    f"the name of a plot ends in {', '.join(_ENDINGS)}, not {ending!r}"
                )
            buffer = io.BytesIO()
            self.savefig(buffer, format=ending[1:], dpi=144, facecolor="white")
            return buffer.getvalue()

        def _repr_png_(self) -> bytes:
            return self.file(".png")

    return Shown
