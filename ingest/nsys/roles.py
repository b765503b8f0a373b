"""Decides what each loop of a sequence of launches is: the step, around it, or part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.alternation import LEAST, Repeats
from perfpipe.ingest.arrays import Codes, placed
from perfpipe.ingest.nesting import Events, Nested, in_turn
from perfpipe.ingest.nsys.issued import Issued
from perfpipe.ingest.nsys.waits import pauses_of

#: Share of the launches of a loop that are kernels of autotuners, if it is a loop of trials.
_TRIED = 0.05

#: Trials of unknown autotuners: most iterations have a kernel that no other has, and few launches.
_VARIANTS, _SHORT = 0.9, 40

#: Iterations of the loop after trials that ends the start-up.
_AFTER_TRIALS = 8

#: Share of the iterations that must have an event, so that it is evidence of a step.
_OFTEN, _ALWAYS = 0.5, 0.8

#: Share of the launches after start-up that the loop with the optimizer must span.
_SPANNED = 0.3

#: Share of the GPU time after start-up in the loop that is the step, without an optimizer.
_HALF = 0.5

#: The host pauses so much longer between iterations than within an iteration.
_LONGER = 2

#: Networks have fewer layers, and a layer has fewer launches.
_LAYERS, _LAUNCHES = 128, 100

#: Iterations that are examined.
_LOOKED_AT = 1_000


@dataclass
class Role:
    """What a loop is, the evidence for a unit of work, and the reason.

    `share` is the share of the GPU time after start-up, 0 to 1.
    """

    role: str
    evidence: tuple[str, ...]
    share: float
    why: str


class Judged:
    """The loops of a sequence, with the role of each."""

    def __init__(self, process: Issued, trees: Sequence[Nested]) -> None:
        self._process, self.trees = process, trees
        self._optimizer = Events.of(process.optimizer)
        self._copies = {
            "input": copies_of(process, process.given),
            "readback": copies_of(process, process.result),
        }
        self._trials = Events.of(process.trial)
        self._sampling = Events.of(process.sampling)
        self._graphs = Events.of(process.graph)
        self._busy = np.append(0, np.cumsum(process.busy))
        self._pauses = pauses_of(process, process.columns.beside())
        self._evidence = {id(node): tuple(self._signs(node.loop)) or _large(node) for node in trees}
        trials = [node for node in trees if self._tries(node)]
        self._trying = {id(node) for trial in trials for node in trial.within()}
        self._since = self._start(trials)

    def roles(self) -> list[Role]:
        """Return the role of each loop, in the order of the trees."""
        step, why = self._step()
        around = set() if step is None else {id(node) for node in step.around()}
        inside = set() if step is None else {id(node) for node in step.within()} - {id(step)}

        def role(node: Nested) -> Role:
            signs, share = self._evidence[id(node)], self._share(node.loop)
            parts = "inner" if signs else "layer"
            if node is step:
                return Role("step", signs, share, why)
            if id(node) in self._trying:
                return Role("trial", signs, share, "an autotuner tries kernels")
            if id(node) in around:
                return Role("outer", signs, share, "contains the steps")
            if id(node) in inside:
                return Role(parts, signs, share, "repeats within a step")
            if node.outer is None and (signs or step is not None):
                return Role("other", signs, share, "repeats outside the steps")
            return Role(parts, signs, share, "repeats without a copy, an optimizer or a pause")

        return [role(node) for node in self.trees]

    def _signs(self, loop: Repeats) -> Iterator[str]:
        """Yield the evidence that an iteration is a unit of work, not a layer."""
        for name, copies in self._copies.items():
            if copies.share(loop) >= _OFTEN:
                yield name
        if self._optimizer.share(loop) >= _ALWAYS and not self._optimizer.fill(loop):
            yield "optimizer"
        if self._sampling.share(loop) >= _ALWAYS:
            yield "sampling"
        if self._graphs.share(loop) >= _ALWAYS:
            yield "graph"
        if self._pausing(loop):
            yield "pause"

    def _pausing(self, loop: Repeats) -> bool:
        first, last = loop.heads[:_LOOKED_AT], loop.ends[:_LOOKED_AT]
        long = last - first > 1
        # The first iteration follows something else.
        long[0] = False
        first, last = first[long], last[long]
        if len(first) < LEAST - 1:
            return False
        edges = np.minimum(np.stack([first + 1, last], 1).ravel(), len(self._pauses) - 1)
        for waits in (self._pauses, self._process.idle):
            within = np.maximum.reduceat(waits, edges)[::2]
            before = float(np.median(waits[first]))
            if before > 0 and before >= _LONGER * float(np.median(within)):
                return True
        return False

    def _tries(self, node: Nested) -> bool:
        """Return whether a loop is made of an autotuner's trials."""
        loop = node.loop
        if self._optimizer.share(loop) >= _OFTEN:
            return False
        launches = int((loop.ends - loop.heads).sum())
        if int(self._trials.counts(loop).sum()) > _TRIED * launches:
            return True
        if node.outer is not None or loop.length > _SHORT:
            return False
        later = [other.loop for other in self.trees if other.loop.heads[0] >= loop.ends[-1]]
        return any(len(own) >= _AFTER_TRIALS for own in later) and (
            _variants(self._process.symbol, loop) >= _VARIANTS
        )

    def _start(self, trials: Sequence[Nested]) -> int:
        """Return the launch at which the start-up ends."""
        for end in sorted((int(node.loop.ends[-1]) for node in trials), reverse=True):
            if any(
                np.count_nonzero(node.loop.heads >= end) >= _AFTER_TRIALS
                for node in self.trees
                if id(node) not in self._trying
            ):
                return end
        return 0

    def _share(self, loop: Repeats) -> float:
        """Return the share of the GPU time after start-up in a loop."""
        total = int(self._busy[-1] - self._busy[self._since])
        first, last = (np.maximum(edge, self._since) for edge in (loop.heads, loop.ends))
        return int((self._busy[last] - self._busy[first]).sum()) / max(total, 1)

    def _step(self) -> tuple[Nested | None, str]:
        """Return the loop whose iterations are the steps, and why; None if there is none."""
        known = [
            node
            for node in self.trees
            if id(node) not in self._trying
            and np.count_nonzero(node.loop.heads >= self._since) >= LEAST
        ]
        after = len(self._process.host) - self._since
        updating = [
            node
            for node in known
            if "optimizer" in self._evidence[id(node)]
            and node.loop.ends[-1] - node.loop.heads[0] > _SPANNED * after
        ]
        if updating:
            inner = min(updating, key=lambda node: node.loop.length)
            whole = next(
                (
                    node
                    for node in inner.around()
                    if node in updating and in_turn(inner.loop, node.loop)
                ),
                inner,
            )
            return whole, "innermost loop that holds the optimizer"
        large = [
            node for node in known if self._evidence[id(node)] and self._share(node.loop) >= _HALF
        ]
        if not large:
            return None, ""
        largest = max(large, key=lambda node: self._share(node.loop))
        outermost = [node for node in (largest, *largest.around()) if node in large][-1]
        return outermost, "outermost loop with most of the GPU time after start-up"


def _large(node: Nested) -> tuple[str, ...]:
    """Return the evidence that no network has so many layers, or such large ones."""
    large = len(node.loop) > _LAYERS or node.loop.length > _LAUNCHES
    return ("count",) if large and node.outer is None else ()


def _variants(symbols: Codes, loop: Repeats) -> float:
    """Return the share of the iterations that have a symbol that no other part has."""
    size = int(symbols.max()) + 1
    place = np.arange(len(symbols))
    first, last = np.full(size, len(symbols)), np.full(size, -1)
    np.minimum.at(first, symbols, place)
    np.maximum.at(last, symbols, place)
    own, inside = placed(loop.heads, loop.ends, first)
    inside &= last < loop.ends[own]
    return len(np.unique(own[inside])) / len(loop)


def copies_of(process: Issued, chosen: npt.NDArray[np.bool_]) -> Events:
    """Return the chosen copies, each at the launch that precedes it."""
    places = np.searchsorted(process.host, process.copy_host[chosen]) - 1
    return Events(np.maximum(places, 0))
