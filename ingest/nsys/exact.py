"""Loops whose launches repeat at a fixed distance, and whole steps between optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.alternation import Repeats
from perfpipe.ingest.arrays import Ints
from perfpipe.ingest.nesting import Events
from perfpipe.ingest.nsys.issued import Issued
from perfpipe.ingest.nsys.steps import Steps
from perfpipe.ingest.stretches import ALIKE

#: Marking symbols of a loop that repeats exactly: it needs no others.
_EXACT = 10

#: Share of the iterations with an optimizer, if it belongs to the loop, and if others do not.
_UPDATED, _MOSTLY_UPDATED = 0.5, 0.7

#: Fewer launches than this share of an iteration are not an iteration.
_PART = 0.5

#: A first iteration may have so many times the launches of the others.
_LONG_FIRST = 1.5


@dataclass(eq=False)
class Exact(Repeats):
    """A loop whose launches repeat at a fixed distance.

    `begins` and `until` are the host times of each iteration, ns, and `match` the share of launches
    that repeat.  `repeats` is how many iterations are combined into one.
    """

    boundary: str
    repeats: Ints
    begins: Ints
    until: Ints
    match: npt.NDArray[np.float64]

    def only(self, kept: npt.NDArray[np.bool_]) -> Exact:
        """Return the loop with some of its iterations."""
        names = ("heads", "ends", "begins", "until", "match", "repeats")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    def behind(self, first: Repeats, host: Ints) -> Exact:
        """Return the loop with other iterations before it; `host` are the times of launches, ns."""
        return replace(
            self,
            heads=np.append(first.heads, self.heads),
            ends=np.append(first.ends, self.ends),
            begins=np.append(host[first.heads], self.begins),
            until=np.append(host[first.ends], self.until),
            match=np.append(np.full(len(first), np.nan), self.match),
            repeats=np.append(np.full(len(first), 1), self.repeats),
        )


def exact_loop(
    found: Sequence[Steps], process: Issued, optimizer: Events, part: slice
) -> tuple[Repeats, Repeats]:
    """Return all runs of a period as one loop: its iterations in a part of the launches, and all.

    If an optimizer belongs to the loop, other launches without it are not iterations.
    """
    edges = [steps.edges for steps in found]
    loop = Exact(
        heads=np.concatenate([own[:-1] for own in edges]),
        ends=np.concatenate([own[1:] for own in edges]),
        length=float(found[0].period),
        members=_EXACT,
        boundary=found[0].boundary,
        repeats=np.repeat([steps.repeats for steps in found], [len(own) - 1 for own in edges]),
        begins=np.concatenate([steps.host[:-1] for steps in found]),
        until=np.concatenate([steps.host[1:] for steps in found]),
        match=np.concatenate([steps.match for steps in found]),
    )
    if (loop.repeats > 1).any():
        every = [
            steps.every[slice(*np.searchsorted(steps.every, (part.start, part.stop + 1)))]
            for steps in found
        ]
        heads = np.concatenate([own[:-1] for own in every])
        ends = np.concatenate([own[1:] for own in every])
        return Repeats(heads - part.start, ends - part.start, loop.length, loop.members), loop
    if optimizer.share(loop) >= _UPDATED:
        loop = loop.only((optimizer.counts(loop) > 0) | (loop.match >= ALIKE))
    whole = between_updates(loop, process, optimizer)
    return whole.within(part.start, part.stop - part.start), whole


def between_updates(loop: Repeats, process: Issued, optimizer: Events) -> Repeats:
    """Return a loop of which each iteration has an optimizer, with as many iterations.

    The first iteration may differ from the others: it loads modules and initializes.  The launches
    after the last optimizer are not an iteration.
    """
    counts = optimizer.counts(loop)
    if np.count_nonzero(counts) < _UPDATED * len(loop) or optimizer.fill(loop):
        return loop
    if not isinstance(loop, Exact) and (counts > 0).mean() >= _MOSTLY_UPDATED:
        # An evaluation runs the first part of a step; the last iteration may be longer than usual.
        kept = counts > 0
        kept[-1] = bool((optimizer.places >= loop.heads[-1]).any())
        loop = loop.only(kept)
        counts = optimizer.counts(loop)
    if not counts[-1] and loop.ends[-1] - loop.heads[-1] < _PART * loop.length:
        loop = loop.only(np.arange(len(loop)) < len(loop) - 1)
    before = int(loop.heads[0])
    begin = 0 if before <= _LONG_FIRST * loop.length else before - int(loop.length)
    first = Repeats(np.array([begin]), np.array([before]), loop.length, loop.members)
    usual, own = float(np.median(counts)), optimizer.counts(first)[0]
    if before - begin < _PART * loop.length or not 0 < own <= 2 * usual:
        return loop
    return loop.behind(first, process.host)
