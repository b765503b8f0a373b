"""Joins GPU operations to the API calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfpipe.ingest.arrays import NONE, STILL_OPEN, Codes, Ints, ints, time_order, whole
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.nsys.ends import correct_ends
from perfpipe.ingest.nsys.unrecorded import Recorded, count_unrecorded
from perfpipe.ingest.stored import read_columns, read_rows

#: Kinds of operations by source table; memsets have a separate table.
_KINDS = ("kernel", "memcpy", "memset", "graph")
KERNEL, _MEMCPY, _MEMSET, GRAPH = range(4)
_OPERATIONS = (
    ("nsys_kernels", KERNEL, "name"),
    ("nsys_memory_ops", _MEMCPY, "operation"),
    ("nsys_graph_launches", GRAPH, "graph_exec_id"),
)
_CALLS = "nsys_api_calls"

#: Columns that all of these tables have.
_COMMON = ("start_ns", "end_ns", "pid", "correlation_id", "device", "context", "stream")

#: Tables that launches are joined from.
SOURCES = frozenset((*(table for table, *_ in _OPERATIONS), _CALLS))
_NUMBERS = ("device", "stream", "start_ns", "end_ns", "pid", "correlation_id", "graph_node_id")

#: The table of each kind of operation.
_TABLES = {kind: table for table, kind, _ in _OPERATIONS} | {_MEMSET: "nsys_memory_ops"}


@dataclass
class Calls:
    """Calls that launched GPU work, ordered by process, thread and start: the index is the call_id.

    Times in ns.  `gpu_start` and `gpu_end` span the kernels, copies and memsets of a call;
    gpu_start is the largest integer if the call launched only whole CUDA graphs.
    """

    pid: Ints
    tid: Ints
    start: Ints
    end: Ints
    name: pa.Array
    recorded_name: pa.Array
    gpu_start: Ints
    gpu_end: Ints
    gpu_time: Ints  # sum of the durations of its operations


@dataclass
class Launches:
    """GPU operations in the order of the `launches` table; `call` is a call_id or NONE."""

    kind: npt.NDArray[np.int8]
    numbers: dict[str, pa.Array]
    name: pa.Array
    demangled: pa.Array
    call: Codes
    calls: Calls

    def __len__(self) -> int:
        return len(self.kind)


def join_launches(builder: ReportBuilder) -> Launches:
    """Join the operations of this report on disk to their calls, which are also on disk.

    Correlation ids restart in every process, so the process is part of the key; if one key has
    several calls, the first call counts.
    """
    parts = [part for source in _OPERATIONS if (part := _operations(builder, *source)) is not None]
    operations = pa.concat_tables(parts or [_no_operations()]).unify_dictionaries()
    del parts
    operations = operations.combine_chunks()
    keys = ("start_ns", "end_ns", "pid", "device", "stream", "correlation_id", "graph_node_id")
    order = time_order(*(ints(operations[key], missing=NONE) for key in keys))
    operations = operations.take(pa.array(order)).combine_chunks()
    column = {name: whole(operations[name]) for name in operations.column_names}
    del operations, order
    column["end_ns"] = correct_ends(builder, column, _TABLES)
    call, calls, launched = _calls(builder, column["pid"], column["correlation_id"])
    pid, end = (ints(column[name], missing=NONE) for name in ("pid", "end_ns"))
    count_unrecorded(builder, launched, Recorded(pid, end, calls.pid, calls.start))
    kind = np.asarray(column["kind"])
    linked = (call != NONE) & (kind != GRAPH) & np.asarray(column["end_ns"].is_valid())
    rows = np.flatnonzero(linked)
    start, end = ints(column["start_ns"])[rows], end[rows]
    np.minimum.at(calls.gpu_start, call[rows], start)
    np.maximum.at(calls.gpu_end, call[rows], end)
    np.add.at(calls.gpu_time, call[rows], end - start)
    return Launches(
        kind=kind,
        numbers={name: column[name] for name in _NUMBERS},
        name=column["name"],
        demangled=column["demangled"],
        call=call,
        calls=calls,
    )


def columns(launches: Launches, rows: slice) -> dict[str, pa.Array]:
    """Return the columns of `launches` without NVTX ranges, for some rows."""
    calls = launches.calls
    call = pa.array(launches.call[rows], mask=launches.call[rows] == NONE)
    kinds = pa.DictionaryArray.from_arrays(pa.array(launches.kind[rows]), pa.array(_KINDS))
    count = len(call)
    end = pa.array(calls.end).take(call)
    return {
        "kind": kinds,
        **{name: values.slice(rows.start, count) for name, values in launches.numbers.items()},
        "name": launches.name.slice(rows.start, count),
        "demangled": launches.demangled.slice(rows.start, count),
        "tid": pa.array(calls.tid).take(call),
        "api_name": calls.name.take(call),
        "api_recorded_name": calls.recorded_name.take(call),
        "api_start_ns": pa.array(calls.start).take(call),
        "api_end_ns": pc.if_else(pc.equal(end, STILL_OPEN), pa.scalar(None, pa.int64()), end),
        "op_id": pa.array(np.arange(rows.start, rows.start + count)),
        "call_id": call,
    }


def _operations(builder: ReportBuilder, table: str, kind: int, name: str) -> pa.Table | None:
    if not builder.stored[table].rows:
        return None
    wanted = [*_COMMON, name]
    wanted += ["graph_node_id"] if kind != GRAPH else []
    wanted += ["demangled"] if kind == KERNEL else []
    rows = read_columns(builder.directory / f"{table}.parquet", wanted)
    texts = whole(rows[name])
    kinds = np.full(rows.num_rows, kind, np.int8)
    if kind == _MEMCPY:
        kinds[np.asarray(texts.indices) == texts.dictionary.index("[CUDA memset]").as_py()] = (
            _MEMSET
        )
    if kind == GRAPH:
        ids = texts.dictionary_encode()
        titles = [f"graph {number}" for number in ids.dictionary.to_pylist()]
        texts = pa.DictionaryArray.from_arrays(ids.indices, pa.array(titles, pa.string()))
    no_text = pa.DictionaryArray.from_arrays(
        pa.nulls(rows.num_rows, pa.int32()), pa.array([], pa.string())
    )
    return pa.table(
        {
            "kind": kinds,
            **{column: rows[column] for column in _COMMON},
            "graph_node_id": rows["graph_node_id"]
            if kind != GRAPH
            else pa.nulls(rows.num_rows, pa.int64()),
            "name": texts,
            "demangled": rows["demangled"] if kind == KERNEL else no_text,
        }
    )


def _no_operations() -> pa.Table:
    text = pa.dictionary(pa.int32(), pa.string())
    fields = [("kind", pa.int8()), *((c, pa.int64()) for c in (*_COMMON, "graph_node_id"))]
    return pa.schema([*fields, ("name", text), ("demangled", text)]).empty_table()


def _calls(
    builder: ReportBuilder, pid: pa.Array, correlation_id: pa.Array
) -> tuple[Codes, Calls, npt.NDArray[np.bool_]]:
    """Return the call_id of each operation, the calls, and which rows of their table these are."""
    path = builder.directory / f"{_CALLS}.parquet"
    keyed = read_columns(path, ["pid", "correlation_id"])
    correlation = ints(keyed["correlation_id"])
    known = np.flatnonzero(correlation != 0).astype(np.int32)
    keys = _key(ints(keyed["pid"])[known], correlation[known])
    del keyed, correlation
    # Calls are stored in time order, so the first of equal keys is the earliest.
    by_key = np.argsort(keys, kind="stable").astype(np.int32)
    keys = keys[by_key]
    wanted = _key(ints(pid), ints(correlation_id))
    place = np.searchsorted(keys, wanted).astype(np.int32)
    found = np.flatnonzero(place < len(keys))
    found = found[keys[place[found]] == wanted[found]]
    row_of = known[by_key[place[found]]]
    del keys, by_key, known
    launches = np.zeros(builder.stored[_CALLS].rows, bool)
    launches[row_of] = True
    launching = np.flatnonzero(launches)
    rows = read_rows(path, ["pid", "tid", "start_ns", "end_ns", "name", "recorded_name"], launches)
    pids, tids = ints(rows["pid"]), ints(rows["tid"])
    order = np.lexsort((tids, pids))
    rows = rows.take(pa.array(order)).combine_chunks()
    call_id = np.full(len(launches), NONE, np.int32)
    call_id[launching[order]] = np.arange(len(order), dtype=np.int32)
    call = np.full(len(wanted), NONE, np.int32)
    call[found] = call_id[row_of]
    column = {name: whole(rows[name]) for name in rows.column_names}
    limits = np.iinfo(np.int64)
    calls = Calls(
        pid=pids[order],
        tid=tids[order],
        start=ints(column["start_ns"]),
        end=ints(column["end_ns"], missing=STILL_OPEN),
        name=column["name"],
        recorded_name=column["recorded_name"],
        gpu_start=np.full(len(order), limits.max),
        gpu_end=np.full(len(order), limits.min),
        gpu_time=np.zeros(len(order), np.int64),
    )
    return call, calls, launches


def _key(pid: Ints, correlation_id: Ints) -> Ints:
    """Return process and correlation id as one number; they have 24 and 32 bits."""
    return (pid << 32) | (correlation_id & 0xFFFF_FFFF)
