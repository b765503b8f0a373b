"""Keeps the rows of a trace on disk until they can be read back in the order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfpipe.database import open_database
from perfpipe.ingest.arrays import NONE, Codes, Vocabulary, ints
from perfpipe.tablewriter import ROW_GROUP

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_Change = Callable[[str], str | None]

#: Memory for sorting, which continues on disk; rows that are gathered before they are written.
_SORTING_MEMORY, _GATHERED = "64MB", 1 << 13

#: Rows of the same time stay in the order of the trace.
_IN_TIME_ORDER = """
    SELECT * EXCLUDE (row_number) FROM read_parquet($path) WHERE start_ns >= $earliest
    ORDER BY start_ns, CASE WHEN $outer_first THEN -end_ns ELSE end_ns END, row_number
"""


def open_sorter() -> DuckDBPyConnection:
    """Return a connection that sorts the rows of spools in little memory."""
    con = open_database()
    # Each thread needs memory of its own, so many rows could not be sorted by several threads.
    con.execute(f"SET threads = 1; SET memory_limit = '{_SORTING_MEMORY}'")
    return con


class Batch:
    """Rows of a spool, by column: whole numbers, and texts as codes."""

    def __init__(self, rows: pa.RecordBatch, texts: Mapping[str, Vocabulary]) -> None:
        self._rows = rows
        self._texts = texts

    def __len__(self) -> int:
        return len(self._rows)

    def numbers(self, column: str) -> pa.Array:
        """Return whole numbers; NULL if missing."""
        return self._rows.column(column)

    def codes(self, column: str) -> Codes:
        """Return codes of texts, NONE if missing."""
        return ints(self._rows.column(column), missing=NONE).astype(np.int32)

    def texts(self, column: str, change: _Change | None = None) -> pa.DictionaryArray:
        """Return texts, or what `change` makes of each of them."""
        values = self._texts[column].values
        changed = values if change is None else [change(value) for value in values]
        return pa.DictionaryArray.from_arrays(
            self._rows.column(column), pa.array(changed, pa.string())
        )


class Spool:
    """The rows of one table.

    Rows are tuples with a value per column; the columns start_ns and end_ns must be among them.
    """

    def __init__(self, path: Path, columns: Sequence[str], texts: Sequence[str]) -> None:
        self._vocabularies = {name: Vocabulary() for name in texts}
        self._written = 0
        self._path = path
        self._schema = pa.schema(
            [(name, pa.int32() if name in texts else pa.int64()) for name in columns]
            + [("row_number", pa.int64())]
        )
        self._gathered: list[tuple[Any, ...]] = []
        self._writer: pq.ParquetWriter | None = None

    def __len__(self) -> int:
        return self._written + len(self._gathered)

    def values(self, column: str) -> list[Any]:
        """Return the texts of a column by code."""
        return self._vocabularies[column].values

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a row."""
        self._gathered.append(row)
        if len(self._gathered) >= _GATHERED:
            self._flush()

    def _flush(self) -> None:
        columns = zip(*self._gathered, strict=True)
        arrays = [
            self._array(field, values) for field, values in zip(self._schema, columns, strict=False)
        ]
        count = len(self._gathered)
        arrays.append(pa.array(range(self._written, self._written + count), pa.int64()))
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, self._schema, use_dictionary=False)
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._written += count
        self._gathered = []

    def _array(self, field: pa.Field, values: tuple[Any, ...]) -> pa.Array:
        if field.name not in self._vocabularies:
            return pa.array(values, pa.int64())
        codes = self._vocabularies[field.name].codes(pa.array(values, pa.string()))
        return pa.array(codes, mask=codes < 0)

    def in_time_order(
        self, con: DuckDBPyConnection, earliest: int, *, outer_first: bool = False
    ) -> Iterator[Batch]:
        """Yield the rows that start at `earliest` or later, by start and end, ns.

        If `outer_first`, a longer row precedes a shorter one with the same start.
        """
        if self._gathered:
            self._flush()
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        values = {"path": str(self._path), "earliest": earliest, "outer_first": outer_first}
        found: Any = con.sql(_IN_TIME_ORDER, params=values).to_arrow_reader(ROW_GROUP)
        for rows in found:
            yield Batch(rows, self._vocabularies)
        self._path.unlink()
