"""Finds the steps of a process or thread from the order of its launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes, Ints
from perfpipe.ingest.boundaries import boundaries, irregular_first, irregular_last
from perfpipe.ingest.columns import Columns, joined, slices
from perfpipe.ingest.nsys.issued import Issued
from perfpipe.ingest.nsys.waits import after_inputs, begins_of, idle_of, pauses_of, results_of
from perfpipe.ingest.periods import Loop, loops

#: A loop with more iterations is stored with several iterations in each step; one with very many is
#: combined at once, which bounds memory.
MOST_STEPS, _MANY = 10_000, 200_000

#: Share of the iterations in which the boundary must be at the same place.
_MOST = 0.5

#: Iterations that are examined to place the boundary.
_LOOKED_AT = 1_000

#: Maximum launches per iteration of an autotuning loop, and how many may be other kernels.
_TRIED, _BESIDES = 3, 1

#: A loop shorter than this share of another loop may be autotuning for it.
_WORTH_TUNING = 0.1

#: Durations before each launch, and the kind of boundary for the longest duration.
_Waits = Sequence[tuple[Ints, str]]


@dataclass(frozen=True)
class Steps:
    """Steps of a loop: `edges` are their first launches and the end of the last step.

    `host` are the times of the edges, ns, and `match` the share of launches that repeat.  Each step
    combines `repeats` iterations, of which `every` has the edges.
    """

    period: int
    repeats: int
    every: Ints
    edges: Ints
    host: Ints
    match: npt.NDArray[np.float64]
    boundary: str

    @property
    def first(self) -> int:
        """The first launch."""
        return int(self.edges[0])

    @property
    def last(self) -> int:
        """The launch after the last one."""
        return int(self.edges[-1])


def steps_of(process: Issued) -> list[Steps]:
    """Return the steps of each loop of a process, in order."""
    found: list[Steps] = []
    columns = process.columns.beside()
    waits = ((idle_of(process, columns), "idle"), (pauses_of(process, columns), "host"))
    known = loops(process.symbol, (process.optimizer, after_inputs(process, columns)))
    for loop in sorted(known, key=lambda loop: loop.first - loop.last):
        if any(steps.first < loop.last and loop.first < steps.last for steps in found):
            # It is part of the irregular first iteration of a larger loop.
            continue
        ends = [other.last for other in known if _before(other, loop)]
        since = max(ends + [steps.last for steps in found if steps.last <= loop.first], default=0)
        begins = [other.first for other in known if other.first >= loop.last]
        begins += [steps.first for steps in found if steps.first >= loop.last]
        steps = _steps(process, loop, since, min(begins, default=len(process.symbol)), waits)
        if steps is not None:
            found.append(steps)
    return _without_tuning(sorted(found, key=lambda steps: steps.first), process.symbol)


def _before(other: Loop, loop: Loop) -> bool:
    """Return whether a loop ends before another, and is longer than its irregular iteration."""
    return other.last <= loop.first and other.last - other.first > 2 * loop.period


def _without_tuning(found: list[Steps], symbols: Codes) -> list[Steps]:
    """Remove autotuning loops, which only try kernels that a later loop uses.

    Such a loop launches few other kernels, for example to flush the cache.
    """
    kinds = [_usual(symbols[steps.first : steps.last], len(steps.every) - 1) for steps in found]
    lasts = [int(steps.host[-1]) - int(steps.host[0]) for steps in found]

    def tries(one: int, later: int) -> bool:
        tried = len(kinds[one] & kinds[later])
        return (
            max(1, len(kinds[one]) - _BESIDES) <= tried <= len(kinds[one]) < len(kinds[later])
            and lasts[later] >= _WORTH_TUNING * lasts[one]
        )

    return [
        steps
        for at, steps in enumerate(found)
        if len(kinds[at]) > _TRIED or not any(tries(at, later) for later in range(at, len(found)))
    ]


def _usual(symbols: Codes, repeats: int) -> set[int]:
    """Return the symbols that occur in most iterations."""
    counts = Counter[int]()
    for some in slices(len(symbols)):
        often = np.bincount(symbols[some])
        counts.update({int(symbol): int(often[symbol]) for symbol in np.flatnonzero(often)})
    return {symbol for symbol, count in counts.items() if 2 * count >= repeats}


def _steps(process: Issued, loop: Loop, since: int, until: int, waits: _Waits) -> Steps | None:
    """Return the steps of a loop between the previous loop (`since`) and the next (`until`)."""
    codes, columns = process.symbol, process.columns.beside()
    start, boundary = _boundary(process, loop, waits)
    regular = boundaries(codes, loop, start, columns)
    earlier = irregular_first(codes, loop, int(regular[0]))
    ends = [int(regular[-1])]
    while (later := irregular_last(codes[:until], loop, ends[-1])) is not None:
        ends.append(later)
    irregular = ([] if earlier is None else [earlier], ends[1:])
    before, after = (np.array(edges, np.int64) for edges in irregular)
    edges = joined(columns, [before, regular, after])
    edges = edges[slice(*np.searchsorted(edges, (since, until + 1)))]
    if len(edges) < 3:
        return None
    match = _match(process, loop, edges, columns)
    every, repeats = edges, 1
    if len(match) > _MANY:
        repeats = -(-len(match) // MOST_STEPS)
        edges, match = _combined(edges, match, repeats)
    host = host_times(process, edges)
    return Steps(loop.period, repeats, every, edges, host, match, boundary)


def _combined(
    edges: Ints, match: npt.NDArray[np.float64], repeats: int
) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Return edges and mean matches of so many iterations at a time."""
    begins, means = [], []
    for some in slices(len(match), every=repeats):
        own = match[some]
        firsts = np.arange(0, len(own), repeats)
        begins.append(edges[some][firsts])
        means.append(np.add.reduceat(own, firsts) / np.diff(np.append(firsts, len(own))))
    return np.concatenate([*begins, edges[-1:]]), np.concatenate(means)


