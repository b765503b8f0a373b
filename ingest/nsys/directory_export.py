"""Exports to a directory of Parquet or Arrow files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from perfpipe.errors import InputError, brief
from perfpipe.ingest.nsys.export import BATCH, Export, Part
from perfpipe.units import format_bytes

#: Rows that a table may have in addition to this many per byte of its file.
_HARMLESS_ROWS, _ROWS_A_BYTE = 1_000_000, 2


class DirectoryExport(Export):
    """An export to a directory with one Parquet or Arrow file per table."""

    def __init__(self, path: Path, content: Path) -> None:
        super().__init__(path)
        self._files = {
            file.stem: file
            for file in sorted(content.iterdir())
            if file.suffix in (".parquet", ".arrow", ".arrows")
        }
        self._columns: dict[str, frozenset[str]] = {}

    def check(self) -> None:
        """Do nothing: each table is checked when it is read."""

    def tables(self) -> frozenset[str]:
        return frozenset(self._files)

    def has_rows(self, table: str) -> bool:
        first = sorted(self.columns(table))[:1]
        return bool(first) and any(batch.num_rows for batch in self.scan(table, first))

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._files:
            return frozenset()
        if table not in self._columns:
            self._columns[table] = frozenset(self._guarded(table, _schema_of).names)
        return self._columns[table]

    def scan(
        self,
        table: str,
        columns: Sequence[str],
        order: Sequence[str] = (),
        part: Part | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if order:
            wanted = list(dict.fromkeys([*columns, *order]))
            read = self._guarded(table, lambda file: list(_batches(file, wanted)))
            if not read:
                return
            whole = pa.Table.from_batches(read)
            keys = [(c, "ascending") for c in order]
            ordered = self._guarded(table, lambda _: whole.sort_by(keys))
            yield from ordered.select(list(columns)).to_batches(BATCH)
            return
        batches = _batches(self._files[table], columns)
        while True:
            batch = self._guarded(table, lambda _: next(batches, None))
            if batch is None:
                return
            yield batch

    def _guarded(self, table: str, read: Any) -> Any:
        file = self._files[table]
        try:
            return read(file)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self.path}: {file.name} is damaged or truncated ({brief(error)})"
            ) from error


def _check_rows(file: Path, rows: int) -> None:
    """Raise ArrowInvalid for more rows than a file of its size can have.

    A few bytes can encode any number of equal rows, but rows of an export differ in their times.
    """
    most = _HARMLESS_ROWS + _ROWS_A_BYTE * file.stat().st_size
    if rows > most:
        raise pa.ArrowInvalid(f"{rows:,} rows in {format_bytes(file.stat().st_size)}")


def _schema_of(file: Path) -> pa.Schema:
    if file.suffix == ".parquet":
        return pq.read_schema(file)
    with pa.memory_map(str(file)) as source:
        return _open_arrow(source).schema


def _batches(file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if file.suffix == ".parquet":
        table = pq.ParquetFile(file)
        _check_rows(file, table.metadata.num_rows)
        rows = 0
        for batch in table.iter_batches(BATCH, columns=list(columns)):
            rows += batch.num_rows
            yield batch
        # If a page is damaged, a column may have fewer rows, without an error from the reader.
        if rows != table.metadata.num_rows:
            raise pa.ArrowInvalid(f"only {rows:,} of {table.metadata.num_rows:,} rows can be read")
        return
    with pa.memory_map(str(file)) as source:
        reader = _open_arrow(source)
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            every = (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            every = iter(reader)
        rows = 0
        for batch in every:
            rows += batch.num_rows
            _check_rows(file, rows)
            chosen = batch.select(list(columns))
            # The reader does not check that offsets and sizes lie within the file.
            chosen.validate(full=True)
            yield chosen


def _open_arrow(source: Any) -> Any:
    """Open a file in Arrow's file format, or in its stream format if nsys wrote that."""
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)
