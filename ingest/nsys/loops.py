"""Finds the loops of a process or thread from the order of its launches, and their roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.alternation import LEAST, Launched, Repeats, alike, alternations
from perfpipe.ingest.arrays import Ints, placed
from perfpipe.ingest.nesting import Events, Nested, nested, per_iteration
from perfpipe.ingest.nsys.exact import Exact, between_updates, exact_loop
from perfpipe.ingest.nsys.issued import Issued
from perfpipe.ingest.nsys.roles import Judged, Role, copies_of
from perfpipe.ingest.nsys.steps import Steps, host_times
from perfpipe.ingest.nsys.waits import pauses_of

#: Launches that are searched for loops whose iterations vary, which bounds memory.
_SEARCHED = 1 << 20

#: Loops with a smaller share of the GPU time are dropped, and so are loops beyond this number.
_SHARE, _LOOPS = 0.02, 40

#: Share of the iterations of a loop that begin within another loop, if it is not beside it.
_BESIDE = 0.1

#: Share of the iterations with another number of inner iterations, from which a loop is variable.
_VARIED = 0.1


@dataclass(eq=False)
class Level:
    """A loop of a process with its role.  `number` counts from 1, outer loops first.

    `outer` is the number of the loop around it, 0 for none, and `level` its depth, from 1.
    `begins` and `ends` are host times of each iteration, ns; `run` numbers uninterrupted
    iterations.  `per_outer` are the fewest, median and most iterations in an iteration of the loop
    around it; `variable` is whether its own iterations have different numbers of inner iterations.
    """

    loop: Repeats
    role: Role
    number: int
    outer: int
    level: int
    source: str
    begins: Ints
    ends: Ints
    run: Ints
    match: npt.NDArray[np.float64]
    repeats: Ints
    boundary: str
    per_outer: tuple[int, float, int] | None
    variable: bool

    def __len__(self) -> int:
        return len(self.loop)

    @property
    def iterations(self) -> int:
        """The number of iterations, of which several may be combined into one."""
        return int(self.repeats.sum())

    def every(self, several: int) -> Level:
        """Return the loop with several iterations of a run combined into one."""
        first = np.concatenate([np.arange(run[0], run[-1] + 1, several) for run in _runs(self.run)])
        last = np.append(first[1:] - 1, len(self) - 1)
        sums = np.add.reduceat(np.nan_to_num(self.match), first)
        return replace(
            self,
            loop=Repeats(
                self.loop.heads[first], self.loop.ends[last], self.loop.length, self.loop.members
            ),
            begins=self.begins[first],
            ends=self.ends[last],
            run=self.run[first],
            repeats=np.add.reduceat(self.repeats, first),
            match=np.where(np.isnan(self.match[first]), np.nan, sums / (last - first + 1)),
        )


def loops_of(process: Issued, found: Sequence[Steps]) -> list[Level]:
    """Return the loops of a process, each followed by the loops inside it.

    `found` are loops whose launches repeat at a fixed distance, with exact iterations.  Symbols
    that alternate also show loops whose iterations vary.  If both show a loop, its exact iterations
    are used, unless some are missing.  In a very long sequence, only a part is searched for loops
    whose iterations vary, and it decides the roles of all loops.
    """
    begin = max(len(process.host) - _SEARCHED, 0) * 3 // 4
    part = process.part(begin, begin + _SEARCHED) if begin else process
    by_period = groupby(
        sorted(found, key=lambda steps: (steps.period, steps.first)), key=lambda own: own.period
    )
    optimizer = Events.of(process.optimizer)
    pairs = [
        exact_loop(list(group), process, optimizer, slice(begin, begin + len(part.host)))
        for _, group in by_period
    ]
    exact = [(own, loop) for own, loop in pairs if len(own) >= LEAST]
    optimizer = Events.of(part.optimizer)
    loops: list[tuple[Repeats, Repeats]] = []
    for varying in _varying(part):
        loop = between_updates(varying, part, optimizer)
        same = next((pair for pair in exact if alike(pair[0], loop)), None)
        if same is not None:
            same[0].members += loop.members
        if same is None or (not begin and len(loop) > len(same[0])):
            loops.append((loop, loop.within(-begin, len(process.host))))
            exact = [pair for pair in exact if pair is not same]
    loops = sorted(loops + exact, key=lambda pair: pair[0].length)
    copies = copies_of(part, part.result | part.given)
    trees = nested([own for own, _ in loops], optimizer, copies)
    shown = _shown(trees, Judged(part, trees).roles())
    numbers = {id(node): number for number, (node, _) in enumerate(shown, 1)}
    of = {id(own): loop for own, loop in loops}
    return [_level(process, of[id(node.loop)], node, role, numbers) for node, role in shown]


def _varying(process: Issued) -> list[Repeats]:
    """Return the loops that alternating symbols show."""
    pauses = pauses_of(process, process.columns.beside())
    return alternations(
        Launched(process.symbol, pauses, process.busy, process.optimizer, process.graph)
    )


def _shown(trees: Sequence[Nested], roles: Sequence[Role]) -> list[tuple[Nested, Role]]:
    """Return the loops with a share of the GPU time that matters, the largest if there are many.

    Loops beside the steps are only shown if they run at another time.
    """
    pairs = list(zip(trees, roles, strict=True))
    pairs.sort(key=lambda own: (own[1].role not in ("step", "outer"), -own[1].share))
    kept: list[Nested] = []
    for node, role in pairs[:_LOOPS]:
        small = role.share < _SHARE and role.role not in ("step", "outer", "trial")
        beside = node.outer is None and any(
            other.outer is None and _overlap(node.loop, other.loop) for other in kept
        )
        inside = any(around in kept for around in node.around()) or node.outer is None
        if not small and not beside and inside:
            kept.append(node)
    for node in kept:
        node.outer = next((around for around in node.around() if around in kept), None)
    by_node = {id(node): role for node, role in pairs}
    return [(node, by_node[id(node)]) for node in _in_order(kept, None)]


def _in_order(nodes: Sequence[Nested], outer: Nested | None) -> Iterator[Nested]:
    """Yield the loops in a loop by start, each followed by the loops inside it."""
    own = [node for node in nodes if node.outer is outer]
    for node in sorted(own, key=lambda node: (int(node.loop.heads[0]), -node.loop.length)):
        yield node
        yield from _in_order(nodes, node)


def _overlap(loop: Repeats, other: Repeats) -> bool:
    """Return whether many iterations of a loop begin within iterations of another."""
    _, inside = placed(other.heads, other.ends, loop.heads)
    return float(inside.mean()) > _BESIDE


def _level(
    process: Issued, loop: Repeats, node: Nested, role: Role, numbers: dict[int, int]
) -> Level:
    outer = node.outer
    if isinstance(loop, Exact):
        source, boundary, match = "period", loop.boundary, loop.match
        begins, ends, repeats = loop.begins, loop.until, loop.repeats
    else:
        source, boundary, match = "symbols", "host", np.full(len(loop), np.nan)
        repeats = np.full(len(loop), 1)
        edges = np.unique(np.concatenate([loop.heads, loop.ends]))
        host = host_times(process, edges)
        begins, ends = (host[np.searchsorted(edges, own)] for own in (loop.heads, loop.ends))
    counts = None if outer is None else per_iteration(node.loop, outer.loop)
    return Level(
        loop=loop,
        role=role,
        number=numbers[id(node)],
        outer=0 if outer is None else numbers[id(outer)],
        level=1 + sum(1 for _ in node.around()),
        source=source,
        begins=begins,
        ends=ends,
        run=np.append(1, 1 + np.cumsum(loop.heads[1:] > loop.ends[:-1])),
        match=match,
        repeats=repeats,
        boundary=boundary,
        per_outer=None
        if counts is None
        else (int(counts.min()), float(np.median(counts)), int(counts.max())),
        variable=any(_varies(per_iteration(inner.loop, node.loop)) for inner in node.inner),
    )


def _varies(counts: Ints) -> bool:
    """Return whether more than a few iterations have another number of inner iterations."""
    return float((counts != np.median(counts)).mean()) > _VARIED


def _runs(run: Ints) -> list[Ints]:
    return np.split(np.arange(len(run)), np.flatnonzero(np.diff(run)) + 1)