def _boundary(process: Issued, loop: Loop, waits: _Waits) -> tuple[int, str]:
    """Return where a regular iteration begins, and the kind of boundary.

    That is at the longest GPU idle time in most iterations; else after the optimizer; else at the
    longest host time in most iterations.
    """
    anchor = loop.clean
    edges = boundaries(process.symbol, loop, anchor, process.columns.beside())
    regular = np.zeros(0, np.int64)
    for some in slices(len(edges) - 1):
        begins = edges[some]
        lengths = np.diff(edges[some.start : some.stop + 1])
        regular = np.append(regular, begins[lengths == loop.period])[:_LOOKED_AT]
    if not len(regular):
        return anchor, "launch"
    found = {why: _longest(values, regular, loop.period) for values, why in waits}
    first = slice(int(regular[0]), int(regular[0]) + loop.period)
    found["optimizer"] = _behind_optimizer(process.optimizer[first])
    for why in ("idle", "optimizer", "host"):
        phase = found[why]
        if phase is not None:
            return anchor + phase, why
    return anchor, "launch"


def _longest(values: Ints, begins: Ints, period: int) -> int | None:
    """Return the place of the largest value in most iterations; None if there is none."""
    votes = np.zeros(period, np.int64)
    for some in slices(len(begins), among=len(values)):
        for begin in begins[some].tolist():
            iteration = values[begin : begin + period]
            place = int(iteration.argmax())
            votes[place] += iteration[place] > 0
    phase = int(votes.argmax())
    return phase if votes[phase] > _MOST * len(begins) else None


def _behind_optimizer(optimizer: npt.NDArray[np.bool_]) -> int | None:
    """Return the place after the optimizer in an iteration; None without or with only optimizer."""
    places = np.flatnonzero(optimizer)
    if not len(places) or len(places) == len(optimizer):
        return None
    # Cyclically, the optimizer ends before the longest part without it.
    gaps = np.diff(np.append(places, places[0] + len(optimizer)))
    return int((places[gaps.argmax()] + 1) % len(optimizer))


def host_times(process: Issued, edges: Ints) -> Ints:
    """Return when the host begins each iteration and ends the last one, ns.

    Copies between two iterations that follow the last result belong to the later iteration.
    """
    inner = edges[edges < len(process.host)]
    results = results_of(process, process.columns.beside())
    parts = [
        begins_of(process, results, inner[some])
        for some in slices(len(inner), among=len(process.host))
    ]
    found = np.concatenate(parts, axis=1)
    before, first, until = found[:3]
    times: Ints = found[3]
    usual = int(np.median((first - before)[1:])) if len(first) > 1 else 0
    if edges[-1] < len(process.host):
        # Launches after the loop do not belong to its last step.
        end = int(before[-1]) + usual
        times[-1] = process.copy_host[end] if end < until[-1] else times[-1]
        return times
    behind = int(np.searchsorted(process.copy_host, process.host[-1]))
    end = behind + usual
    final = process.copy_host[end] if end < len(process.copy_host) else np.iinfo(np.int64).max
    return np.append(times, final)


def _match(process: Issued, loop: Loop, edges: Ints, columns: Columns) -> npt.NDArray[np.float64]:
    """Return the share of each iteration that equals the previous or next iteration."""
    period, low = loop.period, max(int(edges[0]) - loop.period, 0)
    codes = process.symbol[low : int(edges[-1]) + period]
    sums = columns.new(len(codes) + 1, np.int64)
    for some in slices(len(codes)):
        own = codes[some]
        alike = np.zeros(len(own), bool)
        later = codes[some.start + period : some.stop + period]
        alike[: len(later)] |= own[: len(later)] == later
        begin = max(some.start, period)
        earlier = codes[begin - period : max(some.stop - period, 0)]
        alike[len(own) - len(earlier) :] |= own[len(own) - len(earlier) :] == earlier
        sums[some.start + 1 : some.stop + 1] = sums[some.start] + np.cumsum(alike)
    shares: npt.NDArray[np.float64] = columns.new(len(edges) - 1, np.float64)
    for some in slices(len(shares), among=len(codes)):
        own_edges = edges[some.start : some.stop + 1]
        shares[some] = np.diff(sums[own_edges - low]) / np.diff(own_edges)
    return shares
