"""Joins GPU operations to the API calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import (
    NONE,
    STILL_OPEN,
    Codes,
    Ints,
    Vocabulary,
    groups,
    ints,
    nullable,
    whole,
)
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import Columns, Zones, in_order, slices
from perfpipe.ingest.nsys.ends import correct_ends
from perfpipe.ingest.nsys.operations import (
    GRAPH,
    KINDS,
    MISSING,
    OPERATIONS,
    Operations,
    read_operations,
    texts_of,
)
from perfpipe.ingest.nsys.unrecorded import count_unrecorded
from perfpipe.ingest.stored import row_groups

_CALLS = "nsys_api_calls"

#: Tables that launches are joined from.
SOURCES = frozenset((*(table for table, *_ in OPERATIONS), _CALLS))

#: Numbers of operations that `launches` has.
_NUMBERS = ("device", "stream", "start_ns", "end_ns", "pid", "correlation_id", "graph_node_id")


@dataclass
class Calls:
    """Calls that launched GPU work, ordered by process, thread and start: the index is the call_id.

    Times in ns.  `gpu_start` and `gpu_end` span the kernels, copies and memsets of a call;
    gpu_start is the largest integer if the call launched only whole CUDA graphs, which count only
    in `time`.
    """

    pid: Ints
    tid: Ints
    start: Ints
    end: Ints
    name: Codes  # of names
    recorded_name: Codes
    names: list[str]
    gpu_start: Ints
    gpu_end: Ints
    gpu_time: Ints  # sum of the durations of its kernels, copies and memsets
    time: Ints  # sum of the durations of all its operations

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Launches:
    """GPU operations with their calls: `call` is a call_id or NONE.

    `columns` makes columns that are derived from these.
    """

    operations: Operations
    call: Codes
    calls: Calls
    columns: Columns

    def __len__(self) -> int:
        return len(self.operations)


def join_launches(builder: ReportBuilder, columns: Columns) -> Launches:
    """Join the operations of this report on disk to their calls, which are also on disk.

    Correlation ids restart in every process, so the process is part of the key; if one key has
    several calls, the first call counts.
    """
    operations = read_operations(builder, columns)
    correct_ends(builder, operations, columns.beside())
    launching = columns.beside().new(builder.stored[_CALLS].rows, bool)
    row = _rows_of_calls(builder, operations, launching, columns.beside())
    calls, ids = _calls(builder, launching, columns)
    call = columns.new(len(operations), np.int32)
    for some in slices(len(operations)):
        call[some] = np.where(row[some] == NONE, NONE, ids[row[some]] if len(ids) else NONE)
        _add_gpu_times(calls, call, operations, some)
    called = (calls.pid, calls.start)
    count_unrecorded(builder, launching, operations, called, columns.beside())
    return Launches(operations, call, calls, columns)


def _add_gpu_times(calls: Calls, call: Codes, operations: Operations, some: slice) -> None:
    linked = (call[some] != NONE) & (operations.numbers["end_ns"][some] != MISSING)
    rows = some.start + np.flatnonzero(linked)
    start, end = (operations.known(c, rows, missing=0) for c in ("start_ns", "end_ns"))
    np.add.at(calls.time, call[rows], end - start)
    single = operations.kind[rows] != GRAPH
    rows, start, end = rows[single], start[single], end[single]
    np.minimum.at(calls.gpu_start, call[rows], start)
    np.maximum.at(calls.gpu_end, call[rows], end)
    np.add.at(calls.gpu_time, call[rows], end - start)


def columns(launches: Launches, rows: slice) -> dict[str, pa.Array]:
    """Return the columns of `launches` without NVTX ranges, for some rows."""
    operations, calls, call = launches.operations, launches.calls, launches.call[rows]
    kinds = pa.DictionaryArray.from_arrays(pa.array(operations.kind[rows]), pa.array(KINDS))
    numbers = operations.numbers
    own = np.flatnonzero(call != NONE)

    def of_call(values: npt.NDArray[Any], unknown: int) -> npt.NDArray[Any]:
        found = np.full(len(call), unknown, values.dtype)
        found[own] = values[call[own]]
        return found

    return {
        "kind": kinds,
        **{name: nullable(numbers[name][rows], MISSING) for name in _NUMBERS},
        "name": texts_of(operations.name[rows], operations.names),
        "demangled": texts_of(operations.demangled[rows], operations.full_names),
        "tid": nullable(of_call(calls.tid, MISSING), MISSING),
        "api_name": texts_of(of_call(calls.name, NONE), calls.names),
        "api_recorded_name": texts_of(of_call(calls.recorded_name, NONE), calls.names),
        "api_start_ns": nullable(of_call(calls.start, MISSING), MISSING),
        "api_end_ns": nullable(of_call(calls.end, STILL_OPEN), STILL_OPEN),
        "op_id": pa.array(np.arange(rows.start, rows.start + len(call))),
        "call_id": nullable(call),
    }


def _rows_of_calls(
    builder: ReportBuilder,
    operations: Operations,
    launching: npt.NDArray[np.bool_],
    columns: Columns,
) -> Codes:
    """Return the row of each operation's call in its table, or NONE, and mark these rows."""
    known = columns.new(len(launching), np.int64)
    path = builder.directory / f"{_CALLS}.parquet"
    for some, rows in row_groups(path, ["pid", "correlation_id"]):
        correlation = ints(rows["correlation_id"])
        known[some] = np.where(correlation == 0, MISSING, _key(ints(rows["pid"]), correlation))
    wanted = columns.new(len(operations), np.int64)
    for some in slices(len(operations)):
        pid, number = (operations.known(c, some, missing=0) for c in ("pid", "correlation_id"))
        wanted[some] = _key(pid, number)
    found = columns.new(len(operations), np.int32, NONE)
    zones = Zones(wanted)
    for rows in in_order(known, least=MISSING + 1):
        keys = known[rows]
        for own in zones.between(int(keys[0]), int(keys[-1])):
            # Calls are stored in time order, so the first of equal keys is the earliest.
            place = np.searchsorted(keys, wanted[own])
            there = keys[place] == wanted[own]
            found[own[there]] = rows[place[there]]
            launching[rows[place[there]]] = True
    return found


