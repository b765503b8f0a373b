"""Writes the table launch_modules: kernels with the module, operator and phase that launched them.

A kernel is where the range is that was open when it was launched (`attribution`), or, in a CUDA
graph, when it was captured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Ints, nullable
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import slices
from perfpipe.ingest.nsys.attribution import Attribution
from perfpipe.ingest.nsys.launches import Launches
from perfpipe.ingest.nsys.module_names import PHASES, Names, name_modules
from perfpipe.ingest.nsys.modules import HOW, Places, places_of
from perfpipe.ingest.nsys.operations import GRAPH, KERNEL, MISSING, texts_of
from perfpipe.ingest.nsys.ranges import Ranges
from perfpipe.ingest.sequences import latest_reaching
from perfpipe.ingest.stored import read_columns

TABLE, CALLS = "launch_modules", "module_calls"

#: Graphs are cloned for children and for execution, a few times at most.
_CLONES = 8

_NO_MODULES = "the program called no module of PyTorch, or the start-up file could not name it"


def write_modules(
    builder: ReportBuilder, launches: Launches, ranges: Ranges | None, found: Attribution | None
) -> None:
    """Write launch_modules, if there are ranges of modules."""
    if ranges is None or found is None or not name_modules(ranges.names):
        if builder.source.kind == "modules":
            builder.lacks(TABLE, _NO_MODULES)
        return
    names = Names(ranges.names)
    places = places_of(ranges, found, names)
    _write_calls(builder, ranges, names, places)
    captured = _captured(builder, ranges)
    devices, steps = _devices(builder), _Steps(builder)
    operations, calls = launches.operations, launches.calls
    with builder.table(TABLE) as writer:
        for some in slices(len(launches)):
            kind = operations.kind[some]
            rows = some.start + np.flatnonzero((kind == KERNEL) | (kind == GRAPH))
            call = launches.call[rows]
            known = call != NONE
            innermost = np.full(len(rows), NONE)
            innermost[known] = found.innermost[call[known]]
            node = operations.known("graph_node_id", rows)
            for at in np.flatnonzero(node != NONE).tolist():
                innermost[at] = captured.get(int(node[at]), innermost[at])
            host = np.full(len(rows), MISSING)
            host[known] = calls.start[call[known]]
            pid, device = (operations.numbers[name][rows] for name in ("pid", "device"))
            start, end = (operations.numbers[name][rows] for name in ("start_ns", "end_ns"))
            columns = {
                "op_id": pa.array(rows),
                "pid": nullable(pid, MISSING),
                "device": nullable(_physical(pid, device, devices), MISSING),
                "start_ns": nullable(start, MISSING),
                "dur_ns": pa.array(end - start, mask=(start == MISSING) | (end == MISSING)),
                "name": texts_of(operations.name[rows], operations.names),
                "demangled": texts_of(operations.demangled[rows], operations.full_names),
                "step": nullable(steps.of(pid, host)),
                **_columns(places, innermost),
            }
            writer.write(columns, len(rows))


def _write_calls(builder: ReportBuilder, ranges: Ranges, names: Names, places: Places) -> None:
    """Write which modules were called, and how often."""
    name = np.where(ranges.name == NONE, len(ranges.names), ranges.name)
    # The range of a class lies in that of the call.
    own = (names.module[name] != NONE) | ((names.kind[name] != NONE) & ~names.call[name])
    counts = np.bincount(
        places.module[own & (places.module != NONE)], minlength=len(places.modules)
    )
    calls = dict.fromkeys(sorted(places.modules), 0)
    for module, count in zip(places.modules, counts.tolist(), strict=True):
        calls[module] += count
    rows = [(*module, count) for module, count in calls.items() if count]
    columns = zip(("model", "module", "class", "calls"), zip(*rows, strict=True), strict=False)
    builder.write(CALLS, {column: list(values) for column, values in columns}, len(rows))


def _columns(places: Places, innermost: Ints) -> dict[str, pa.Array]:
    """Return where ranges are, as columns."""

    def of(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where(innermost == NONE, NONE, values[innermost])

    module = of(places.module)
    parts: list[list[str]] = [list(part) for part in zip(*places.modules, strict=True)]
    model, path, kind = parts or ([], [], [])
    return {
        "model": texts_of(module, model),
        "module": texts_of(module, path),
        "class": texts_of(module, kind),
        "operator": texts_of(of(places.operator), places.operators),
        "phase": texts_of(of(places.phase).astype(np.int32), PHASES),
        "how": texts_of(of(places.how).astype(np.int32), HOW),
    }


def _captured(builder: ReportBuilder, ranges: Ranges) -> dict[int, int]:
    """Return the innermost range that was open when each node of a CUDA graph was created."""
    table = "nsys_graph_nodes"
    if table not in builder.stored or not builder.stored[table].rows:
        return {}
    wanted = ["graph_node_id", "original_graph_node_id", "pid", "tid", "start_ns"]
    rows = read_columns(builder.directory / f"{table}.parquet", wanted)
    made: dict[int, tuple[int | None, int, int, int]] = {}
    for node, original, pid, tid, start in zip(*(rows[c].to_pylist() for c in wanted), strict=True):
        # A cloned node has two events; one of them states the node that it was cloned from.
        if node is None or start is None:
            continue
        if node not in made or (made[node][0] is None and original is not None):
            made[node] = (original, pid, tid, start)
    created: dict[int, tuple[int, int, int]] = {}
    for node in made:
        origin = node
        for _ in range(_CLONES):
            original = made[origin][0]
            if original is None or original not in made:
                break
            origin = original
        if made[origin][0] is None:
            created[node] = made[origin][1:]
    found: dict[int, int] = {}
    for code, (pid, tid) in enumerate(ranges.threads):
        nodes = [node for node, where in created.items() if where[:2] == (pid, tid)]
        own = np.flatnonzero((ranges.thread == code) & ranges.on_one_thread)
        if not nodes or not len(own):
            continue
        times = np.array([created[node][2] for node in nodes], np.int64)
        latest = np.searchsorted(ranges.start[own], times, side="right") - 1
        at = latest_reaching(ranges.end[own], latest, times).tolist()
        found |= {node: int(own[i]) for node, i in zip(nodes, at, strict=True) if i != NONE}
    return found


class _Steps:
    """The iterations of the loop whose iterations are steps, by process."""

    def __init__(self, builder: ReportBuilder) -> None:
        self._of: dict[int, tuple[Ints, Ints, Ints]] = {}
        for name in ("launch_loops", "launch_steps"):
            if name not in builder.stored or not builder.stored[name].rows:
                return
        loops = read_columns(builder.directory / "launch_loops.parquet", ["pid", "loop", "role"])
        stepping = {(row["pid"], row["loop"]) for row in loops.to_pylist() if row["role"] == "step"}
        wanted = ["pid", "loop", "step", "host_start_ns", "host_end_ns"]
        steps = read_columns(builder.directory / "launch_steps.parquet", wanted).to_pylist()
        for pid in {pid for pid, _ in stepping}:
            # The same iteration may have rows for several GPUs.
            own = sorted(
                {
                    (row["host_start_ns"], row["host_end_ns"], row["step"])
                    for row in steps
                    if row["pid"] == pid and (pid, row["loop"]) in stepping
                }
            )
            if own:
                begins, ends, numbers = (
                    np.array(part, np.int64) for part in zip(*own, strict=True)
                )
                self._of[pid] = begins, ends, numbers

    def of(self, pid: Ints, host: Ints) -> Ints:
        """Return the step in which calls began, or NONE."""
        found = np.full(len(pid), NONE)
        for process, (begins, ends, numbers) in self._of.items():
            rows = np.flatnonzero((pid == process) & (host != MISSING))
            at = np.maximum(np.searchsorted(begins, host[rows], side="right") - 1, 0)
            inside = (host[rows] >= begins[at]) & (host[rows] < ends[at])
            found[rows[inside]] = numbers[at[inside]]
        return found


def _devices(builder: ReportBuilder) -> dict[tuple[int, int], int]:
    """Return the physical GPU of each CUDA device of each process."""
    table = "nsys_cuda_devices"
    if table not in builder.stored or not builder.stored[table].rows:
        return {}
    rows = read_columns(builder.directory / f"{table}.parquet", ["pid", "device", "gpu"])
    return {(row["pid"], row["device"]): row["gpu"] for row in rows.to_pylist()}


def _physical(pid: Ints, device: Ints, devices: dict[tuple[int, int], int]) -> Ints:
    """Return the physical GPU of operations; without a mapping, the CUDA device."""
    found = device.copy()
    for (process, number), gpu in devices.items():
        if gpu is not None and gpu != number:
            found[(pid == process) & (device == number)] = gpu
    return found
