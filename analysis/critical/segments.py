"""The segments of critical paths as columns: where each is, and what it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from perfpipe.analysis.critical.events import NONE, Flags
from perfpipe.analysis.critical.path import Segment
from perfpipe.analysis.critical.reading import Step
from perfpipe.ingest.arrays import Ints, nullable

SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("job", "role", "category", "name", "report_id")]
    + [
        (name, pa.int64())
        for name in (
            *("place", "start_ns", "dur_ns", "pid", "device", "tid", "op_id", "next_op_id"),
            "waits_ns",
        )
    ]
)


def columns(step: Step, path: Sequence[Segment]) -> pa.Table:
    """Return the segments of a path, given last first, in the columns of SCHEMA.

    `report_id`, `pid`, `device` and `tid` say where a segment is; a collective that all ranks have
    begun is nowhere.  `op_id` is its operation, `next_op_id` the first operation of the call that
    follows it.  `waits_ns` is how long the GPU of the step waits in a collective meanwhile.
    """
    path = path[::-1]
    graph = step.graph
    ops, calls, count = graph.operations, graph.calls, len(graph.operations)
    start, end, own, call, before = (
        np.array([getattr(segment, name) for segment in path], np.int64)
        for name in ("start", "end", "operation", "call", "before")
    )
    works, inside = own != NONE, call != NONE
    following = np.where(before >= count, _at(_first(step), before - count), before)
    call = np.where(works, NONE, np.where(inside, call, np.maximum(before - count, NONE)))
    hosts = call != NONE
    # What is neither an operation nor on the host is a gap before an operation.
    precedes = ~works & ~hosts & (before != NONE)
    gap = np.where(precedes, before, NONE)
    category = [segment.category for segment in path]
    # Which thread of the host accesses pages that migrate is unknown.
    on_gpu = works | (gap != NONE) & np.array([name != "host" for name in category], bool)
    process = np.where(works, _at(ops.process, own), _at(ops.process, gap))
    process = np.where(hosts, _at(calls.process, call), process)
    gpu = np.where(on_gpu, _at(ops.gpu, np.where(works, own, gap)), NONE)
    reports = np.array([*(report for report, _ in step.processes), step.report], object)
    everywhere = works & (_at(graph.met, own) != NONE)
    pid, device = (
        np.where(everywhere, NONE, _at(np.array([number for _, number in of], np.int64), which))
        for of, which in ((step.processes, process), (step.gpus, gpu))
    )
    tid = _at(np.array([number for *_, number in step.threads], np.int64), _at(calls.thread, call))
    named = inside | (hosts & np.array([name == "sync" for name in category], bool))
    names = np.array([*ops.name, *calls.name, None], object)
    name = names[np.where(works, own, np.where(named, call + count, NONE))]
    found = {
        "job": [step.job] * len(path),
        "role": [step.role] * len(path),
        "category": category,
        "name": name.tolist(),
        "report_id": reports[process].tolist(),
        "place": np.arange(1, len(path) + 1),
        "start_ns": start - step.bounds[0],
        "dur_ns": end - start,
        "pid": nullable(pid),
        "device": nullable(device),
        "tid": nullable(tid),
        "op_id": nullable(_at(step.operation_ids, own)),
        "next_op_id": nullable(_at(step.operation_ids, following)),
        "waits_ns": _waited(step, end) - _waited(step, start),
    }
    return pa.table(found, schema=SCHEMA)


def _at(values: Ints, places: Ints) -> Ints:
    """Return the values at some places, NONE at the place NONE."""
    return np.append(values, NONE)[np.maximum(places, NONE)]


def _first(step: Step) -> Ints:
    """Return the first operation of each call, or NONE."""
    call = step.graph.operations.call
    launched = np.flatnonzero(call != NONE)[::-1]
    first = np.full(len(step.graph.calls), NONE)
    first[call[launched]] = launched
    return first


def _waited(step: Step, times: Ints) -> Ints:
    """Return how long the GPU of a step has waited in collectives up to some times, ns."""
    ops, met = step.graph.operations, step.graph.met
    waiting: Flags = (ops.gpu == step.gpu) & (met > ops.start + ops.slack)
    begin, until = merged(ops.start[waiting], met[waiting])
    if not len(begin):
        return np.zeros(len(times), np.int64)
    earlier = np.concatenate([[0], np.cumsum(until - begin)])
    at = np.searchsorted(begin, times, side="right")
    last = np.maximum(at - 1, 0)
    within = np.where(at > 0, np.minimum(times, until[last]) - begin[last], 0)
    return np.asarray(earlier[last] + within, np.int64)


def merged(begin: Ints, until: Ints) -> tuple[Ints, Ints]:
    """Return the union of some intervals, as intervals in order that do not meet."""
    if not len(begin):
        return begin, until
    order = np.argsort(begin, kind="stable")
    begin, until = begin[order], np.maximum.accumulate(until[order])
    first = np.ones(len(begin), bool)
    first[1:] = begin[1:] > until[:-1]
    last = np.append(first[1:], True)
    return begin[first], until[last]
