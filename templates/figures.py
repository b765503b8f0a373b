"""Figures as deterministic SVG, legible on light and dark pages."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from perfpipe.viewmodel import Table

#: Colours and marks of the classes; both, so that colour is not the only cue.
_CLASSES = {
    "compute": ("#2f6fde", "o"),
    "memory": ("#d9730d", "s"),
    "latency": ("#8e5bd0", "^"),
    "launch": ("#5b9a32", "D"),
    "balanced": ("#c2417a", "P"),
}
GREY = "#808890"

#: Marks drawn; the rest is in the table.
_MOST = 200


def sol_figure(table: Table) -> Drawing | None:
    """Return compute against memory speed of light of the profiled kernels, area by duration.

    `table` is the one of profiled kernels; None where it holds no classified launch.
    """
    names = ("kernel_name", "bound", "memory_sol_pct", "compute_sol_pct", "duration_ns")
    points = points_of(table, names, names[2:])
    if not points:
        return None

    def draw(axes: Any) -> dict[str, str]:
        axes.set(xlim=(-5, 105), ylim=(-5, 105), xlabel="memory SOL (%)", ylabel="compute SOL (%)")
        longest = max(float(duration) for *_, duration in points)
        titles = {}
        for number, (name, bound, memory, compute, duration) in enumerate(points):
            colour, mark = _CLASSES.get(bound, (GREY, "x"))
            size = 14 + 500 * duration / longest
            marks = axes.scatter([memory], [compute], s=size, c=colour, marker=mark, alpha=0.65)
            marks.set_gid(f"kernel-{number}")
            titles[f"kernel-{number}"] = (
                f"{name}: compute {compute:.1f} %, memory {memory:.1f} %, {bound}"
            )
        present = {point[1] for point in points}
        for bound, (colour, mark) in _CLASSES.items():
            if bound in present:
                axes.scatter([], [], c=colour, marker=mark, label=bound)
        return titles

    return Drawing(draw)


#: Memory levels of the roofline, and the dash of each.
_LEVELS = {"dram": "-", "l2": "--", "l1": ":"}
_LEVEL_MARKS = {"dram": ("#d9730d", "s"), "l2": ("#8e5bd0", "^"), "l1": ("#5b9a32", "D")}


def roofline_figure(table: Table) -> Drawing | None:
    """Return the hierarchical roofline at the measured clock, area by duration.

    `table` is the one of rooflines: each kernel has a mark for each memory level.  None where
    it holds no kernel with operations, traffic and peaks.
    """
    names = (
        *("kernel_name", "precision", "level", "intensity", "flop_per_s"),
        *("peak_flop_per_s", "peak_bytes_per_s", "duration_ns"),
    )
    known = [p for p in points_of(table, (*names, "launch_id"), names[3:]) if min(p[3:7]) > 0]
    # Of a kernel that computes in several precisions, the one nearest to its peak.
    nearest = {(p[0], p[8]): p[1] for p in sorted(known, key=lambda p: p[4] / p[5])}
    points = [p[:8] for p in known if nearest[p[0], p[8]] == p[1]]
    if not points:
        return None

    def draw(axes: Any) -> dict[str, str]:
        left, right = min(p[3] for p in points) / 3, max(p[3] for p in points) * 3
        axes.set(xscale="log", yscale="log", xlim=(left, right))
        axes.set(xlabel="arithmetic intensity (FLOP/B)", ylabel="FLOP/s")
        # A roof for each level and precision: clocks differ a little, so the highest is drawn.
        bandwidths = {
            level: max((p[6] for p in points if p[2] == level), default=0) for level in _LEVELS
        }
        peaks = {p[1]: max(q[5] for q in points if q[1] == p[1]) for p in points}
        top = max(peaks.values())
        for level, bandwidth in bandwidths.items():
            if bandwidth:
                ends = [left, min(right, top / bandwidth)]
                heights = [x * bandwidth for x in ends]
                axes.plot(ends, heights, _LEVELS[level], color=GREY, linewidth=1)
        for precision, peak in sorted(peaks.items()):
            axes.axhline(peak, color=GREY, linewidth=0.8)
            axes.annotate(
                f"{precision.replace('tensor_', 'tensor ')} {peak / 1e12:,.0f} TFLOP/s",
                (right, peak), ha="right", va="bottom", fontsize=7,
            )  # fmt: skip
        longest = max(p[7] for p in points)
        titles = {}
        for number, (name, precision, level, intensity, rate, _, _, duration) in enumerate(points):
            colour, mark = _LEVEL_MARKS[level]
            size = 14 + 300 * duration / longest
            marks = axes.scatter([intensity], [rate], s=size, c=colour, marker=mark, alpha=0.6)
            marks.set_gid(f"roof-{number}")
            titles[f"roof-{number}"] = (
                f"{name}, {precision}, {level}: {intensity:.4g} FLOP/B, {rate / 1e12:.4g} TFLOP/s"
            )
        for level, (colour, mark) in _LEVEL_MARKS.items():
            if bandwidths[level]:
                label = f"{level} {bandwidths[level] / 1e12:.3g} TB/s"
                axes.scatter([], [], c=colour, marker=mark, label=label)
        return titles

    return Drawing(draw)


def tuning_figure(table: Table) -> Drawing | None:
    """Return the times of a search in the order of trial, with the best so far as a line."""
    names = ("index", "generation", "time_ms", "label")
    points = sorted(points_of(table, names, names[:3]))
    if not points:
        return None

    def draw(axes: Any) -> dict[str, str]:
        axes.set(xlabel="configuration, in the order of trial", ylabel="time (ms)", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        shades = list(_CLASSES.values())
        titles: dict[str, str] = {}
        so_far: list[float] = []
        for number, (index, generation, time, label) in enumerate(points):
            colour, mark = shades[generation % len(shades)]
            marks = axes.scatter([index], [time], s=34, c=colour, marker=mark, alpha=0.8)
            marks.set_gid(f"trial-{number}")
            titles[f"trial-{number}"] = f"{label}: {time:.4g} ms"
            so_far.append(min([time, *so_far[-1:]]))
        axes.step([p[0] for p in points], so_far, where="post", color=GREY, linewidth=1)
        for generation in sorted({point[1] for point in points}):
            colour, mark = shades[generation % len(shades)]
            axes.scatter([], [], c=colour, marker=mark, label=f"generation {generation}")
        return titles

    return Drawing(draw)


@dataclass(frozen=True)
class Drawing:
    """One pair of axes, in inches; `draw` draws, and gives each mark's hover text by its id."""

    draw: Callable[[Any], dict[str, str]]
    width: float = 6.4
    height: float = 4.2

    def svg(self) -> str:
        """Return SVG for a page: without a prologue, with a text on each mark."""
        buffer = io.StringIO()
        titles = self._save(buffer, "svg", transparent=True, metadata={"Date": None})
        return _with_titles(buffer.getvalue(), titles)

    def file(self, kind: Literal["svg", "png"]) -> bytes:
        """Return the content of a file that stands for itself, on white."""
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        self._save(buffer, kind, facecolor="white", dpi=144, metadata=metadata)
        return buffer.getvalue()

    def _save(self, buffer: Any, kind: str, **options: Any) -> dict[str, str]:
        from matplotlib import rc_context
        from matplotlib.figure import Figure

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
            figure = Figure(figsize=(self.width, self.height), layout="constrained")
            axes = figure.add_subplot()
            axes.grid(color=GREY, alpha=0.25, linewidth=0.6)
            titles = self.draw(axes)
            if axes.get_legend_handles_labels()[0]:
                figure.legend(frameon=False, loc="outside upper left", ncols=5, labelcolor=GREY)
            figure.savefig(buffer, format=kind, **options)
        return titles


def points_of(
    table: Table, names: tuple[str, ...], needed: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Return the named cells of the rows in which the needed ones are known."""
    at = {column.name: index for index, column in enumerate(table.columns)}
    if not set(names) <= at.keys():
        return []
    return [
        tuple(row[at[name]] for name in names)
        for row in table.rows
        if all(row[at[name]] is not None for name in needed)
    ][:_MOST]


def _with_titles(svg: str, titles: dict[str, str]) -> str:
    """Give each mark the text that a browser shows on hover, and drop the XML prologue."""
    from markupsafe import escape

    for gid, title in titles.items():
        # What stands before the first colon or comma is the kernel, in the figures of kernels.
        key = escape(re.split(r"[:,] ", title, maxsplit=1)[0])
        marked = f'<g id="{gid}" data-key="{key}"><title>{escape(title)}</title>'
        svg = svg.replace(f'<g id="{gid}">', marked, 1)
    svg = svg[svg.index("<svg") :]
    return re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
