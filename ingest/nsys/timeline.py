"""Writes the joined tables of a timeline: launches, their steps, and ranges with their launches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, give_back, ints
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import release, slices
from perfpipe.ingest.nsys import launches as joined
from perfpipe.ingest.nsys.attribution import Attribution, Projection, attribute, launch_columns
from perfpipe.ingest.nsys.launch_modules import write_modules
from perfpipe.ingest.nsys.launch_steps import write_steps
from perfpipe.ingest.nsys.operations import KERNEL, MISSING, Operations
from perfpipe.ingest.nsys.range_tree import RangeTree
from perfpipe.ingest.nsys.ranges import Ranges
from perfpipe.ingest.stored import read_columns
from perfpipe.ingest.used_gpus import UsedGpus
from perfpipe.tablewriter import ROW_GROUP

LAUNCHES = "launches"
RANGES = "nsys_nvtx_ranges"


def write_timeline(
    builder: ReportBuilder, launches: joined.Launches, ranges: Ranges | None
) -> None:
    """Write launch_steps, `launches` and nsys_nvtx_ranges with their links, and set the GPU."""
    _state_gpu(builder, launches.operations)
    give_back()
    found = _write_launches(builder, launches, ranges)
    if ranges is not None and found is not None:
        _write_ranges(builder, launches, ranges, found)
    write_modules(builder, launches, ranges, found)
    unlinked = total = 0
    for rows in slices(len(launches)):
        # Nothing launches migrations of unified memory.
        called = launches.operations.kind[rows] == KERNEL
        called |= launches.operations.known("correlation_id", rows, missing=0) != 0
        total += int(np.count_nonzero(called))
        unlinked += int(np.count_nonzero(called & (launches.call[rows] == NONE)))
    if unlinked:
        builder.warn(f"{unlinked:,} of {total:,} GPU operations have no launching API call")


def _state_gpu(builder: ReportBuilder, operations: Operations) -> None:
    """Set the GPU of the report; without GPU work, the only GPU model of the machine."""
    gpus = {row["gpu"]: row for row in _rows(builder, "nsys_gpus", ["gpu", "name", "sm_count"])}
    physical = {
        (row["pid"], row["device"]): row["gpu"]
        for row in _rows(builder, "nsys_cuda_devices", ["pid", "device", "gpu"])
    }
    used = UsedGpus()
    for (pid, device), ns in _busy(operations).items():
        if (number := physical.get((pid, device), device)) in gpus:
            used.add(gpus[number]["name"], gpus[number]["sm_count"], ns)
    models = {(gpu["name"], gpu["sm_count"]) for gpu in gpus.values()}
    if not len(operations) and len(models) == 1:
        used.add(*models.pop(), 0)
    used.state(builder)


def _busy(operations: Operations) -> dict[tuple[int | None, int | None], float]:
    """Return the sum of durations on each device of each process, ns."""
    busy: dict[tuple[int | None, int | None], float] = {}
    for some in slices(len(operations)):
        start, end = (operations.numbers[name][some] for name in ("start_ns", "end_ns"))
        lasting = np.where((start == MISSING) | (end == MISSING), 0, end - start)
        pids, devices = (
            pa.array(operations.numbers[name][some]).dictionary_encode()
            for name in ("pid", "device")
        )
        pairs = ints(pids.indices) * len(devices.dictionary) + ints(devices.indices)
        sums = np.bincount(pairs, lasting)
        for pair in np.flatnonzero(np.bincount(pairs)).tolist():
            pid, device = divmod(pair, len(devices.dictionary))
            numbers = (pids.dictionary[pid].as_py(), devices.dictionary[device].as_py())
            known = [None if number == MISSING else number for number in numbers]
            where = (known[0], known[1])
            busy[where] = busy.get(where, 0) + sums[pair]
    return busy


def _rows(builder: ReportBuilder, table: str, columns: list[str]) -> list[dict[str, Any]]:
    if table not in builder.stored or not builder.stored[table].rows:
        return []
    rows = read_columns(builder.directory / f"{table}.parquet", columns)
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def _write_launches(
    builder: ReportBuilder, launches: joined.Launches, ranges: Ranges | None
) -> Attribution | None:
    write_steps(builder, launches)
    # The next steps need the memory.
    give_back()
    columns = launches.columns.beside()
    found = None if ranges is None else attribute(launches.calls, ranges, columns)

    def of(rows: slice) -> dict[str, pa.Array]:
        own = launch_columns(found, ranges, launches.call[rows])
        return joined.columns(launches, rows) | own

    _write(builder, LAUNCHES, len(launches), of)
    return found


def _write_ranges(
    builder: ReportBuilder, launches: joined.Launches, ranges: Ranges, found: Attribution
) -> None:
    columns = launches.columns.beside()
    projection = Projection(launches.calls, ranges, columns)
    tree = RangeTree(launches.calls, ranges, found, projection, columns)
    give_back()

    def of(rows: slice) -> dict[str, pa.Array]:
        return ranges.columns(rows) | projection.columns(rows) | tree.columns(rows)

    _write(builder, RANGES, len(ranges), of)


def _write(
    builder: ReportBuilder, table: str, rows: int, columns: Callable[[slice], dict[str, pa.Array]]
) -> None:
    """Write a table by row group, so that its columns are never completely in memory.

    The columns of a row group are computed while the previous row group is written.
    """
    parts = [slice(i, min(i + ROW_GROUP, rows)) for i in range(0, rows, ROW_GROUP)]
    with builder.table(table) as writer, ThreadPoolExecutor(1) as pool:
        made = [pool.submit(columns, part) for part in parts[:1]]
        for part, following in zip_longest(parts, parts[1:]):
            ready = made.pop().result()
            if following is not None:
                made.append(pool.submit(columns, following))
            writer.write(ready, part.stop - part.start)
            release()
