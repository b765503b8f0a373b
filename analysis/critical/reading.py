"""Reads the operations and calls of steps from a session, and builds the graph of each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfpipe.analysis.critical.events import NONE, Calls, Operations
from perfpipe.analysis.critical.graph import Graph, Limits, graph_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.ingest.arrays import Ints

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
NEEDS = frozenset(("_path_steps", "_path_operations", "_path_calls"))

Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Step:
    """A step, or several that follow each other, with the graph of the work in them.

    `role` is median, slowest or several; `bounds` are the starts of the steps and the end of the
    last, ns on the job's clock.  `gpu` is the number of the GPU that the path belongs to; `gpus`
    maps numbers to report and device, `processes` to report and process, `threads` to threads.
    `operation_ids` are those of launches.
    """

    job: str
    role: str
    report: str
    device: int | None
    bounds: list[int]
    graph: Graph
    gpu: int
    gpus: list[tuple[str, int]]
    processes: list[tuple[str, int]]
    threads: list[tuple[str, int, int]]
    operation_ids: Ints


def steps_in(con: DuckDBPyConnection, roles: Sequence[str]) -> Iterator[Step]:
    """Yield the steps of some roles with their graphs, by job."""
    chosen = ", ".join(f"'{role}'" for role in roles)
    steps = con.execute(
        "SELECT job, role, report_id, device, bounds_ns FROM _path_steps "
        f"WHERE role IN ({chosen}) ORDER BY job, role"
    ).fetchall()
    if not steps:
        return
    operations = _by_step(con, "_path_operations", chosen)
    calls = _by_step(con, "_path_calls", chosen)
    for job, role, report, device, bounds in steps:
        own = operations.get((job, role))
        if own is not None:
            called = calls.get((job, role)) or _none()
            yield _step((job, role, report, device, bounds), own, called)


def _by_step(con: DuckDBPyConnection, view: str, chosen: str) -> dict[tuple[str, str], Columns]:
    """Return the rows of each step as columns; the rows are sorted by step."""
    rows = con.execute(f"FROM {view} WHERE role IN ({chosen})").fetchnumpy()
    columns = {name: _filled(values) for name, values in rows.items()}
    job, role = columns["job"], columns["role"]
    if not len(job):
        return {}
    changes = np.flatnonzero((job[1:] != job[:-1]) | (role[1:] != role[:-1])) + 1
    edges = [0, *changes.tolist(), len(job)]
    return {
        (str(job[low]), str(role[low])): {name: own[low:high] for name, own in columns.items()}
        for low, high in pairwise(edges)
    }


def _filled(values: Any) -> npt.NDArray[Any]:
    """Return a column with NONE for whole numbers that are NULL."""
    if isinstance(values, np.ma.MaskedArray):
        missing = False if values.dtype == bool else NONE if values.dtype.kind in "iuf" else ""
        return np.asarray(values.filled(missing))
    return np.asarray(values)


def _none() -> Columns:
    whole = np.zeros(0, np.int64)
    names = ("pid", "tid", "start_ns", "end_ns", "waiting_stream", "awaited_stream", "recorded_ns")
    texts = {name: np.zeros(0, object) for name in ("report_id", "name")}
    flags = {name: np.zeros(0, bool) for name in ("blocks", "loads", "orders")}
    return {**dict.fromkeys(names, whole), **texts, **flags}


def _numbers(*columns: npt.NDArray[Any]) -> tuple[Ints, list[tuple[Any, ...]]]:
    """Return a number for each row, equal for equal rows, and the rows that numbers stand for."""
    known: dict[tuple[Any, ...], int] = {}
    rows = zip(*(column.tolist() for column in columns), strict=True)
    found = [known.setdefault(row, len(known)) for row in rows]
    return np.array(found, np.int64), list(known)


def _step(row: tuple[str, str, str, int | None, list[int]], ops: Columns, calls: Columns) -> Step:
    job, role, report, device, bounds = row
    count = len(ops["op_id"])
    reports = np.concatenate([ops["report_id"], calls["report_id"]])
    process, processes = _numbers(reports, np.concatenate([ops["pid"], calls["pid"]]))
    tid = np.concatenate([ops["tid"], calls["tid"]])
    thread, threads = _numbers(process, tid)
    gpu, gpus = _numbers(ops["report_id"], ops["device"])
    # A process numbers the streams of each of its devices; events do not say of which device.
    stream, streams = _numbers(process[:count], ops["cuda_device"], ops["stream"])
    own_streams: dict[tuple[int, int], int] = {}
    for number, (owner, _, name) in enumerate(streams):
        own_streams.setdefault((owner, name), number)
    called = process[count:].tolist()
    waiting, awaits = (
        np.array(
            [own_streams.get(key, NONE) for key in zip(called, calls[name].tolist(), strict=True)],
            np.int64,
        )
        for name in ("waiting_stream", "awaited_stream")
    )
    operations = Operations(
        stream,
        gpu,
        process[:count],
        _whole(ops["start_ns"]),
        _whole(ops["end_ns"]),
        _call_of(thread[:count], ops["call_ns"], thread[count:], calls["start_ns"]),
        _whole(ops["call_ns"]),
        _whole(ops["pair"]),
        np.maximum(_whole(ops["residual_ns"]), 0),
        ops["category"].tolist(),
        ops["name"].tolist(),
    )
    made = Calls(
        thread[count:],
        process[count:],
        _whole(calls["start_ns"]),
        _whole(calls["end_ns"]),
        calls["blocks"].astype(bool),
        calls["loads"].astype(bool),
        calls["orders"].astype(bool),
        waiting,
        awaits,
        _whole(calls["recorded_ns"]),
        calls["name"].tolist(),
    )
    return Step(
        job,
        role,
        report,
        device,
        bounds,
        graph_of(operations, made, limits()),
        gpus.index((report, NONE if device is None else device)),
        [(own, number) for own, number in gpus],
        [(own, number) for own, number in processes],
        [(*processes[own], number) for own, number in threads],
        _whole(ops["op_id"]),
    )


def _whole(values: npt.NDArray[Any]) -> Ints:
    return np.asarray(values, np.int64)


def _call_of(of_operation: Ints, called: npt.NDArray[Any], thread: Ints, start: Ints) -> Ints:
    """Return the call that launched each operation, by thread and start, or NONE."""
    if not len(thread):
        return np.full(len(of_operation), NONE)
    times, at = np.unique(np.concatenate([called, start]), return_inverse=True)
    key = thread * len(times) + at[len(called) :]
    wanted = of_operation * len(times) + at[: len(called)]
    by_key = np.argsort(key, kind="stable")
    place = np.minimum(np.searchsorted(key[by_key], wanted), len(key) - 1)
    found = by_key[place]
    return np.where((key[found] == wanted) & (called != NONE), found, NONE)


def limits() -> Limits:
    """Return what decides which inferred dependencies there are."""
    own = thresholds()
    return Limits(
        int(own["critical.near_ns"]),
        int(own["critical.handoff_ns"]),
        int(own["critical.full_queue_ns"]),
        int(own["critical.full_queue_operations"]),
    )
