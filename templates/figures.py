"""Figures as deterministic SVG, legible on light and dark pages."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from perfpipe.templates.formats import shorten
from perfpipe.viewmodel import Table

#: Colors and marks of the bounds; both, so that color is not the only cue.
CLASSES = {
    "compute": ("#2f6fde", "o"),
    "memory": ("#d9730d", "s"),
    "latency": ("#8e5bd0", "^"),
    "launch": ("#5b9a32", "D"),
    "balanced": ("#c2417a", "P"),
}
GREY = "#808890"

#: Letters of a legend per inch, and the letters that the sign before an entry takes up.
_LETTERS, _SIGN = 12, 6

#: Maximum number of marks; the table has the rest.
_MOST = 200

#: Units of axes of bytes.
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


class Mark(NamedTuple):
    """A mark of a figure: its hover text, kernel and legend entry."""

    title: str
    key: str = ""
    series: str = ""


Marks = dict[str, Mark]


def sol_figure(table: Table) -> Drawing | None:
    """Return compute over memory SOL of the profiled kernels, area by duration.

    `table` is the one of profiled kernels; None where it holds no classified launch.
    """
    names = ("kernel_name", "bound", "memory_sol_pct", "compute_sol_pct", "duration_ns")
    points = points_of(table, names, names[2:])
    if not points:
        return None

    def draw(axes: Any) -> Marks:
        axes.set(xlim=(-5, 105), ylim=(-5, 105), xlabel="memory SOL (%)", ylabel="compute SOL (%)")
        longest = max(float(duration) for *_, duration in points)
        drawn = {}
        for number, (name, bound, memory, compute, duration) in enumerate(points):
            colour, mark = CLASSES.get(bound, (GREY, "x"))
            size = 14 + 500 * duration / longest
            spot(axes, (memory, compute), size, colour, mark, f"kernel-{number}", alpha=0.65)
            drawn[f"kernel-{number}"] = Mark(
                f"{name}: compute {compute:.1f} %, memory {memory:.1f} %, {bound}", name, bound
            )
        present = {point[1] for point in points}
        for bound, (colour, mark) in CLASSES.items():
            if bound in present:
                entry(axes, bound, colour, mark)
        return drawn

    return Drawing(draw)


@dataclass(frozen=True)
class Drawing:
    """Axes side by side, in inches; `draw` draws on them and returns its marks by id.

    With one panel `draw` gets its axes, with several a list of them.
    """

    draw: Callable[[Any], Marks]
    width: float = 6.4
    height: float = 4.2
    panels: int = 1

    def svg(self, name: str) -> str:
        """Return SVG for a page, below its legend as a list: no prologue, hover text on each mark.

        Its ids begin with `name`, so that those of several figures on a page differ.
        """
        buffer = io.StringIO()
        marks, legend = self._save(
            buffer, "svg", within=False, transparent=True, metadata={"Date": None}
        )
        return _listed(legend) + _for_a_page(buffer.getvalue(), name, marks)

    def file(self, kind: Literal["svg", "png"]) -> bytes:
        """Return the content of a standalone file, on white."""
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        self._save(buffer, kind, facecolor="white", dpi=144, metadata=metadata)
        return buffer.getvalue()

    def _save(
        self, buffer: Any, kind: str, *, within: bool = True, **options: Any
    ) -> tuple[Marks, dict[str, Any]]:
        """Draw a file; with `within` it contains the legend."""
        load_matplotlib()
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        style: Any = {
            "svg.hashsalt": "perfpipe",
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "text.color": GREY,
            "axes.edgecolor": GREY,
            "axes.labelcolor": GREY,
            "xtick.color": GREY,
            "ytick.color": GREY,
        }
        with rc_context(style):
            layout = ConstrainedLayoutEngine()
            figure = Figure(figsize=(self.width, self.height), layout=layout)
            axes = list(figure.subplots(1, self.panels, squeeze=False)[0])
            for each in axes:
                each.grid(color=GREY, alpha=0.25, linewidth=0.6)
            marks = self.draw(axes if self.panels > 1 else axes[0])
            handles, labels = axes[0].get_legend_handles_labels()
            if handles and within:
                longest = max(map(len, labels)) + _SIGN
                figure.legend(
                    handles,
                    labels,
                    frameon=False,
                    loc="outside upper left",
                    ncols=max(1, min(5, int(self.width * _LETTERS / longest))),
                    labelcolor=GREY,
                )
            # savefig would lay it out by drawing it whole, once more than it has to.
            if kind == "svg":
                FigureCanvasSVG(figure)
                figure.dpi = 72
            else:
                figure.dpi = options["dpi"]
            layout.execute(figure)
            figure.set_layout_engine(None)
            figure.savefig(buffer, format=kind, **options)
        return marks, dict(zip(labels, handles, strict=True))


def load_matplotlib() -> None:
    """Import the modules for drawing SVG, so that drawing does not have to.

    Without the texts on properties that matplotlib writes into its own documentation: they take a
    third of the time.
    """
    import matplotlib.artist

    matplotlib.artist.kwdoc = lambda artist: ""
    import matplotlib.backends.backend_svg
    import matplotlib.figure
    import matplotlib.layout_engine
    import matplotlib.ticker


def block(axes: Any, left: float, bottom: float, width: float, height: float, colour: str) -> Any:
    """Draw a part of a bar; the limits of the axes stay, which bars would work out each time."""
    from matplotlib.patches import Rectangle

    return axes.add_artist(Rectangle((left, bottom), width, height, facecolor=colour, linewidth=0))


def spot(
    axes: Any,
    at: tuple[float, float],
    size: float,
    colour: Any,
    mark: str,
    gid: str,
    **options: Any,
) -> None:
    """Draw one mark of a size in points squared; `options` are those of a collection.

    `scatter` draws the same, but works out the limits of all marks for each.
    """
    spots = _spots(axes, [at], size, colour, mark, **options)
    spots.set_gid(gid)
    axes.update_datalim([at])
    axes.autoscale(None)


def entry(axes: Any, label: str, colour: str, mark: str = "s") -> None:
    """Add an entry to the legend."""
    _spots(axes, [], 36, colour, mark).set_label(label)


def _spots(
    axes: Any,
    places: list[tuple[float, float]],
    size: float,
    colour: Any,
    mark: str,
    **options: Any,
) -> Any:
    import numpy as np
    from matplotlib.collections import PathCollection
    from matplotlib.transforms import IdentityTransform

    path, width = _outline(mark)
    style = {"facecolors": [colour], "edgecolors": "face", "linewidths": width}
    offsets = np.array(places, dtype=float).reshape(-1, 2)
    spots = PathCollection((path,), (size,), offsets=offsets, **(style | options))
    spots.set_offset_transform(axes.transData)
    spots.set_transform(IdentityTransform())
    return axes.add_collection(spots, autolim=False)


@cache
def _outline(mark: str) -> tuple[Any, float | None]:
    """Return the path of a mark, and the width of its line if it is only a line."""
    from matplotlib import rcParams
    from matplotlib.markers import MarkerStyle

    style = MarkerStyle(mark)
    path = style.get_path().transformed(style.get_transform())
    return path, None if style.is_filled() else rcParams["lines.linewidth"]


def shade(number: int) -> tuple[str, str]:
    """Return the color and mark of one of several lines."""
    return list(CLASSES.values())[number % len(CLASSES)]


def launches_of(
    table: Table, names: tuple[str, ...], needed: tuple[str, ...]
) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the launch name of each row and the named cells, for rows that have the needed ones.

    Launches are numbered within a report, so that several reports need the configuration as well.
    """
    labelled = any(column.name == "label" for column in table.columns)
    who = ("kernel_name", "launch_id", *(["label"] if labelled else []))
    found = points_of(table, (*who, *names), ("launch_id", *needed))
    several = labelled and len({row[2] for row in found}) > 1
    made = []
    for row in found:
        name = f"{shorten(str(row[0]), 26 if several else 38)} ({row[1]})"
        name += f", {shorten(str(row[2]), 24)}" if several else ""
        made.append((name, row[len(who) :]))
    return made


