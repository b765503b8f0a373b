"""Finds the steps of a process or thread from the order of its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes, Ints
from perfpipe.ingest.boundaries import boundaries, irregular_first, irregular_last
from perfpipe.ingest.nsys.issued import Issued
from perfpipe.ingest.periods import Loop, Marks, loops

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

    `host` are the times of the edges, ns, and `match` the share of launches that repeat.
    """

    period: int
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
    pauses = process.host.copy()
    pauses[1:] -= np.minimum(process.ended[:-1], process.host[1:])
    pauses[:1] = 0
    waits = ((np.maximum(process.idle, _idle_of_copies(process)), "idle"), (pauses, "host"))
    known = loops(process.symbol, _marks(process))
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
    kinds = [_usual(symbols[steps.first : steps.last], len(steps.match)) for steps in found]
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
    return set(np.flatnonzero(2 * np.bincount(symbols) >= repeats).tolist())


def _marks(process: Issued) -> Marks:
    """Return launches that occur a few times per step: optimizers, and launches after inputs."""
    inputs = np.zeros(len(process.host), bool)
    following = np.searchsorted(process.host, process.copy_host[process.given])
    inputs[following[following < len(inputs)]] = True
    return process.optimizer, inputs


def _steps(process: Issued, loop: Loop, since: int, until: int, waits: _Waits) -> Steps | None:
    """Return the steps of a loop between the previous loop (`since`) and the next (`until`)."""
    codes = process.symbol
    start, boundary = _boundary(process, loop, waits)
    edges = boundaries(codes, loop, start)
    earlier = irregular_first(codes, loop, int(edges[0]))
    if earlier is not None:
        edges = np.append(earlier, edges)
    while (later := irregular_last(codes[:until], loop, int(edges[-1]))) is not None:
        edges = np.append(edges, later)
    edges = edges[(edges >= since) & (edges <= until)]
    if len(edges) < 3:
        return None
    match = _match(process, loop, edges)
    return Steps(loop.period, edges, host_times(process, edges), match, boundary)


def _boundary(process: Issued, loop: Loop, waits: _Waits) -> tuple[int, str]:
    """Return where a regular iteration begins, and the kind of boundary.

    That is at the longest GPU idle time in most iterations; else after the optimizer; else at the
    longest host time in most iterations.
    """
    anchor = loop.clean
    edges = boundaries(process.symbol, loop, anchor)
    regular = edges[:-1][np.diff(edges) == loop.period][:_LOOKED_AT]
    if not len(regular):
        return anchor, "launch"
    places = regular[:, None] + np.arange(loop.period)
    found = {why: _longest(values[places]) for values, why in waits}
    found["optimizer"] = _behind_optimizer(process.optimizer[places[0]])
    for why in ("idle", "optimizer", "host"):
        phase = found[why]
        if phase is not None:
            return anchor + phase, why
    return anchor, "launch"


def _longest(values: Ints) -> int | None:
    """Return the column with the largest value in most rows; None if there is none."""
    votes = np.bincount(values.argmax(axis=1)[values.max(axis=1) > 0], minlength=1)
    phase = int(votes.argmax())
    return phase if votes[phase] > _MOST * len(values) else None


def _behind_optimizer(optimizer: npt.NDArray[np.bool_]) -> int | None:
    """Return the place after the optimizer in an iteration; None without or with only optimizer."""
    places = np.flatnonzero(optimizer)
    if not len(places) or len(places) == len(optimizer):
        return None
    # Cyclically, the optimizer ends before the longest part without it.
    gaps = np.diff(np.append(places, places[0] + len(optimizer)))
    return int((places[gaps.argmax()] + 1) % len(optimizer))


def _idle_of_copies(process: Issued) -> Ints:
    """Return the longest idle time before the copies that precede each launch."""
    idle = np.zeros(len(process.host), np.int64)
    following = np.searchsorted(process.host, process.copy_host)
    # Copies before a result belong to earlier launches.
    results = process.copy_host[process.result]
    answered = np.searchsorted(results, process.copy_host)
    behind = np.append(results, np.iinfo(np.int64).max)[answered]
    kept = following < len(idle)
    kept[kept] &= behind[kept] > process.host[following[kept]]
    kept &= ~process.result
    np.maximum.at(idle, following[kept], process.copy_idle[kept])
    return idle


def host_times(process: Issued, edges: Ints) -> Ints:
    """Return when the host begins each iteration and ends the last one, ns.

    Copies between two iterations that follow the last result belong to the later iteration.
    """
    inner = edges[edges < len(process.host)]
    before = np.searchsorted(process.copy_host, process.host[np.maximum(inner - 1, 0)])
    before[inner == 0] = 0
    until = np.searchsorted(process.copy_host, process.host[inner])
    last_result = np.append(
        -1, np.maximum.accumulate(np.where(process.result, np.arange(len(process.result)), -1))
    )
    first = np.maximum(before, last_result[until] + 1)
    times = process.host[inner].copy()
    some = first < until
    times[some] = process.copy_host[first[some]]
    if edges[-1] < len(process.host):
        # Launches after the loop do not belong to its last step.
        usual = int(np.median((first - before)[1:])) if len(first) > 1 else 0
        end = int(before[-1]) + usual
        times[-1] = process.copy_host[end] if end < until[-1] else times[-1]
        return times
    behind = int(np.searchsorted(process.copy_host, process.host[-1]))
    usual = int(np.median((first - before)[1:])) if len(first) > 1 else 0
    end = behind + usual
    final = process.copy_host[end] if end < len(process.copy_host) else np.iinfo(np.int64).max
    return np.append(times, final)


def _match(process: Issued, loop: Loop, edges: Ints) -> npt.NDArray[np.float64]:
    """Return the share of each iteration that equals the previous or next iteration."""
    period, low = loop.period, max(int(edges[0]) - loop.period, 0)
    codes = process.symbol[low : int(edges[-1]) + period]
    same = codes[:-period] == codes[period:]
    alike = np.zeros(len(codes), bool)
    alike[: len(same)] |= same
    alike[period:] |= same
    sums = np.append(0, np.cumsum(alike))
    shares: npt.NDArray[np.float64] = np.diff(sums[edges - low]) / np.diff(edges)
    return shares
