"""Writes the tables that join a timeline: launches, their steps, ranges with what they launched."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from ingest.arrays import NONE, give_back
from ingest.builder import ReportBuilder
from ingest.nsys import launches as joined
from ingest.nsys.attribution import Projection, attribute, launch_columns
from ingest.nsys.ranges import Ranges
from ingest.nsys.steps import write_steps
from perfpipe.tablewriter import ROW_GROUP

LAUNCHES = "launches"
RANGES = "nsys_nvtx_ranges"


def write_timeline(
    builder: ReportBuilder, operations: joined.Launches, ranges: Ranges | None
) -> None:
    """Write `launches` and nsys_nvtx_ranges, each with its links to the other.

    The two are written at a time: the Parquet writer releases the interpreter's lock.
    """
    write_steps(builder, operations)
    found = None if ranges is None else attribute(operations.calls, ranges)
    give_back()

    def launch(rows: slice) -> dict[str, pa.Array]:
        own = launch_columns(found, ranges, operations.call[rows])
        return joined.columns(operations, rows) | own

    with ThreadPoolExecutor(2) as pool:
        tables = [pool.submit(_write, builder, LAUNCHES, len(operations), launch)]
        if ranges is not None:
            tables.append(pool.submit(_write_ranges, builder, operations.calls, ranges))
        for table in tables:
            table.result()
    unlinked = int(np.count_nonzero(operations.call == NONE))
    if unlinked:
        total = len(operations)
        builder.warn(f"{unlinked:,} of {total:,} GPU operations have no launching API call")


def _write_ranges(builder: ReportBuilder, calls: joined.Calls, ranges: Ranges) -> None:
    projection = Projection(calls, ranges)
    give_back()
    _write(
        builder, RANGES, len(ranges), lambda rows: ranges.columns(rows) | projection.columns(rows)
    )


def _write(
    builder: ReportBuilder, table: str, rows: int, columns: Callable[[slice], dict[str, pa.Array]]
) -> None:
    """Write a table a row group at a time, so that its columns are never whole in memory.

    The columns of a row group are made while the one before is written.
    """
    parts = [slice(i, min(i + ROW_GROUP, rows)) for i in range(0, rows, ROW_GROUP)]
    with builder.table(table) as writer, ThreadPoolExecutor(1) as pool:
        made = [pool.submit(columns, part) for part in parts[:1]]
        for part, following in zip_longest(parts, parts[1:]):
            ready = made.pop().result()
            if following is not None:
                made.append(pool.submit(columns, following))
            writer.write(ready, part.stop - part.start)
