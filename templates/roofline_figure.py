"""The roofline: FLOP/s over arithmetic intensity, at each memory level."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import CLASSES, GREY, Drawing, Mark, Marks, entry, points_of, spot
from perfpipe.viewmodel import Table

#: Memory levels of the roofline: dash of the roof, opacity of marks, and opacity in words.
_LEVELS = {"dram": ("-", 0.8, "solid"), "l2": ("--", 0.35, "pale"), "l1": (":", 0.0, "hollow")}


def roofline_figure(table: Table) -> Drawing | None:
    """Return the hierarchical roofline, with the vendor's peaks as its ceilings.

    Colour and shape are the class, area is duration, fill is the memory level.
    `table` is the one of rooflines: each kernel has a mark for each memory level, with the peak at
    its own clock as hover text.  None where no kernel has operations, traffic and peaks.
    """
    names = (
        *("kernel_name", "precision", "level", "intensity", "flop_per_s"),
        *("peak_flop_per_s", "peak_bytes_per_s", "duration_ns", "launch_id", "bound"),
        *("peak_flop_per_s_nominal", "peak_flop_per_s_max_clock"),
    )
    known = [p for p in points_of(table, names, names[3:8]) if min(p[3:7]) > 0]
    # A kernel with several precisions is drawn at the one closest to its peak.
    nearest = {(p[0], p[8]): p[1] for p in sorted(known, key=lambda p: p[4] / p[5])}
    points = [p for p in known if nearest[p[0], p[8]] == p[1]]
    if not points:
        return None

    def draw(axes: Any) -> Marks:
        from matplotlib.ticker import EngFormatter, NullFormatter

        left, right = min(p[3] for p in points) / 3, max(p[3] for p in points) * 3
        axes.set(xscale="log", yscale="log", xlim=(left, right))
        axes.set(xlabel="arithmetic intensity (FLOP/B)", ylabel="FLOP/s")
        # Plain text: rendering math text takes longer than all the marks.
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter(EngFormatter())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(NullFormatter())
        _roofs(axes, points, left, right)
        longest = max(p[7] for p in points)
        drawn = {}
        for number, (
            name,
            precision,
            level,
            intensity,
            rate,
            peak,
            _,
            duration,
            _,
            bound,
            *_,
        ) in enumerate(points):
            colour, mark = CLASSES.get(bound, (GREY, "x"))
            full = (colour, _LEVELS[level][1]) if bound in CLASSES else colour
            size = 14 + 300 * duration / longest
            edge = colour if bound in CLASSES else "face"
            spot(axes, (intensity, rate), size, full, mark, f"roof-{number}", edgecolors=edge)
            title = (
                f"{name}, {precision}, {level}: {intensity:.4g} FLOP/B, {rate / 1e12:.4g} TFLOP/s "
                f"of {peak / 1e12:.4g} at the measured clock, {bound}"
            )
            drawn[f"roof-{number}"] = Mark(title, name, bound or "")
        for bound, (colour, mark) in CLASSES.items():
            if any(p[9] == bound for p in points):
                entry(axes, bound, colour, mark)
        return drawn

    return Drawing(draw, height=4.8)


def _ceilings(points: list[tuple[Any, ...]]) -> dict[str, tuple[float, str]]:
    """Return the peak of each precision, and a note if it is not the vendor's peak.

    Peaks at the clocks of their kernels do not compare: one precision may have run at a higher
    clock than another.
    """
    ceilings = {}
    for precision in sorted({p[1] for p in points}):
        of_it = [p for p in points if p[1] == precision]
        for column, what in ((10, ""), (11, " at maximum clock"), (5, " at measured clock")):
            if known := [p[column] for p in of_it if p[column]]:
                ceilings[precision] = max(known), what
                break
    return ceilings


def _roofs(axes: Any, points: list[tuple[Any, ...]], left: float, right: float) -> None:
    """Draw a roof for each level and precision; of the clocks of levels the highest is drawn."""
    ceilings = _ceilings(points)
    top = max(peak for peak, _ in ceilings.values())
    for level, (dash, _, marks) in _LEVELS.items():
        bandwidth = max((p[6] for p in points if p[2] == level), default=0)
        if bandwidth:
            ends = [left, min(right, top / bandwidth)]
            label = f"{level} {bandwidth / 1e12:.3g} TB/s ({marks} marks)"
            axes.plot(
                ends, [x * bandwidth for x in ends], dash, color=GREY, linewidth=1, label=label
            )
    # Side by side, since peaks of different precisions can be close together.
    for number, (precision, (peak, what)) in enumerate(ceilings.items()):
        axes.axhline(peak, color=GREY, linewidth=0.8)
        axes.annotate(
            f"{precision.replace('tensor_', 'tensor ')} {peak / 1e12:,.0f} TFLOP/s{what}",
            (1 - 0.2 * (number % 5), peak), xycoords=("axes fraction", "data"),
            ha="right", va="bottom", fontsize=7,
        )  # fmt: skip
