"""The picture of a step as data: colors, levels of detail, links, and the payload for scripts."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from perfpipe.picture import Label, Lane, Panel, Picture, Slice, View
from perfpipe.templates.bars import CATEGORIES, IDLE, KERNELS
from perfpipe.templates.figures import GREY
from perfpipe.units import words

#: Heights of lanes by kind, pixels.
HEIGHTS = {"range": 12, "call": 8, "code": 12, "stream": 15, "idle": 10, "metric": 20}


class Paint(NamedTuple):
    """How a category is drawn: its name in words, its color, and whether it is hatched."""

    name: str
    colour: str
    hatched: bool


#: What is neither a kernel nor idle time.
_OTHERS = {
    "transfer": CATEGORIES["transfer"],
    "migration": CATEGORIES["migration"],
    "graph": "#2f6fde",
    "range": "#5b6b7c",
    "call": "#66788a",
    "code": "#b4530f",
}

#: Names of categories that are no words of a budget.
_NAMES = {"call": "CUDA call", "range": "NVTX range", "code": "line of code"}

#: Order of the legend.
_ORDER = (*KERNELS, *_OTHERS, *CATEGORIES)


def paint_of(category: str) -> Paint:
    """Return how a category is drawn."""
    name = words(category)
    if category in IDLE:
        return Paint(name, CATEGORIES[category], hatched=True)
    colour = _OTHERS.get(category) or KERNELS.get(name) or GREY
    return Paint(_NAMES.get(category, name), colour, False)


def categories_of(picture: Picture) -> Iterator[str]:
    """Yield the categories of a picture in the order of the legend."""
    present = {label.category for label in picture.labels}
    yield from _in_order(present)


def _in_order(present: Iterable[str]) -> list[str]:
    places = {words(name): place for place, name in reversed([*enumerate(_ORDER)])}
    return sorted(present, key=lambda name: (places.get(words(name), len(places)), name))


#: Pixels of a picture that is not enlarged; each level has FINER times as many.
PIXELS, FINER = 1200, 4

#: A level with more blocks than this share of the slices is not cheaper to draw than the slices.
_WORTH = 0.3

#: Lanes with fewer slices are drawn as they are.
_FEW = 1500

#: Number of steps for the fill of a block.
FULL = 9


class Block(NamedTuple):
    """Some slices in a row: their number, the category with most of their time, how full it is."""

    slices: int
    category: str
    fill: int


def blocks_of(slices: Sequence[Slice], labels: Sequence[Label], unit_ns: float) -> list[Block]:
    """Return blocks of slices that together last at most a unit; longer slices stand alone."""
    lane = _Lane(slices, labels)
    return lane.blocks(lane.bounds(unit_ns))


def levels_of(
    slices: Sequence[Slice], labels: Sequence[Label], dur_ns: int
) -> list[tuple[float, list[Block]]]:
    """Return the levels of a lane, coarsest first, each with the time that a pixel stands for."""
    found: list[tuple[float, list[Block]]] = []
    if len(slices) <= _FEW:
        return found
    lane = _Lane(slices, labels)
    unit = dur_ns / PIXELS
    while unit >= 1:
        bounds = lane.bounds(unit)
        if len(bounds) > _WORTH * len(slices):
            break
        found.append((unit, lane.blocks(bounds)))
        unit /= FINER
    return found


class _Lane:
    """The columns of some slices, which are sorted and do not overlap."""

    def __init__(self, slices: Sequence[Slice], labels: Sequence[Label]) -> None:
        import numpy as np

        self._categories = sorted({label.category for label in labels})
        places = {name: place for place, name in enumerate(self._categories)}
        rows = np.fromiter(chain.from_iterable(slices), np.int64).reshape(-1, len(Slice._fields))
        self._starts, self._durations = rows[:, 0], rows[:, 1]
        self._ends = self._starts + self._durations
        of_label = np.array([places[label.category] for label in labels], np.int64)
        self._category = of_label[rows[:, 2]]

    def bounds(self, unit_ns: float) -> list[int]:
        """Return where blocks of at most a unit begin."""
        import numpy as np

        # Where a block would end that begins at a slice; one that is longer stands alone.
        behind = np.searchsorted(self._ends, self._starts + math.floor(unit_ns), "right")
        following = np.maximum(behind, np.arange(1, len(behind) + 1)).tolist()
        found, at = list[int](), 0
        while at < len(following):
            found.append(at)
            at = following[at]
        return found

    def blocks(self, bounds: Sequence[int]) -> list[Block]:
        """Return the blocks that begin there."""
        import numpy as np

        if not bounds:
            return []
        # Of each category present, and its time in each block; the first of those with most.
        times = [
            np.where(
                np.logical_or.reduceat(own := self._category == place, bounds),
                np.add.reduceat(np.where(own, self._durations, 0), bounds),
                -1,
            )
            for place in range(len(self._categories))
        ]
        most = np.argmax(times, axis=0).tolist()
        counts = np.diff([*bounds, len(self._starts)])
        last = np.array(bounds) + counts - 1
        spans = self._ends[last] - self._starts[bounds]
        sums = np.add.reduceat(self._durations, bounds)
        fill = np.where(spans > 0, np.rint(FULL * sums / np.maximum(spans, 1)), FULL)
        names = (self._categories[place] for place in most)
        return [*map(Block, counts.tolist(), names, fill.astype(int).tolist())]


class Column(NamedTuple):
    """Columns of pixels side by side that are drawn alike: number of the first, and how many.

    `tenths` of their time is in slices, most of it in those of the category.
    """

    first: int
    width: int
    category: str
    tenths: int


def columns_of(
    slices: Sequence[Slice], labels: Sequence[Label], dur_ns: int, columns: int
) -> list[Column]:
    """Return the columns of a lane that is drawn to scale: as opaque as their share of the time.

    What is rounded is carried to the next column, so that the shares of a lane add up.
    """
    import numpy as np

    if not slices:
        return []
    rows = np.array(slices, np.float64).reshape(-1, len(Slice._fields))
    categories = sorted({labels[one.label].category for one in slices})
    places = {name: place for place, name in enumerate(categories)}
    own = np.array([places[labels[one.label].category] for one in slices])
    edges = np.linspace(0, dur_ns, columns + 1)
    shares = []
    for place in range(len(categories)):
        starts, durations = rows[own == place, 0], rows[own == place, 1]
        # The time in slices up to an edge: it grows within slices only.
        times = np.stack([starts, starts + durations], 1).ravel()
        until = np.cumsum(np.stack([np.zeros(len(durations)), durations], 1).ravel())
        shares.append(np.diff(np.interp(edges, times, until)) * columns / dur_ns)
    most = np.argmax(shares, axis=0).tolist()
    found: list[Column] = []
    carried = 0.0
    for at, share in enumerate(np.sum(shares, axis=0).tolist()):
        wanted = 10 * share + carried
        tenths = min(max(round(wanted), 0), 10)
        carried = wanted - tenths
        last = found[-1] if found else None
        like = (categories[most[at]], tenths)
        if last and last.first + last.width == at and (last.category, last.tenths) == like:
            found[-1] = last._replace(width=last.width + 1)
        elif tenths:
            found.append(Column(at, 1, *like))
    return found


class End(NamedTuple):
    """Where a link touches a lane: numbers of panel and lane, ns from the left border."""

    panel: int
    lane: int
    start_ns: int


def links_of(view: View) -> list[list[End]]:
    """Return the ends of each link from top to bottom, if their slices are drawn."""
    lanes = [_lanes(panel) for panel in view.panels] if view.links else []
    made = []
    for link in view.links:
        ends = [
            End(one.panel, lane, one.start_ns)
            for one in link
            if (lane := lanes[one.panel].get(one.start_ns)) is not None
        ]
        if len(ends) > 1:
            made.append(ends)
    return made


def _lanes(panel: Panel) -> dict[int, int]:
    """Return the lane of a panel on which something starts, by its start."""
    return {
        one.start_ns: number
        for number, lane in enumerate(panel.lanes)
        if lane.kind == "stream"
        for one in lane.slices
    }


#: Level of gzip: the best takes seven times as long, for a tenth less.
_LEVEL = 4


def payload(picture: Picture) -> str:
    """Return JSON, compressed by gzip, in base64: columns of numbers, each text once.

    In base64 no name can end the script element that holds it.  A slice begins a gap after the
    previous slice; blocks of a level are counts of slices.  The call of an operation is counted
    from that of the previous operation with a call, the first from 0.
    """
    categories = [*categories_of(picture)]
    places = {name: place for place, name in enumerate(categories)}
    data = {
        "categories": [paint_of(name) for name in categories],
        "heights": HEIGHTS,
        "labels": [(n, places[c], kernel, detail) for n, c, kernel, detail in picture.labels],
        "views": [
            {
                "title": view.title,
                "dur": view.dur_ns,
                "links": links_of(view),
                "panels": [
                    {
                        "name": panel.name,
                        "command": panel.command,
                        "lanes": [
                            _lane(picture, lane, view.dur_ns, places) for lane in panel.lanes
                        ],
                    }
                    for panel in view.panels
                ],
            }
            for view in picture.views
        ],
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    # Without the time, so that the same picture gives the same bytes.
    return base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()


def _lane(picture: Picture, lane: Lane, dur_ns: int, places: Mapping[str, int]) -> dict[str, Any]:
    if lane.samples:
        return {
            "name": lane.name,
            "kind": lane.kind,
            "ends": [sample.end_ns for sample in lane.samples],
            "pct": [round(sample.pct, 1) for sample in lane.samples],
        }
    starts = [one.start_ns for one in lane.slices]
    ends = [0, *(one.start_ns + one.dur_ns for one in lane.slices)]
    launched = any(one.call >= 0 for one in lane.slices)
    return {
        "name": lane.name,
        "kind": lane.kind,
        "gap": [start - end for end, start in zip(ends, starts, strict=False)],
        "dur": [one.dur_ns for one in lane.slices],
        "label": [one.label for one in lane.slices],
        "call": [*_steps_between(one.call for one in lane.slices)] if launched else [],
        "levels": [
            {
                "unit": round(unit),
                "count": [block.slices for block in blocks],
                "category": [places[block.category] for block in blocks],
                "fill": [block.fill for block in blocks],
            }
            for unit, blocks in _levels(lane, picture.labels, dur_ns)
        ],
    }


def _steps_between(numbers: Iterable[int]) -> Iterator[int | None]:
    """Yield how far each number is from the one before; None for those that are negative.

    >>> [*_steps_between((3, -1, 5))]
    [3, None, 2]
    """
    before = 0
    for number in numbers:
        yield None if number < 0 else number - before
        before = before if number < 0 else number


def _levels(lane: Lane, labels: Sequence[Label], dur_ns: int) -> list[tuple[float, list[Block]]]:
    """Return the levels of a lane; one that is drawn to scale needs none."""
    return [] if lane.kind == "idle" else levels_of(lane.slices, labels, dur_ns)
