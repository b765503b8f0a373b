"""The tables of an nsys export in any file format, as streams of Arrow batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from perfpipe.ingest.nsys.columns import type_of

#: Rows per batch: few enough for several tables at once, enough to amortize Python overhead.
BATCH = 65_536

#: First and last row number of a part of a table.
Part = tuple[int, int]


class Export(ABC):
    """An export; table names are nsys's own."""

    def __init__(self, path: Path) -> None:
        #: The input as the user named it, for messages.
        self.path = path
        #: For scanned tables and parts, by column: number of values with a wrong type, which were
        #: read as NULL.
        self.mismatches: dict[tuple[str, Part | None], dict[str, int]] = {}

    @abstractmethod
    def tables(self) -> frozenset[str]:
        """Return the names of all tables, including empty ones."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Return the column names of a table; empty if there is no such table."""

    @abstractmethod
    def has_rows(self, table: str) -> bool:
        """Return whether a table exists and has rows."""

    @abstractmethod
    def scan(
        self,
        table: str,
        columns: Sequence[str],
        order: Sequence[str] = (),
        part: Part | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table or part, in file order or sorted by `order`.

        Blobs are bytes or hexadecimal digits.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise InputError if the structure of the file shows that it is damaged."""

    def parts(self, table: str) -> list[Part | None]:
        """Return the parts of a table that can be scanned in parallel, in file order."""
        return [None]

    def read(self, table: str, columns: Sequence[str], order: Sequence[str] = ()) -> pa.Table:
        """Return a whole table; missing columns are NULL."""
        there = [c for c in columns if c in self.columns(table)]
        batches = list(self.scan(table, there, order)) if there else []
        found = pa.Table.from_batches(batches) if batches else None
        rows = found.num_rows if found is not None else 0
        return pa.table(
            {
                c: found[c] if found is not None and c in there else _nulls(rows, table, c)
                for c in columns
            }
        )


def _nulls(rows: int, table: str, column: str) -> pa.Array:
    return pa.nulls(rows, type_of(table, column))
