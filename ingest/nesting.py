"""Arranges the loops of a sequence of launches as a tree, and drops what is not a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.alternation import LEAST, Repeats
from perfpipe.ingest.arrays import Ints, placed

#: A loop is nested in one with so many times fewer iterations, each of them so many times longer.
_FEWER, _LONGER = 1.5, 1.2

#: Share of the inner iterations that must lie in the outer loop, near the start of an iteration.
_INSIDE, _NEAR = 0.5, 4

#: Share of the inner iterations that must come several to an outer iteration.
_SEVERAL = 0.7

#: An inner iteration is longer by this share where an outer iteration begins, if both are loops.
_EXTRA, _MUCH_EXTRA = 0.1, 0.3

#: A loop needs this share of its own launches, or one of these numbers of marking symbols.
_OWN, _MEMBERS, _FEW_MEMBERS = 0.3, 10, 4

#: Loops with few iterations need more marking symbols.
_FEW, _FOR_FEW = 6, 20

#: A loop is part of another if the other has so many times its members and a similar length.
_DOMINANT, _SIMILAR = 3, 2

#: Maximum alternating parts of an iteration, and how much longer the longest of them is.
_IN_TURN, _UNEQUAL = 3, 1.1

#: Iterations of a loop that are iterations of another are as long, and nearly all are.
_ALIKE, _NEARLY_ALL = 1.25, 0.8

#: Share of the launches of a loop that are events, if the loop consists of them.
_FILLED = 0.8

#: Share of the iterations that must contain an event that belongs to the loop.
_MOST = 0.8


@dataclass(eq=False)
class Events:
    """Places in a sequence of launches, and how many of them each iteration of a loop has."""

    places: Ints

    @classmethod
    def of(cls, marks: npt.NDArray[np.bool_]) -> Self:
        """Return the events at the marked launches."""
        return cls(np.flatnonzero(marks))

    def counts(self, loop: Repeats) -> Ints:
        """Return the number of events in each iteration."""
        first, last = np.searchsorted(self.places, (loop.heads, loop.ends))
        return np.asarray(last - first, np.int64)

    def share(self, loop: Repeats) -> float:
        """Return the share of the iterations that have an event; the outer two may be cut."""
        counts = self.counts(loop)
        return float((counts[1:-1] if len(counts) > LEAST else counts).astype(bool).mean())

    def fill(self, loop: Repeats) -> bool:
        """Return whether nearly all launches of a loop are events."""
        return int(self.counts(loop).sum()) >= _FILLED * int((loop.ends - loop.heads).sum())


@dataclass(eq=False)
class Nested:
    """A loop in a tree: `inner` are the loops in its iterations."""

    loop: Repeats
    outer: Nested | None = None
    inner: list[Nested] = field(default_factory=list)

    def around(self) -> Iterator[Nested]:
        """Yield the loops around it, innermost first."""
        node = self
        while node.outer is not None:
            node = node.outer
            yield node

    def within(self) -> Iterator[Nested]:
        """Yield it and the loops inside it."""
        yield self
        for inner in self.inner:
            yield from inner.within()


def nested(loops: Sequence[Repeats], optimizer: Events, copies: Events) -> list[Nested]:
    """Return the loops of a sequence as trees, outermost loops first.

    A pattern that only recurs every few iterations of a loop (a cadence) is not a loop, unless it
    holds an optimizer or a copy between host and device that the inner iterations do not hold.
    """
    whole = [
        loop
        for loop in loops
        if not any(
            _dominates(other, loop, optimizer) or _contains(other, loop)
            for other in loops
            if other is not loop
        )
    ]
    kept = [loop for loop in whole if _is_loop(loop, whole, optimizer, copies)]
    nodes = [Nested(loop) for loop in kept]
    for node in nodes:
        outer = [other for other in nodes if _nests(node.loop, other.loop)]
        node.outer = min(outer, key=lambda other: other.loop.length, default=None)
        if node.outer is not None:
            node.outer.inner.append(node)
    return sorted(nodes, key=lambda node: -node.loop.length)


def per_iteration(inner: Repeats, outer: Repeats) -> Ints:
    """Return how many inner iterations begin in each outer iteration."""
    place, inside = placed(outer.heads, outer.ends, inner.heads)
    inside &= inner.heads - outer.heads[place] < _NEAR * outer.length
    return np.bincount(place[inside], minlength=len(outer))


def in_turn(inner: Repeats, outer: Repeats) -> bool:
    """Return whether the inner iterations are unequal parts of the outer: two networks in turn."""
    parts = int(np.median(per_iteration(inner, outer)))
    if not 1 < parts <= _IN_TURN:
        return False
    lengths = (inner.ends - inner.heads)[inner.heads >= outer.heads[0]]
    usual = [float(np.median(lengths[place::parts])) for place in range(parts)]
    return max(usual) > _UNEQUAL * min(usual)


def _nests(inner: Repeats, outer: Repeats) -> bool:
    """Return whether most iterations of a loop come several to an iteration of another loop."""
    if len(inner) < _FEWER * len(outer) or outer.length < _LONGER * inner.length:
        return False
    counts = per_iteration(inner, outer)
    if len(outer) < _FEW and np.median(counts) < 2:
        return False
    total = int(counts.sum())
    return total >= _INSIDE * len(inner) and counts[counts > 1].sum() >= _SEVERAL * total


def _is_loop(loop: Repeats, loops: Sequence[Repeats], optimizer: Events, copies: Events) -> bool:
    inner = [other for other in loops if other is not loop and _nests(other, loop)]
    own = _own(loop, inner, optimizer) or (
        optimizer.share(loop) >= _MOST and any(in_turn(part, loop) for part in inner)
    )
    extra = max((_extra(loop, other) for other in inner), default=0.0)
    if (
        not own
        and not _own(loop, inner, copies)
        and any(
            other.members >= loop.members
            and _covered(loop, [other]) > _INSIDE
            and _extra(loop, other) < _EXTRA
            for other in inner
        )
    ):
        return False
    rich = loop.members >= (_FOR_FEW if len(loop) < _FEW else _MEMBERS)
    weak = not (
        own
        or rich
        or 1 - _covered(loop, inner) >= _OWN
        or (extra >= _MUCH_EXTRA and loop.members >= _FEW_MEMBERS)
    )
    return not weak and (rich or len(loop) >= _FEW)


def _own(loop: Repeats, inner: Sequence[Repeats], events: Events) -> bool:
    """Return whether most iterations hold an event that no inner loop holds."""
    if events.share(loop) < _MOST or events.fill(loop):
        return False
    return not any(events.share(own) >= _MOST and not events.fill(own) for own in inner)


def _dominates(other: Repeats, loop: Repeats, optimizer: Events) -> bool:
    """Return whether a loop is a part of another that has many more marking symbols."""
    if other.members < _DOMINANT * loop.members:
        return False
    if not 1 / _SIMILAR <= other.length / loop.length <= _SIMILAR:
        return False
    shared = min(other.ends[-1], loop.ends[-1]) - max(other.heads[0], loop.heads[0])
    if shared < 0.8 * (loop.ends[-1] - loop.heads[0]):
        return False
    if optimizer.share(loop) >= _MOST > optimizer.share(other):
        return False
    return not (_nests(other, loop) and _extra(loop, other) >= _MUCH_EXTRA)


def _contains(other: Repeats, loop: Repeats) -> bool:
    """Return whether the iterations of a loop are some of the iterations of another."""
    if len(other) <= len(loop) or other.members < loop.members:
        return False
    if not 1 / _ALIKE <= other.length / loop.length <= _ALIKE:
        return False
    place, inside = placed(other.heads, other.ends, loop.heads)
    return len(np.unique(place[inside])) >= _NEARLY_ALL * len(loop)


def _covered(loop: Repeats, inner: Sequence[Repeats]) -> float:
    """Return the share of a loop's launches that are in inner loops."""
    if not inner:
        return 0.0
    steps = np.zeros(int(max(own.ends[-1] for own in [loop, *inner])) + 1, np.int32)
    for own in inner:
        np.add.at(steps, own.heads, 1)
        np.add.at(steps, own.ends, -1)
    held = np.append(0, np.cumsum(np.cumsum(steps) > 0))
    return float((held[loop.ends] - held[loop.heads]).sum() / (loop.ends - loop.heads).sum())


def _extra(outer: Repeats, inner: Repeats) -> float:
    """Return how much longer the inner iterations are in which an outer iteration begins."""
    place = np.searchsorted(inner.heads, outer.heads, side="right") - 1
    lengths = np.diff(inner.heads)
    holds = np.zeros(len(lengths), bool)
    holds[place[(place >= 0) & (place < len(lengths))]] = True
    if holds.all() or not holds.any():
        return 0.0
    usual = max(float(np.median(lengths[~holds])), 1.0)
    return float(np.median(lengths[holds])) / usual - 1
