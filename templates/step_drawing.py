"""The picture of a step as it is printed: SVG (also for pages without scripts), and PNG."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from perfpipe.picture import Lane, Panel, Picture, Slice, View
from perfpipe.templates.formats import shorten
from perfpipe.templates.step_picture import (
    FULL,
    HEIGHTS,
    PIXELS,
    Column,
    blocks_of,
    categories_of,
    columns_of,
    links_of,
    paint_of,
)
from perfpipe.units import format_ns

#: Sizes, pixels: the names of lanes, the whole, and what stands around lanes.
LEFT, WIDTH = 130, 1260
_GAP, _HEAD, _AXIS = 2, 15, 18

#: Width of a letter, and the least width of a slice with a name.
_LETTER, _NAMED = 6.2, 42

#: Links beyond which a still picture shows none.
MOST_LINKS = 120

#: A line: from so many ns and pixels to so many.
Segment = tuple[tuple[float, float], tuple[float, float]]

#: Ticks of the axis, about.
_TICKS = 8

#: Pixels of an inch of the SVG.
_INCH = 96

#: Color of sampled metrics.
_LINE = "#2f6fde"


def step_svg(picture: Picture, name: str, *, white: bool = False) -> str:
    """Return the first view of a picture as SVG; ids begin with `name`.

    With `white` it is a file of its own, with the legend and on white.
    """
    view = picture.views[0]
    legend = [*_legend(picture)] if white else []
    top = 44 if white else 0
    body: list[str] = []
    y = float(top)
    tops: list[float] = []
    for panel in view.panels:
        tops.append(y)
        body += _panel(picture, view, panel, y, name)
        y += height_of(panel)
    body += _links(view, tops)
    body += _axis(view.dur_ns, y)
    height = y + _AXIS
    space = ' xmlns="http://www.w3.org/2000/svg"'
    back = f'<rect width="{WIDTH}" height="{height:g}" fill="#fff"/>' if white else ""
    title = f"<title>{escape(view.title)}</title>"
    head = f'<text x="4" y="16" font-weight="600">{escape(view.title)}</text>' if white else ""
    patterns = _patterns(picture, name)
    prologue = '<?xml version="1.0" encoding="utf-8"?>\n' if white else ""
    return (
        f'{prologue}<svg{space} viewBox="0 0 {WIDTH} {height:g}" '
        'font-family="system-ui, sans-serif" '
        f'font-size="11" fill="currentColor" role="img">{title}{back}<defs>{patterns}</defs>{head}'
        f"{''.join(legend)}{''.join(body)}</svg>"
    )


def height_of(panel: Panel) -> float:
    """Return the height of a panel, pixels."""
    return _HEAD + sum(HEIGHTS[lane.kind] + _GAP for lane in panel.lanes)


def segments_of(view: View, tops: Sequence[float]) -> list[Segment]:
    """Return the lines of all links, from the lower edge of a slice to the upper edge of the next.

    `tops` are where panels begin, pixels.  None if there are too many to distinguish.
    """
    links = links_of(view)
    if len(links) > MOST_LINKS:
        return []
    lines: list[Segment] = []
    for link in links:
        for above, below in pairwise(link):
            lane = view.panels[above.panel].lanes[above.lane]
            start = tops[above.panel] + _place(view.panels[above.panel], above.lane)
            end = tops[below.panel] + _place(view.panels[below.panel], below.lane)
            lines.append(((above.start_ns, start + HEIGHTS[lane.kind]), (below.start_ns, end)))
    return lines


def _links(view: View, tops: Sequence[float]) -> Iterator[str]:
    """Yield one path of all links."""
    scale = (WIDTH - LEFT) / view.dur_ns
    lines = [
        f"M{LEFT + left * scale:.1f} {top:g}L{LEFT + right * scale:.1f} {bottom:g}"
        for (left, top), (right, bottom) in segments_of(view, tops)
    ]
    if lines:
        yield f'<path d="{"".join(lines)}" fill="none" stroke="currentColor" stroke-opacity=".6"/>'


def _place(panel: Panel, lane: int) -> float:
    """Return where a lane of a panel begins, pixels from the panel's top."""
    return _HEAD + sum(HEIGHTS[one.kind] + _GAP for one in panel.lanes[:lane])


