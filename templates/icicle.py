"""A tree of times as an icicle: parts are below their parent, and widths are times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from perfpipe.templates.figures import Drawing, Marks, block, points_of
from perfpipe.templates.formats import format_value, shorten
from perfpipe.viewmodel import Table

#: Colors of the outermost parts in turn; white text is legible on each.
_COLOURS = ("#2f6fde", "#7a4fbf", "#1f6f78", "#a0522d", "#5b6b7c", "#a8326b", "#4a7a28")

#: Height of a row, px; share of the whole below which nothing is drawn, %; rows of a tree.
_ROW, _LEAST, _MOST = 22, 0.1, 500

#: Size of the picture in a file, px, and pixels of an inch.
_WIDE, _INCH = 1200, 96


class Box(NamedTuple):
    """A part: its name, how many parts it lies in, start and width in % of the whole; its color."""

    name: str
    title: str
    depth: int
    start: float
    width: float
    colour: str


@dataclass(frozen=True)
class Icicle:
    """Boxes that are never wider than those around them."""

    boxes: tuple[Box, ...]

    @property
    def _rows(self) -> int:
        return 1 + max(box.depth for box in self.boxes)

    def svg(self, name: str) -> str:
        """Return SVG as wide as the page; its id is `name`."""
        tall = self._rows * _ROW
        return (
            f'<svg id="{name}" class="icicle" style="--tall:{tall}px" width="100%" height="{tall}">'
            f"{self._marks()}</svg>"
        )

    def _marks(self) -> str:
        from markupsafe import escape

        return "".join(
            f'<svg class="mark" data-depth="{box.depth}" x="{box.start:.4f}%" '
            f'y="{box.depth * _ROW}" width="{box.width:.4f}%" height="{_ROW}">'
            f"<title>{escape(box.title)}</title>"
            f'<rect width="100%" height="100%" fill="{box.colour}" stroke="#fff"/>'
            f'<text x="4" y="15" fill="#fff" font-size="12">{escape(box.name)}</text></svg>'
            for box in self.boxes
        )

    def file(self, kind: Literal["svg", "png"]) -> bytes:
        """Return the content of a standalone file, on white."""
        if kind == "png":
            return Drawing(self._drawn, _WIDE / _INCH, self._rows * _ROW / _INCH + 0.4).file("png")
        tall = self._rows * _ROW
        return (
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{tall}" '
            f'font-family="sans-serif">{self._marks()}</svg>\n'
        ).encode()

    def _drawn(self, axes: Any) -> Marks:
        axes.set(xlim=(0, 100), ylim=(self._rows, 0), yticks=[], xlabel="% of the GPU time")
        for box in self.boxes:
            block(axes, box.start, box.depth + 0.03, box.width, 0.94, box.colour)
            if room := int(box.width * _WIDE / 100 / 7):
                name = shorten(box.name, room) if room > 3 else ""
                axes.text(
                    box.start + 0.2, box.depth + 0.5, name, va="center", fontsize=8, color="white"
                )
        return {}


def icicle(table: Table) -> Icicle | None:
    """Return the icicle of a table of ranges as a tree; None if no range is inside another.

    Trees of several configurations lie side by side, each below its name.
    """
    labelled = any(column.name == "label" for column in table.columns)
    names = ("range", "depth", "gpu_time_ns", "own_gpu_time_ns", *(["label"] if labelled else []))
    rows = points_of(table, names, ("gpu_time_ns",), _MOST)
    if not any(depth for _, depth, *_ in rows):
        return None
    labels = [row[4] for row in rows] if labelled else []
    if len({*labels}) > 1:
        rows = [*_below(rows)]
    whole = sum(time for _, depth, time, *_ in rows if not depth)
    return Icicle(tuple(_boxes(rows, whole))) if whole else None


def _below(rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of each configuration below one for all of its time."""
    for label in dict.fromkeys(row[4] for row in rows):
        own = [row for row in rows if row[4] == label]
        yield str(label), 0, sum(time for _, depth, time, *_ in own if not depth), 0
        for name, depth, time, self_time, _ in own:
            yield name, depth + 1, time, self_time


def _boxes(rows: list[tuple[Any, ...]], whole: float) -> Iterator[Box]:
    """Yield the boxes of rows in the order of the tree: siblings lie one after the other."""
    # Where the next box of each depth begins, and the limit of those inside the last one.
    free, limits, tops = [0.0], [100.0], 0
    for name, depth, time, self_time, *_ in rows:
        del free[depth + 1 :], limits[depth + 1 :]
        tops += depth == 0
        start = free[depth]
        # Start/end ranges that overlap may add up to more than what is around them.
        width = min(100 * time / whole, limits[depth] - start)
        free[depth] = start + width
        free.append(start)
        limits.append(start + width)
        if width < _LEAST:
            continue
        said = f"{name}: {format_value(time, 'ns')}, {100 * time / whole:.1f} %"
        said += f"; self {format_value(self_time, 'ns')}" if self_time and self_time < time else ""
        yield Box(str(name), said, int(depth), start, width, _COLOURS[(tops - 1) % len(_COLOURS)])