def byte_scale(most: float) -> tuple[float, str]:
    """Return the largest unit of bytes that `most` reaches, with its name, for an axis."""
    return next((pair for pair in _BYTES if most >= pair[0]), _BYTES[-1])


def gpus_of(
    table: Table, names: tuple[str, ...], needed: tuple[str, ...], most: int = _MOST
) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the GPU name of each row and the named cells, for rows that have the needed ones."""
    known = [column.name for column in table.columns]
    who = tuple(name for name in ("label", "device") if name in known)
    made = []
    for row in points_of(table, (*who, *names), needed, most):
        *label, device = row[: len(who)]
        known_by = [str(name) for name in label if name != "-"]
        made.append((", ".join([*known_by, f"GPU {device}"]), row[len(who) :]))
    return made


def points_of(
    table: Table, names: tuple[str, ...], needed: tuple[str, ...], most: int = _MOST
) -> list[tuple[Any, ...]]:
    """Return the named cells of the rows in which the needed ones are known, but no more.

    Raises ValueError for a table that lacks one of the columns: it cannot be drawn so.
    """
    at = {column.name: index for index, column in enumerate(table.columns)}
    if lost := [name for name in names if name not in at]:
        raise ValueError(f"the figure of '{table.title}' lacks the columns {', '.join(lost)}")
    return [
        tuple(row[at[name]] for name in names)
        for row in table.rows
        if all(row[at[name]] is not None for name in needed)
    ][:most]


def _listed(legend: dict[str, Any]) -> str:
    """Return a legend as a list, each label behind its sign; empty if there is none."""
    from markupsafe import escape

    items = "".join(
        f'<li data-legend="{escape(label)}"><i class="sign" data-sign="{_sign(handle)}" '
        f'style="color:{_colour(handle)}"></i>{escape(label)}</li>'
        for label, handle in legend.items()
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


#: How a page shows marks, lines and areas.
_SIGNS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "P": "✚", "x": "✕"}
_LINE, _AREA = "―", "■"


def _sign(handle: Any) -> str:
    import numpy as np
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D

    if isinstance(handle, Line2D):
        return _LINE
    if isinstance(handle, PathCollection):
        drawn = np.asarray(handle.get_paths()[0].vertices)
        for mark, sign in _SIGNS.items():
            outline = np.asarray(_outline(mark)[0].vertices)
            if outline.shape == drawn.shape and (outline == drawn).all():
                return sign
    return _AREA


def _colour(handle: Any) -> str:
    from matplotlib.colors import to_hex

    for ask in ("get_facecolor", "get_edgecolor", "get_color"):
        found = getattr(handle, ask, lambda: "none")()
        # That of a collection has a row for each mark.
        one = found[0] if getattr(found, "ndim", 1) == 2 and len(found) else found
        if not isinstance(one, str) and len(one) and one[-1] > 0:
            return to_hex(one)
        if isinstance(one, str) and one != "none":
            return to_hex(one)
    return GREY


def _for_a_page(svg: str, name: str, marks: Marks) -> str:
    """Add attributes to marks, for the script."""
    from markupsafe import escape

    svg = svg[svg.index("<svg") :]
    for gid, mark in marks.items():
        said = f' data-key="{escape(mark.key)}"' if mark.key else ""
        said += f' data-series="{escape(mark.series)}"' if mark.series else ""
        start = f'<g id="{gid}" class="mark"{said}><title>{escape(mark.title)}</title>'
        svg = svg.replace(f'<g id="{gid}">', start, 1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
    return re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