def _calls(
    builder: ReportBuilder, launching: npt.NDArray[np.bool_], columns: Columns
) -> tuple[Calls, Codes]:
    """Return the launching calls, and the call_id of each row of their table that launches."""
    path = builder.directory / f"{_CALLS}.parquet"
    threads = Vocabulary()
    thread = columns.beside().new(len(launching), np.int32)
    for some, rows in row_groups(path, ["pid", "tid"]):
        keys = pa.array(_key(ints(rows["pid"]), ints(rows["tid"])), mask=~launching[some])
        thread[some] = threads.codes(keys)
    known = np.array(threads.values, np.int64)
    counts = np.zeros(len(known), np.int64)
    for some in slices(len(thread)):
        counts += np.bincount(thread[some][launching[some]], minlength=len(known))
    order = np.argsort(known)
    following = np.zeros(len(known), np.int64)
    following[order] = np.cumsum(counts[order]) - counts[order]
    calls = _no_calls(int(counts.sum()), columns)
    ids = columns.beside().new(len(launching), np.int32, NONE)
    names = Vocabulary()
    for some, rows in row_groups(path, ["start_ns", "end_ns", "name", "recorded_name"]):
        own = np.flatnonzero(launching[some])
        codes = thread[some][own]
        place = np.zeros(len(own), np.int64)
        for code, members in groups(codes):
            place[members] = following[code] + np.arange(len(members))
            following[code] += len(members)
        ids[some.start + own] = place
        calls.pid[place], calls.tid[place] = known[codes] >> 32, known[codes] & 0xFFFF_FFFF
        calls.start[place] = ints(rows["start_ns"])[own]
        calls.end[place] = ints(rows["end_ns"], missing=STILL_OPEN)[own]
        for column in ("name", "recorded_name"):
            getattr(calls, column)[place] = names.codes(whole(rows[column]))[own]
    calls.names = names.values
    return calls, ids


def _no_calls(count: int, columns: Columns) -> Calls:
    limits = np.iinfo(np.int64)
    times = {"gpu_start": limits.max, "gpu_end": limits.min, "gpu_time": 0, "time": 0}
    return Calls(
        **{name: columns.new(count, np.int64) for name in ("pid", "tid", "start", "end")},
        **{name: columns.new(count, np.int32) for name in ("name", "recorded_name")},
        **{name: columns.new(count, np.int64, time) for name, time in times.items()},
        names=[],
    )


def _key(process: Ints, number: Ints) -> Ints:
    """Return a process and a number of it as one number; they have 24 and 32 bits."""
    return (process << 32) | (number & 0xFFFF_FFFF)
