"""A tree of times as an icicle: parts are below their parent, and widths are times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from perfpipe.templates.figures import Drawing, Marks, block, entry, points_of
from perfpipe.templates.formats import format_value, shorten
from perfpipe.units import counted, gpu_name
from perfpipe.viewmodel import Table

#: Colors of the outermost parts in turn; white text is legible on each.
_COLOURS = ("#2f6fde", "#7a4fbf", "#1f6f78", "#a0522d", "#5b6b7c", "#a8326b", "#4a7a28")

#: Owners of code with their colors.
_USER, _WORKER, _NO_STACK = "user", "worker process", "no code"
OWNERS = {
    _USER: "#b4530f",
    "library": "#2f6fde",
    "python": "#1f6f78",
    "generated": "#7a4fbf",
    "native": "#4a7a28",
    _WORKER: "#a8326b",
    f"{_USER}, {_WORKER}": "#7c1f2e",
    _NO_STACK: "#6b7280",
}

#: Color of the name of a GPU above its stacks.
_GPU = "#374151"

#: Weight of names of code of the user.
_BOLD = ' font-weight="700"'

#: Height of a row, px; share of the whole below which nothing is drawn, %; rows of a tree.
_ROW, _LEAST, _MOST = 22, 0.1, 2_000

#: Size of a file, px, and pixels of an inch; height of its legend, width of a letter.
_WIDE, _INCH, _LEGEND, _LETTER = 1200, 96, 20, 6.6


class Part(NamedTuple):
    """A part: name, number of parts around it, time; color, or "" for the default.

    Its hover text is `title`, its time, and what is `told` behind it.
    """

    name: str
    depth: int
    ns: float
    title: str
    told: str = ""
    colour: str = ""


class Box(NamedTuple):
    """A part as it is drawn: start and width are in % of the whole."""

    name: str
    title: str
    depth: int
    start: float
    width: float
    colour: str


@dataclass(frozen=True)
class Icicle:
    """Boxes that are never wider than those around them, as a share `of` something.

    The legend has names and colors; names in boxes of code of the user are bold.
    """

    boxes: tuple[Box, ...]
    of: str
    legend: tuple[tuple[str, str], ...] = ()

    @property
    def _rows(self) -> int:
        return 1 + max(box.depth for box in self.boxes)

    def svg(self, name: str) -> str:
        """Return SVG as wide as the page, below its legend; its id is `name`."""
        tall = self._rows * _ROW
        items = "".join(f'<li><i style="--c:{own}"></i>{said}</li>' for said, own in self.legend)
        legend = f'<ul class="legend">{items}</ul>' if items else ""
        return (
            f'{legend}<svg id="{name}" class="icicle" style="--tall:{tall}px" width="100%" '
            f'height="{tall}">{self._marks()}</svg>'
        )

    def _marks(self, top: int = 0) -> str:
        from markupsafe import escape

        return "".join(
            f'<svg class="mark" data-depth="{box.depth}" x="{box.start:.4f}%" '
            f'y="{top + box.depth * _ROW}" width="{box.width:.4f}%" height="{_ROW}">'
            f"<title>{escape(box.title)}</title>"
            f'<rect width="100%" height="100%" fill="{box.colour}" stroke="#fff"/>'
            f'<text x="4" y="15" fill="#fff" font-size="12"{_BOLD if self._is_users(box) else ""}>'
            f"{escape(box.name)}</text></svg>"
            for box in self.boxes
        )

    def _is_users(self, box: Box) -> bool:
        owners = (name for name, colour in self.legend if colour == box.colour)
        return any(name.startswith(_USER) for name in owners)

    def file(self, kind: Literal["svg", "png"]) -> bytes:
        """Return the content of a standalone file, on white."""
        if kind == "png":
            return Drawing(self._drawn, _WIDE / _INCH, self._rows * _ROW / _INCH + 0.7).file("png")
        top = _LEGEND if self.legend else 0
        tall = top + self._rows * _ROW
        return (
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{tall}" '
            f'font-family="sans-serif"><rect width="100%" height="100%" fill="#fff"/>'
            f"{''.join(self._entries())}{self._marks(top)}</svg>\n"
        ).encode()

    def _entries(self) -> Iterator[str]:
        x = 4.0
        for said, colour in self.legend:
            yield (
                f'<rect x="{x:g}" y="4" width="10" height="10" fill="{colour}"/>'
                f'<text x="{x + 14:g}" y="13" font-size="12">{said}</text>'
            )
            x += 30 + _LETTER * len(said)

    def _drawn(self, axes: Any) -> Marks:
        label = f"% of the {self.of}"
        axes.set(xlim=(0, 100), ylim=(self._rows, 0), yticks=[], xlabel=label)
        for box in self.boxes:
            block(axes, box.start, box.depth + 0.03, box.width, 0.94, box.colour)
            if room := int(box.width * _WIDE / 100 / 7):
                name = shorten(box.name, room) if room > 3 else ""
                axes.text(
                    box.start + 0.2, box.depth + 0.5, name, va="center", fontsize=8, color="white"
                )
        for said, colour in self.legend:
            entry(axes, said, colour)
        return {}


#: A part behind the name of its tree.
_Named = tuple[str, Part]


def icicle(table: Table) -> Icicle | None:
    """Return the icicle of a table of ranges as a tree; None if no range is inside another.

    Trees of several configurations lie side by side, each below its name.
    """
    labelled = any(column.name == "label" for column in table.columns)
    names = ("range", "depth", "gpu_time_ns", "own_gpu_time_ns", *(["label"] if labelled else []))
    parts: list[_Named] = []
    for name, depth, ns, self_ns, *label in points_of(table, names, ("gpu_time_ns",), _MOST):
        told = f"; self {format_value(self_ns, 'ns')}" if self_ns and self_ns < ns else ""
        parts.append((str(label[0]) if label else "", Part(str(name), depth, ns, str(name), told)))
    return _made(parts, "GPU time") if any(part.depth for _, part in parts) else None


def stacks_icicle(table: Table) -> Icicle | None:
    """Return the icicle of a table of stacks during idle time, in the colors of owners of code."""
    known = [column.name for column in table.columns]
    who = tuple(name for name in ("label", "device") if name in known)
    names = ("frame", "depth", "time_ns", "place", "kind", "via", "samples")
    parts: list[_Named] = []
    for row in points_of(table, (*who, *names), ("time_ns",), _MOST):
        frame, depth, ns, place, kind, via, samples = row[len(who) :]
        *label, device = row[: len(who)]
        owner = _owner(kind, via)
        title = f"{frame}, {place}" if place else str(frame)
        # A function of the user has a part for each line.
        name = f"{frame} {place}" if kind == _USER else str(frame)
        told = f"; {counted(samples, 'sample')}" + (f"; {owner}" if kind else "")
        gpu = ", ".join([*(str(one) for one in label if one != "-"), gpu_name(device)])
        parts.append((gpu, Part(name, depth, ns, title, told, OWNERS[owner])))
    drawn = _made(parts, "idle time", _GPU)
    if drawn is None:
        return None
    present = {box.colour for box in drawn.boxes}
    return replace(drawn, legend=tuple(one for one in OWNERS.items() if one[1] in present))


def _owner(kind: str | None, via: str | None) -> str:
    """Return the owner of code, as in OWNERS."""
    if via is not None and kind is not None:
        return f"{_USER}, {_WORKER}" if kind == _USER else _WORKER
    return kind if kind in OWNERS else _NO_STACK


def _made(parts: list[_Named], of: str, colour: str = "") -> Icicle | None:
    """Return the icicle of some trees; several lie side by side, each below its name in a color."""
    whole = sum(part.ns for _, part in parts if not part.depth)
    if not whole:
        return None
    if len(names := dict.fromkeys(name for name, _ in parts)) > 1:
        below: list[Part] = []
        for name in names:
            own = [part for tree, part in parts if tree == name]
            ns = sum(part.ns for part in own if not part.depth)
            below.append(Part(name, 0, ns, name, colour=colour))
            below += [part._replace(depth=part.depth + 1) for part in own]
        return Icicle(tuple(_boxes(below, whole)), of)
    return Icicle(tuple(_boxes([part for _, part in parts], whole)), of)


def _boxes(parts: list[Part], whole: float) -> Iterator[Box]:
    """Yield the boxes of parts in the order of the tree: siblings lie one after the other."""
    # Where the next box of each depth begins, and the limit of those inside the last one.
    free, limits, tops = [0.0], [100.0], 0
    for name, depth, ns, title, told, colour in parts:
        del free[depth + 1 :], limits[depth + 1 :]
        tops += depth == 0
        start = free[depth]
        # Start/end ranges that overlap may add up to more than what is around them.
        width = min(100 * ns / whole, limits[depth] - start)
        free[depth] = start + width
        free.append(start)
        limits.append(start + width)
        if width < _LEAST:
            continue
        said = f"{title}: {format_value(ns, 'ns')}, {100 * ns / whole:.1f} %{told}"
        yield Box(name, said, depth, start, width, colour or _COLOURS[(tops - 1) % len(_COLOURS)])
