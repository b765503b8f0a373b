"""Writes the gathered events of a trace as tables, in the order of time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfpipe.ingest.arrays import NONE, Vocabulary, ints, none
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import Columns, release
from perfpipe.ingest.ncu.names import function_name
from perfpipe.ingest.nsys.autograd import Numbers
from perfpipe.ingest.nsys.payloads import TABLE as PAYLOADS
from perfpipe.ingest.nsys.ranges import PUSH_POP, Ranges
from perfpipe.ingest.torch.rows import EXTENTS, NUMBERS, Rows
from perfpipe.ingest.torch.spool import Batch, Spool

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_COPY = re.compile(r"Memcpy ([HDAP])to([HDAP])")
_KINDS = re.compile(r"\((\w+) -> (\w+)\)")
_SIDES = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}

#: Table of operator inputs.
_OPERATORS = "torch_operators"


class Tables:
    """Writes the tables of a trace; times count from its first event, ns."""

    def __init__(
        self, builder: ReportBuilder, con: DuckDBPyConnection, rows: Rows, columns: Columns
    ) -> None:
        self._builder = builder
        self._con = con
        self._rows = rows
        self._columns = columns
        self._threads = Vocabulary()
        most = len(rows.ranges)
        times = {name: columns.new(most, np.int64) for name in ("start", "end")}
        self._numbers = {name: columns.new(most, np.int64, NONE) for name in NUMBERS}
        codes = {name: columns.new(most, np.int32) for name in ("thread", "name", "domain")}
        self._kept: dict[str, Any] = times | codes

    def write_kernels(self) -> None:
        """Write nsys_kernels."""
        with self._builder.table("nsys_kernels") as writer:
            for batch in self._ordered(self._rows.kernels):
                columns = self._on_gpu(batch) | {
                    "name": batch.texts("name", function_name),
                    "demangled": batch.texts("name"),
                    **{name: batch.numbers(name) for name in ("registers", *EXTENTS)},
                }
                writer.write(columns, len(batch))
        for column in ("static_smem", "dynamic_smem"):
            reason = "a Kineto trace has only the sum of static and dynamic shared memory"
            self._builder.lacks("nsys_kernels", reason, column)
        self._state_gap("nsys_kernels")

    def write_memory_ops(self) -> None:
        """Write nsys_memory_ops: copies and memsets."""
        with self._builder.table("nsys_memory_ops") as writer:
            for batch in self._ordered(self._rows.memory):
                columns = self._on_gpu(batch) | {
                    "operation": batch.texts("name", operation),
                    "bytes": batch.numbers("bytes"),
                    "src_kind": batch.texts("name", lambda name: _kind(name, 1)),
                    "dst_kind": batch.texts("name", lambda name: _kind(name, 2)),
                }
                writer.write(columns, len(batch))
        self._state_gap("nsys_memory_ops")

    def write_calls(self) -> None:
        """Write nsys_api_calls."""
        with self._builder.table("nsys_api_calls") as writer:
            for batch in self._ordered(self._rows.calls):
                columns = self._times(batch) | {
                    **{name: batch.numbers(name) for name in ("pid", "tid", "correlation_id")},
                    **{name: batch.texts(name) for name in ("api", "name")},
                    "recorded_name": batch.texts("name"),
                }
                writer.write(columns, len(batch))
        self._state_gap("nsys_api_calls")

    def write_arguments(self) -> None:
        """Write torch_operators and the data of torch.distributed calls, and keep the ranges."""
        spool, builder = self._rows.ranges, self._builder
        first = 0
        with builder.table(_OPERATORS) as operators, builder.table(PAYLOADS) as payloads:
            for batch in self._ordered(spool, outer_first=True):
                operators.write(*_shapes(batch, first))
                payloads.write(*_payloads(batch, spool, first))
                self._keep(batch, slice(first, first + len(batch)))
                first += len(batch)
        self._kept = {name: values[:first] for name, values in self._kept.items()}
        self._numbers = {name: values[:first] for name, values in self._numbers.items()}
        if not operators.rows:
            builder.lacks(_OPERATORS, "the trace has no shapes; profile with record_shapes=True")
        if not payloads.rows:
            builder.lacks(PAYLOADS, "the trace has no torch.distributed calls with sizes")

    def _keep(self, batch: Batch, rows: slice) -> None:
        times = self._times(batch)
        owners = pc.add(pc.shift_left(batch.numbers("pid"), 32), batch.numbers("tid"))
        self._kept["start"][rows] = ints(times["start_ns"])
        self._kept["end"][rows] = ints(times["end_ns"])
        self._kept["thread"][rows] = self._threads.codes(owners)
        self._kept["name"][rows] = batch.codes("name")
        self._kept["domain"][rows] = batch.codes("domain")
        for name, values in self._numbers.items():
            values[rows] = ints(batch.numbers(name), missing=NONE)
        release()

    def ranges(self) -> Ranges | None:
        """Return the ranges that `write_arguments` kept; None without any."""
        spool, count = self._rows.ranges, len(self._kept["start"])
        if not count:
            return None
        return Ranges(
            **self._kept,
            style=np.broadcast_to(np.int8(PUSH_POP), count),
            threads=[(owner >> 32, owner & 0xFFFF_FFFF) for owner in self._threads.values],
            names=spool.values("name"),
            domains=[text or None for text in spool.values("domain")],
            end_thread=none(count),
            category=none(count),
            categories=[],
            numbers=self._pairing(),
            storage=self._columns,
        )

    def _pairing(self) -> Numbers | None:
        """Return the sequence numbers of operators; None if no operator has one."""
        sequence, thread = (self._numbers[name] for name in NUMBERS)
        if int(thread.max(initial=0)) <= 0:
            return None
        return Numbers(np.maximum(sequence, NONE), thread > 0, thread)

    def _ordered(self, spool: Spool, *, outer_first: bool = False) -> Iterator[Batch]:
        return spool.in_time_order(self._con, self._rows.zero, outer_first=outer_first)

    def _times(self, batch: Batch) -> dict[str, pa.Array]:
        start, end = (batch.numbers(name) for name in ("start_ns", "end_ns"))
        return {
            "start_ns": pc.subtract(start, self._rows.zero),
            "end_ns": pc.subtract(end, self._rows.zero),
            "dur_ns": pc.subtract(end, start),
        }

    def _on_gpu(self, batch: Batch) -> dict[str, pa.Array]:
        ranks = batch.texts("rank")
        pids = pa.array([self._rows.pid(rank) for rank in ranks.dictionary.to_pylist()], pa.int64())
        numbers = ("device", "context", "stream", "correlation_id")
        return {
            **self._times(batch),
            **{name: batch.numbers(name) for name in numbers},
            "pid": pids.take(ranks.indices),
        }

    def _state_gap(self, table: str) -> None:
        if not self._builder.stored[table].rows:
            self._builder.lacks(table, "not in this trace")


def operation(name: str) -> str:
    """Return nsys's name of a copy or memset.

    >>> operation("Memcpy HtoD (Pageable -> Device)")
    '[CUDA memcpy Host-to-Device]'
    """
    match = _COPY.match(name)
    if match:
        return f"[CUDA memcpy {_SIDES[match[1]]}-to-{_SIDES[match[2]]}]"
    return "[CUDA memset]" if name.startswith("Memset") else f"[CUDA {name}]"


def _kind(name: str, side: int) -> str | None:
    """Return the kind of memory that a copy reads (1) or writes (2)."""
    match = _KINDS.search(name)
    return match[side] if match else None


def _shapes(batch: Batch, first: int) -> tuple[dict[str, pa.Array], int]:
    """Return the inputs of operators; the first range of the batch has the id `first`."""
    known = np.flatnonzero(batch.codes("shapes") != NONE)
    columns = {name: batch.texts(name).take(pa.array(known)) for name in ("shapes", "types")}
    return {"range_id": pa.array(known + first), **columns}, len(known)


def _payloads(batch: Batch, spool: Spool, first: int) -> tuple[dict[str, pa.Array], int]:
    """Return the data of torch.distributed calls, a row per field."""
    texts, codes = spool.values("payload"), batch.codes("payload")
    rows = [
        (first + place, *field)
        for place in np.flatnonzero(codes != NONE).tolist()
        for field in json.loads(texts[codes[place]])
    ]
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    names = ("range_id", "field", "value", "text")
    kinds = (pa.int64(), pa.string(), pa.float64(), pa.string())
    return {
        name: pa.array(values, kind)
        for name, kind, values in zip(names, kinds, columns, strict=True)
    }, len(rows)
