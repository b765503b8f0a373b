"""Walks the graph of a step back from its end: the path that explains every ns of it."""

from __future__ import annotations

from typing import NamedTuple

from perfpipe.analysis.critical.events import NONE
from perfpipe.analysis.critical.graph import (
    ARRIVED,
    CALL,
    GAP,
    HOST,
    OPERATION,
    QUEUED,
    SYNC,
    Graph,
)

#: Category of time before anything that was recorded.
UNKNOWN = "unattributed"

#: Categories of edges that are no operations or calls.
CATEGORIES = {HOST: "host", QUEUED: "queued", GAP: "kernel_gap", SYNC: "sync"}

#: Category of calls that launch work, that load code, and of the others.
LAUNCH, LOADING, OTHER_CALL = "launch_api", "loading", "cuda_call"

#: Category of work that starts long after all that it is known to wait for.
DEVICE_WAIT = "device_wait"


class Segment(NamedTuple):
    """A part of the path, ns on the job's clock; `operation` or `call` is its owner, or NONE.

    `before` is the call that host work precedes, the operation that a gap precedes, or the call
    that returned.
    """

    start: int
    end: int
    category: str
    operation: int = NONE
    call: int = NONE
    before: int = NONE


def categories_of(graph: Graph, device_wait: int) -> list[str]:
    """Return the category of each edge; gaps longer than `device_wait` ns are waits."""
    launching = set(graph.operations.call.tolist())
    count = len(graph.operations)
    took = (graph.time[graph.target] - graph.time[graph.source]).tolist()
    found = []
    for kind, owner, ns in zip(graph.kind.tolist(), graph.owner.tolist(), took, strict=True):
        if kind == OPERATION:
            found.append(graph.operations.category[owner])
        elif kind == CALL:
            call = owner - count
            loads = graph.calls.loads[call]
            found.append(LAUNCH if call in launching else LOADING if loads else OTHER_CALL)
        elif kind == ARRIVED:
            found.append("communication")
        elif kind in (QUEUED, GAP) and ns > device_wait:
            found.append(DEVICE_WAIT)
        else:
            found.append(CATEGORIES[kind])
    return found


def end_of(graph: Graph, gpu: int, at: int) -> tuple[int, int]:
    """Return the point from which a step of a GPU that ends at a time is explained, and its place.

    That is the start of the operation that begins the next step, else what ended last before: an
    operation of the GPU, or a call of a process on it.  (NONE, NONE) if there is none.
    """
    import numpy as np

    ops, calls = graph.operations, graph.calls
    own = np.flatnonzero(ops.gpu == gpu)
    next_ = own[ops.start[own] == at]
    if len(next_):
        return int(next_[0]), at
    points: list[tuple[int, int, int]] = []
    ended = own[ops.end[own] <= at]
    if len(ended):
        last = int(ended[np.argmax(ops.end[ended])])
        points.append((int(ops.end[last]), 1, last + len(ops)))
    returned = np.flatnonzero((calls.end <= at) & np.isin(calls.process, ops.process[own]))
    if len(returned):
        last = int(returned[np.argmax(calls.end[returned])])
        points.append((int(calls.end[last]), 0, last + 2 * len(ops) + len(calls)))
    if not points:
        return NONE, NONE
    time, _, point = max(points)
    return point, time


def path_of(graph: Graph, categories: list[str], gpu: int, start: int, end: int) -> list[Segment]:
    """Return the critical path of a step, last segment first.

    Segments are disjoint and cover [start, end]: each begins where what it waited for last ended.
    """
    point, time = end_of(graph, gpu, end)
    if point == NONE or time <= start:
        return [Segment(start, end, UNKNOWN)] if end > start else []
    found = [Segment(time, end, CATEGORIES[HOST])] if time < end else []
    count = len(graph.operations)
    bound, sources = graph.bound.tolist(), graph.source.tolist()
    times, owners = graph.time.tolist(), graph.owner.tolist()
    while time > start:
        edge = bound[point]
        if edge == NONE:
            first = _owner(graph, point)
            category = CATEGORIES[HOST] if first >= count else UNKNOWN
            found.append(Segment(start, time, category, before=first))
            break
        source = sources[edge]
        begin = max(times[source], start)
        if begin < time:
            owner = owners[edge]
            found.append(
                Segment(
                    begin,
                    time,
                    categories[edge],
                    owner if NONE < owner < count else NONE,
                    owner - count if owner >= count else NONE,
                    _owner(graph, point),
                )
            )
        point, time = source, times[source]
    return found


def _owner(graph: Graph, point: int) -> int:
    """Return the element of a point: an operation, or a call plus the number of operations."""
    count, calls = len(graph.operations), len(graph.calls)
    if point < 2 * count:
        return point % count
    if point < 2 * (count + calls):
        return count + (point - 2 * count) % calls
    return NONE
