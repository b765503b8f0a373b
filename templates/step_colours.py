"""Colors of the slices of a step, and which of them are hatched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perfpipe.picture import Picture
from perfpipe.templates.bars import CATEGORIES, IDLE, KERNELS
from perfpipe.templates.figures import GREY
from perfpipe.units import words


class Paint(NamedTuple):
    """How a category is drawn: its name in words, its color, and whether it is hatched."""

    name: str
    colour: str
    hatched: bool


#: What is neither a kernel nor idle time.
_OTHERS = {
    "transfer": CATEGORIES["transfer"],
    "graph": "#2f6fde",
    "range": "#5b6b7c",
    "call": "#66788a",
}

#: Order of the legend.
_ORDER = (*KERNELS, *_OTHERS, *CATEGORIES)


def paint_of(category: str) -> Paint:
    """Return how a category is drawn."""
    name = words(category)
    if category in IDLE:
        return Paint(name, CATEGORIES[category], hatched=True)
    colour = _OTHERS.get(category) or KERNELS.get(name) or GREY
    return Paint({"call": "CUDA call", "range": "NVTX range"}.get(category, name), colour, False)


def categories_of(picture: Picture) -> Iterator[str]:
    """Yield the categories of a picture in the order of the legend."""
    present = {label.category for label in picture.labels}
    yield from _in_order(present)


def _in_order(present: Iterable[str]) -> list[str]:
    places = {words(name): place for place, name in reversed([*enumerate(_ORDER)])}
    return sorted(present, key=lambda name: (places.get(words(name), len(places)), name))
