"""Writes one table of a report as zstd Parquet, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfpipe.manifest import StoredTable
from perfpipe.model import Table
from perfpipe.visible import encodable

#: Rows of a Parquet row group; large enough to scan fast, small enough to prune by time.
ROW_GROUP = 262_144

_TEXT = pa.dictionary(pa.int32(), pa.string())


def open_parquet(path: Path, schema: pa.Schema, *keys: str) -> pq.ParquetWriter:
    """Return a writer of a table.  Readers can skip row groups by times, and by the `keys`."""
    integers = [field.name for field in schema if pa.types.is_integer(field.type)]
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        store_schema=False,
        # Times and ids differ little from row to row: deltas are smaller than a dictionary, and
        # faster to write and read.
        use_dictionary=[name for name in schema.names if name not in integers],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        write_statistics=[*keys, *(name for name in integers if name.endswith("_ns"))],
    )


class TableWriter:
    """Adds `report_id`, orders the columns as the data model states and writes row groups.

    Text columns may be dictionary-encoded; they are written as plain text with a Parquet
    dictionary.  Columns that a batch lacks are NULL.
    """

    def __init__(self, directory: Path, table: Table, report_id: str) -> None:
        self.path = directory / f"{table.name}.parquet"
        self.rows = 0
        self._table = table
        self._report_id = report_id
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.Table] = []

    def write(self, columns: dict[str, Any], rows: int) -> None:
        """Write a batch: Arrow arrays (or lists) of `rows` values by column name."""
        fields = self._table.schema
        if unknown := columns.keys() - set(fields.names):
            raise KeyError(f"{self._table.name} has no column {', '.join(sorted(unknown))}")
        own = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [self._report_id])
        arrays = [
            own,
            *(_array(field, columns.get(field.name), rows) for field in list(fields)[1:]),
        ]
        self._gathered.append(pa.Table.from_arrays(arrays, names=fields.names))
        self.rows += rows
        gathered = sum(batch.num_rows for batch in self._gathered)
        if gathered >= ROW_GROUP:
            self._flush(gathered - gathered % ROW_GROUP)

    def _flush(self, rows: int) -> None:
        """Write the first gathered rows as row groups; the last row group may be smaller."""
        # One dictionary for all: if it changed in a row group, texts would be written in full.
        batch = pa.concat_tables(self._gathered).unify_dictionaries()
        self._open(batch.schema).write_table(batch.slice(0, rows), row_group_size=ROW_GROUP)
        self._gathered = [batch.slice(rows)] if rows < batch.num_rows else []

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = open_parquet(self.path, schema)
            self._writer.add_key_value_metadata(self._table.schema.metadata)
        return self._writer

    def close(self) -> StoredTable:
        """Finish the file and return its manifest entry."""
        if not self.rows:
            self.write({}, 0)
        if self._gathered:
            self._flush(self.rows)
        self._open(self._table.schema).close()
        return StoredTable.of(self.path, self.rows, self._table.signature)

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._writer is not None:
            self._writer.close()


def _array(field: pa.Field, values: Any, rows: int) -> pa.Array:
    if values is None:
        values = pa.nulls(rows, field.type)
    elif not isinstance(values, pa.Array):
        values = _storable(values, field.type)
    if field.type != pa.string():
        return values if values.type == field.type else values.cast(field.type)
    if pa.types.is_dictionary(values.type) and not values.dictionary.null_count:
        return values.cast(_TEXT)
    return values.cast(pa.string()).dictionary_encode().cast(_TEXT)


def _storable(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array, with texts that UTF-8 can express."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        plain = [encodable(value) if isinstance(value, str) else value for value in values]
        return pa.array(plain, kind)