def _patterns(picture: Picture, name: str) -> str:
    return "".join(
        f'<pattern id="{name}-{category}" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)">'
        f'<rect width="6" height="6" fill="{paint_of(category).colour}"/>'
        '<rect width="2" height="6" fill="#fff" fill-opacity=".5"/></pattern>'
        for category in categories_of(picture)
        if paint_of(category).hatched
    )


def _fill(category: str, name: str) -> str:
    paint = paint_of(category)
    return f"url(#{name}-{category})" if paint.hatched else paint.colour


def _legend(picture: Picture) -> Iterator[str]:
    x = 4.0
    for category in categories_of(picture):
        said = paint_of(category).name
        yield (
            f'<rect x="{x:g}" y="26" width="10" height="10" fill="{_fill(category, "file")}"/>'
            f'<text x="{x + 14:g}" y="35">{escape(said)}</text>'
        )
        x += 26 + _LETTER * len(said)


def _panel(picture: Picture, view: View, panel: Panel, y: float, name: str) -> Iterator[str]:
    yield f'<text x="0" y="{y + 12:g}" font-weight="600">{escape(shorten(panel.name, 60))}</text>'
    y += _HEAD
    for lane in panel.lanes:
        height = HEIGHTS[lane.kind]
        if lane.name:
            said = escape(shorten(lane.name, 20))
            yield f'<text x="0" y="{y + max(height - 3, 8):g}" font-size="10">{said}</text>'
        if lane.samples:
            yield _curve(lane, view.dur_ns, y, height)
        elif lane.kind == "idle":
            yield from _to_scale(picture, lane, view.dur_ns, y, name)
        else:
            yield from _rects(picture, lane, view.dur_ns, y, name)
        y += height + _GAP


def _curve(lane: Lane, dur_ns: int, y: float, height: int) -> str:
    scale = (WIDTH - LEFT) / dur_ns
    points = "".join(
        f"H{LEFT + max(0, min(sample.end_ns, dur_ns)) * scale:.1f}"
        f"V{y + height * (1 - min(sample.pct, 100) / 100):.1f}"
        for sample in lane.samples
    )
    return (
        f'<path d="M{LEFT} {y + height}{points}" fill="none" stroke="{_LINE}"/>'
        f'<path d="M{LEFT} {y + height}H{WIDTH}" stroke="currentColor" stroke-opacity=".3"/>'
    )


def _to_scale(picture: Picture, lane: Lane, dur_ns: int, y: float, name: str) -> Iterator[str]:
    """Yield a path for each color and opacity of a lane whose area is the time in its slices."""
    height = HEIGHTS[lane.kind]
    paths: dict[tuple[str, int], list[str]] = {}
    pens: dict[tuple[str, int], int] = {}
    for first, count, category, tenths in _columns(picture, lane, dur_ns):
        like = category, tenths
        paths.setdefault(like, []).append(f"m{first - pens.get(like, 0)} 0h{count}")
        pens[like] = first + count
    for (category, tenths), own in paths.items():
        faint = f' stroke-opacity="{tenths / 10:g}"' if tenths < 10 else ""
        yield (
            f'<path stroke="{_fill(category, name)}" stroke-width="{height}"{faint} fill="none" '
            f'd="M{LEFT} {y + height / 2:g}{"".join(own)}"/>'
        )


def _columns(picture: Picture, lane: Lane, dur_ns: int) -> list[Column]:
    return columns_of(lane.slices, picture.labels, dur_ns, WIDTH - LEFT)


