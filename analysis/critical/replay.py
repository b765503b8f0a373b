"""Replays the graph of some steps with parts that last shorter or longer.

Dependencies stay as they are; all other parts last as long as they did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfpipe.analysis.critical.events import NONE
from perfpipe.analysis.critical.graph import Graph
from perfpipe.analysis.critical.path import end_of
from perfpipe.ingest.arrays import Ints

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Replayed:
    """Time of a step, ns: as recorded, and in each scenario; `steps` are averaged."""

    step_ns: float
    new_ns: tuple[float, ...]
    steps: int


def replay(graph: Graph, lasting: Floats, start: int) -> Floats:
    """Return when each point happens if edges last `lasting` ns, by point and scenario.

    `lasting` has a row per edge, in their order, and a column per scenario.  What happened before
    `start`, and what waits for nothing, stays.
    """
    times = np.repeat(graph.time.astype(np.float64)[:, None], lasting.shape[1], axis=1)
    first = graph.first.tolist()
    source = graph.source.tolist()
    recorded = graph.time.tolist()
    maximum = np.maximum
    for place, point in enumerate(graph.order.tolist()):
        low, high = first[place], first[place + 1]
        if low == high or recorded[point] < start:
            continue
        at = times[source[low]] + lasting[low]
        for edge in range(low + 1, high):
            maximum(at, times[source[edge]] + lasting[edge], out=at)
        times[point] = at
    return times


def steps_of(graph: Graph, lasting: Floats, gpu: int, bounds: list[int]) -> Replayed | None:
    """Return the mean time of the later half of some steps, as recorded and in each scenario.

    `bounds` are the starts of the steps and the end of the last, ns.  In the earlier half the host
    may still be ahead by what it was ahead before; a step cannot take less than what a thread of
    the host needs for it.  None if an end of a step is unknown.
    """
    middle = (len(bounds) - 1) // 2
    ends = [end_of(graph, gpu, bounds[at]) for at in (middle, -1)]
    steps = len(bounds) - 1 - middle
    if middle == 0:
        ends[0] = (NONE, bounds[0])
    if ends[1][0] == NONE or (middle and ends[0][0] == NONE):
        return None
    times = replay(graph, lasting, bounds[0])
    tails = [bounds[middle] - ends[0][1], bounds[-1] - ends[1][1]]
    begin = times[ends[0][0]] if middle else np.full(lasting.shape[1], float(bounds[0]))
    took = times[ends[1][0]] + tails[1] - begin - tails[0]
    recorded = bounds[-1] - bounds[middle]
    host = _host(graph, lasting, bounds[middle], bounds[-1])
    plain = _host(graph, graph.least.astype(np.float64)[:, None], bounds[middle], bounds[-1])
    within = np.minimum(1.0, recorded / np.maximum(plain, 1.0))
    took = np.maximum(took, (host * within).max(axis=0, initial=0.0))
    # A part of the earlier half may have gained more than its like in the later half.
    shorter = (lasting <= graph.least[:, None]).all(axis=0)
    took = np.where(shorter, np.minimum(took, recorded), took)
    return Replayed(recorded / steps, tuple((took / steps).tolist()), steps)


def _host(graph: Graph, lasting: Floats, start: int, end: int) -> Floats:
    """Return what each thread needs for its own calls and its work between them, ns."""
    own = (graph.thread != NONE) & (graph.time[graph.target] <= end)
    own &= graph.time[graph.source] >= start
    threads: Ints = graph.thread[own]
    needed = np.zeros((int(threads.max()) + 1 if len(threads) else 0, lasting.shape[1]))
    np.add.at(needed, threads, lasting[own])
    return needed
