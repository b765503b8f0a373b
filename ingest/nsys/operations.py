"""GPU operations of a report, in order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Codes, Ints, Vocabulary, ints, nullable
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import Columns, in_order
from perfpipe.ingest.stored import row_groups

#: Kinds of operations by source table; memsets have a separate table.
KINDS = ("kernel", "memcpy", "memset", "graph")
KERNEL, _MEMCPY, _MEMSET, GRAPH = range(4)
OPERATIONS = (
    ("nsys_kernels", KERNEL, "name"),
    ("nsys_memory_ops", _MEMCPY, "operation"),
    ("nsys_graph_launches", GRAPH, "graph_exec_id"),
)

#: The table of each kind of operation.
TABLES = {kind: table for table, kind, _ in OPERATIONS} | {_MEMSET: "nsys_memory_ops"}

#: Columns that all of these tables have, and an unknown number in them.
_COMMON = ("start_ns", "end_ns", "pid", "correlation_id", "device", "context", "stream")
MISSING = np.iinfo(np.int64).min

#: What orders operations.
_ORDER = (
    "start_ns", "end_ns", "pid", "device", "stream", "correlation_id", "graph_node_id",
)  # fmt: skip


@dataclass
class Operations:
    """GPU operations in the order of the `launches` table, by column.

    Unknown numbers are MISSING.  Texts are codes, NONE if missing, of `names` and `full_names`.
    """

    kind: npt.NDArray[np.int8]
    numbers: dict[str, Ints]
    name: Codes
    demangled: Codes
    names: list[str]
    full_names: list[str]

    def __len__(self) -> int:
        return len(self.kind)

    def known(self, column: str, rows: slice | Ints, missing: int = NONE) -> Ints:
        """Return numbers of some rows, with `missing` for unknown numbers."""
        values = self.numbers[column][rows]
        return np.where(values == MISSING, missing, values)


def texts_of(codes: Codes, values: Sequence[str | None]) -> pa.DictionaryArray:
    """Return the texts of codes; NULL for NONE."""
    return pa.DictionaryArray.from_arrays(nullable(codes), pa.array(values, pa.string()))


def read_operations(builder: ReportBuilder, columns: Columns) -> Operations:
    """Read the operations of this report, which are on disk by kind."""
    count = sum(builder.stored[table].rows for table, *_ in OPERATIONS)
    names, full_names = Vocabulary(), Vocabulary()
    stored, first = _new(columns.beside(), count), 0
    for table, kind, name in OPERATIONS:
        if not builder.stored[table].rows:
            continue
        path = builder.directory / f"{table}.parquet"
        for part in _parts(path, kind, name, names, full_names):
            last = first + len(part["kind"])
            for column, values in part.items():
                stored[column][first:last] = values
            first = last
    found, first = _new(columns, count), 0
    for rows in in_order(*(stored[column] for column in _ORDER)):
        for column, values in found.items():
            values[first : first + len(rows)] = stored[column][rows]
        first += len(rows)
    return Operations(
        kind=found.pop("kind"),
        name=found.pop("name"),
        demangled=found.pop("demangled"),
        numbers=found,
        names=names.values,
        full_names=full_names.values,
    )


def _new(columns: Columns, count: int) -> dict[str, npt.NDArray[Any]]:
    codes = {"kind": np.int8, "name": np.int32, "demangled": np.int32}
    numbers = dict.fromkeys((*_COMMON, "graph_node_id"), np.int64)
    return {name: columns.new(count, kind) for name, kind in (codes | numbers).items()}


def _parts(
    path: Path, kind: int, name: str, names: Vocabulary, full_names: Vocabulary
) -> Iterator[dict[str, Any]]:
    """Yield the columns of the operations in a table."""
    wanted = [*_COMMON, name]
    wanted += ["graph_node_id"] if kind != GRAPH else []
    wanted += ["demangled"] if kind == KERNEL else []
    for _, rows in row_groups(path, wanted):
        columns: dict[str, Any] = {
            column: ints(rows[column], missing=MISSING) for column in _COMMON
        }
        texts = rows[name].combine_chunks()
        if kind == GRAPH:
            ids = texts.dictionary_encode()
            titles = [f"graph {number}" for number in ids.dictionary.to_pylist()]
            texts = pa.DictionaryArray.from_arrays(ids.indices, pa.array(titles, pa.string()))
        columns["name"] = names.codes(texts)
        columns["kind"] = np.full(len(texts), kind, np.int8)
        if kind == _MEMCPY:
            columns["kind"][columns["name"] == names.number("[CUDA memset]")] = _MEMSET
        columns["graph_node_id"] = (
            MISSING if kind == GRAPH else ints(rows["graph_node_id"], missing=MISSING)
        )
        columns["demangled"] = (
            full_names.codes(rows["demangled"].combine_chunks()) if kind == KERNEL else NONE
        )
        yield columns