def _rects(picture: Picture, lane: Lane, dur_ns: int, y: float, name: str) -> Iterator[str]:
    """Yield a path for each color of a lane, and the names of slices that have room for them."""
    scale = (WIDTH - LEFT) / dur_ns
    height = HEIGHTS[lane.kind]
    paths: dict[tuple[str, int], list[str]] = {}
    pens: dict[tuple[str, int], float] = {}
    at = 0
    for block in blocks_of(lane.slices, picture.labels, dur_ns / PIXELS):
        first, last = lane.slices[at], lane.slices[at + block.slices - 1]
        at += block.slices
        colour = block.category, 1 + block.fill // 3
        # Strokes as wide as the lane, each relative to where the one before ended: short to write.
        # Lines of code follow each other without a gap.
        wide = _span(first, last) * scale - (0.8 if lane.kind == "code" else 0)
        x, width = round(first.start_ns * scale, 1), max(round(wide, 1), 0.4)
        moved = x - pens.get(colour, 0.0)
        pens[colour] = x + width
        paths.setdefault(colour, []).append(f"m{moved:.1f} 0h{width:.1f}".replace(".0", ""))
    for (category, fill), own in paths.items():
        faint = f' stroke-opacity="{0.25 * fill:.2f}"' if fill < 1 + FULL // 3 else ""
        yield (
            f'<path stroke="{_fill(category, name)}" stroke-width="{height}"{faint} fill="none" '
            f'd="M{LEFT} {y + height / 2:g}{"".join(own)}"/>'
        )
    for one in lane.slices:
        if one.dur_ns * scale >= _NAMED and lane.kind in ("range", "code", "stream"):
            letters = int((one.dur_ns * scale - 6) / _LETTER)
            said = escape(shorten(picture.labels[one.label].name, max(letters, 3)))
            x = LEFT + one.start_ns * scale + 3
            place = f'x="{x:.1f}" y="{y + height - 3:g}"'
            yield f'<text {place} font-size="10" fill="#fff">{said}</text>'


def _span(first: Slice, last: Slice) -> int:
    return last.start_ns + last.dur_ns - first.start_ns


def _axis(dur_ns: int, y: float) -> Iterator[str]:
    for ns in ticks_of(dur_ns):
        x = LEFT + ns * (WIDTH - LEFT) / dur_ns
        yield (
            f'<path d="M{x:.1f} {y:g}v4" stroke="currentColor"/>'
            f'<text x="{x:.1f}" y="{y + 15:g}" font-size="10" text-anchor="middle">'
            f"{format_ns(ns)}</text>"
        )


def ticks_of(dur_ns: int) -> Sequence[int]:
    """Return round times along an axis.

    >>> ticks_of(1000)
    range(0, 1001, 200)
    """
    rough = max(dur_ns / _TICKS, 1)
    power = 10 ** (len(str(int(rough))) - 1)
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough)
    return range(0, dur_ns + 1, step)


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
                elif lane.kind == "idle":
                    unit = view.dur_ns / 1e6 / (WIDTH - LEFT)
                    filled: dict[tuple[str, float], list[tuple[float, float]]] = {}
                    for first, count, category, tenths in _columns(picture, lane, view.dur_ns):
                        spans = filled.setdefault((category, tenths / 10), [])
                        spans.append((first * unit, count * unit))
                    _fill_bars(axes, filled, y, tall)
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
    spans: dict[tuple[str, float], list[tuple[float, float]]] = {}
    at = 0
    for block in blocks_of(slices, picture.labels, dur_ns / PIXELS):
        first, last = slices[at], slices[at + block.slices - 1]
        at += block.slices
        span = (last.start_ns + last.dur_ns - first.start_ns) / 1e6
        alpha = max(block.fill / FULL, 0.2)
        spans.setdefault((block.category, alpha), []).append((first.start_ns / 1e6, span))
    _fill_bars(axes, spans, y, tall)


def _fill_bars(
    axes: Any, spans: Mapping[tuple[str, float], list[tuple[float, float]]], y: float, tall: int
) -> None:
    """Fill spans, ms, by category and opacity."""
    for (category, alpha), own in spans.items():
        paint = paint_of(category)
        axes.broken_barh(
            own, (y, tall), facecolors=paint.colour, alpha=alpha, linewidth=0,
            hatch="////" if paint.hatched else None, edgecolor="white",
        )  # fmt: skip
