"""The picture of a step as PNG, with matplotlib, where SVG is not shown."""

from __future__ import annotations

import io
from typing import Any

from perfpipe.picture import Picture
from perfpipe.templates.formats import shorten
from perfpipe.templates.step_colours import categories_of, paint_of
from perfpipe.templates.step_levels import FULL, PIXELS, blocks_of
from perfpipe.templates.step_svg import HEIGHTS, height_of, segments_of

#: Pixels of an inch of the SVG.
_INCH = 96

#: Color of sampled metrics.
_LINE = "#2f6fde"


def step_png(picture: Picture) -> bytes:
    """Return the first view of a picture; the same picture gives the same bytes."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    view = picture.views[0]
    height = sum(map(height_of, view.panels))
    with rc_context({"font.family": "sans-serif", "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(1260 / _INCH, (height + 90) / _INCH), layout="constrained")
        FigureCanvasAgg(figure)
        axes: Any = figure.subplots()
        y, ticks, tops = 0.0, [], []
        for panel in view.panels:
            tops.append(y)
            axes.text(0, y + 10, shorten(panel.name, 60), fontsize=8, weight="bold", va="center")
            y += height_of(panel) - sum(HEIGHTS[lane.kind] + 2 for lane in panel.lanes)
            for lane in panel.lanes:
                tall = HEIGHTS[lane.kind]
                if lane.name:
                    ticks.append((y + tall / 2, shorten(lane.name, 22)))
                if lane.samples:
                    xs = [sample.end_ns / 1e6 for sample in lane.samples]
                    levels = [
                        y + tall * (1 - min(sample.pct, 100) / 100) for sample in lane.samples
                    ]
                    axes.step(xs, levels, linewidth=0.8, color=_LINE)
                else:
                    _bars(axes, picture, lane.slices, view.dur_ns, y, tall)
                y += tall + 2
        links = [[(at / 1e6, pixels) for at, pixels in ends] for ends in segments_of(view, tops)]
        axes.add_collection(LineCollection(links, colors="#666", linewidths=0.7))
        axes.set(xlim=(0, view.dur_ns / 1e6), ylim=(y, 0), xlabel="ms", title=view.title)
        axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks], fontsize=7)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        paints = [paint_of(name) for name in categories_of(picture)]
        handles = [Patch(facecolor=p.colour, hatch="////" if p.hatched else None, edgecolor="white",
                         linewidth=0, label=p.name) for p in paints]  # fmt: skip
        figure.legend(
            handles=handles, loc="outside lower center", ncols=9, fontsize=7, frameon=False
        )
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_INCH, metadata={"Software": None})
    return buffer.getvalue()


def _bars(axes: Any, picture: Picture, slices: Any, dur_ns: int, y: float, tall: int) -> None:
    spans: dict[tuple[str, int], list[tuple[float, float]]] = {}
    at = 0
    for block in blocks_of(slices, picture.labels, dur_ns / PIXELS):
        first, last = slices[at], slices[at + block.slices - 1]
        at += block.slices
        span = (last.start_ns + last.dur_ns - first.start_ns) / 1e6
        spans.setdefault((block.category, block.fill), []).append((first.start_ns / 1e6, span))
    for (category, fill), own in spans.items():
        paint = paint_of(category)
        axes.broken_barh(
            own, (y, tall), facecolors=paint.colour, alpha=max(fill / FULL, 0.2), linewidth=0,
            hatch="////" if paint.hatched else None, edgecolor="white",
        )  # fmt: skip
