"""Exports to SQLite, read as Arrow through ADBC, or row by row if values are unusual."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from perfpipe.errors import InputError, brief
from perfpipe.ingest.nsys import columns as known
from perfpipe.ingest.nsys.database import columns_of, connect, quoted, uri_of
from perfpipe.ingest.nsys.export import BATCH, Export, Part

#: Minimum rows for scanning a table in parts, and the number of parts: more than are read at a
#: time, so that readers finish together.
_LONG, _PARTS = 500_000, 12

#: Rows per batch if each value is a Python object.
_FEW = 4_096

#: Number of faults to request from quick_check: wrong value types come after page faults.
_FAULTS = 100

#: Messages of quick_check for values of an undeclared type, which readers count.
_VALUE = re.compile(r"(?!NULL )\w+ value in |non-\w+ value in |NUMERIC value in ")

#: Storage classes of columns: Arrow type, Python type, and a sample value.
_INT, _FLOAT, _TEXT, _BLOB = "int", "float", "text", "blob"
_ARROW = {_INT: pa.int64(), _FLOAT: pa.float64(), _TEXT: pa.string(), _BLOB: pa.binary()}
_PYTHON: dict[str, tuple[type, ...]] = {
    _INT: (int,),
    _FLOAT: (int, float),
    _TEXT: (str,),
    _BLOB: (bytes, str),
}
_SEEDS = {_INT: "0", _FLOAT: "0.0", _TEXT: "''", _BLOB: "x''"}

#: ADBC would convert numbers and blobs to text: an integer overflow prevents that.
_CELL = "CASE WHEN typeof({0}) IN ('{1}', 'null') THEN {0} ELSE abs(-9223372036854775808) END"


class SqliteExport(Export):
    """An export to SQLite."""

    def __init__(self, path: Path, content: Path) -> None:
        super().__init__(path)
        self._content = content
        _check_whole(path, content)
        self._types: dict[str, dict[str, str]] = {}
        self._views: set[str] = set()
        self._filled: set[str] = set()
        try:
            with closing(connect(self._content)) as con:
                found = (
                    "SELECT name, type = 'view' FROM sqlite_master WHERE type IN ('table', 'view')"
                )
                for name, is_view in con.execute(found).fetchall():
                    if is_view:
                        self._views.add(name)
                    self._look_at(con, name)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: damaged SQLite file ({brief(error)})") from error

    def _look_at(self, con: sqlite3.Connection, table: str) -> None:
        """Note the columns of a table, and whether it has rows."""
        self._types[table] = {}
        # The columns of a view that SQLite cannot read are unknown.
        self._filled.add(table)
        try:
            columns = columns_of(con, table, generated=True)
            row = con.execute(f"SELECT 1 FROM {quoted(table)} LIMIT 1").fetchone()
        except sqlite3.DatabaseError:
            if table in self._views:
                return
            raise
        for column, declared in columns.items():
            self._types[table][column] = _type(table, column, declared.upper())
        if not row:
            self._filled.remove(table)

    def check(self) -> None:
        """Raise InputError if SQLite finds damage.

        Without this check, SQLite silently returns only some rows of a damaged tree.
        """
        try:
            with closing(connect(self._content)) as con:
                for (fault,) in con.execute(f"PRAGMA quick_check({_FAULTS})"):
                    if fault != "ok" and not _VALUE.match(fault):
                        raise InputError(f"{self.path}: damaged SQLite file ({brief(fault)})")
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path}: damaged SQLite file ({brief(error)})") from error

    def tables(self) -> frozenset[str]:
        return frozenset(self._types)

    def has_rows(self, table: str) -> bool:
        return table in self._filled

    def columns(self, table: str) -> frozenset[str]:
        return frozenset(self._types.get(table, ()))

    def parts(self, table: str) -> list[Part | None]:
        if table in self._views or any(c.lower() == "rowid" for c in self.columns(table)):
            return [None]
        with closing(connect(self._content)) as con:
            # With both in one SELECT, SQLite scans the whole table.
            first_and_last = (
                f"(SELECT {end}(rowid) FROM {quoted(table)})" for end in ("min", "max")
            )
            sql = f"SELECT {', '.join(first_and_last)}"
            try:
                first, last = con.execute(sql).fetchone()
            except sqlite3.DatabaseError:
                return [None]
        if first is None or last - first < _LONG:
            return [None]
        borders = [first + (last + 1 - first) * part // _PARTS for part in range(_PARTS + 1)]
        return [(begin, end - 1) for begin, end in pairwise(borders)]

    def scan(
        self,
        table: str,
        columns: Sequence[str],
        order: Sequence[str] = (),
        part: Part | None = None,
    ) -> Iterator[pa.RecordBatch]:
        batches = self._batches(table, columns, part)
        yield from _sorted(batches, order) if order else batches

    def _batches(
        self, table: str, columns: Sequence[str], part: Part | None
    ) -> Iterator[pa.RecordBatch]:
        """Stream a table in file order; values of a wrong type become NULL."""
        done = 0
        try:
            for batch in self._typed(table, columns, part):
                done += batch.num_rows
                yield batch
        except _UnusualError:
            for batch in self._checked(table, columns, part):
                # Rows that ADBC has already returned.
                rows = batch.slice(min(done, batch.num_rows))
                done = max(0, done - batch.num_rows)
                if rows.num_rows:
                    yield rows

    def _typed(
        self, table: str, columns: Sequence[str], part: Part | None
    ) -> Iterator[pa.RecordBatch]:
        """Stream a table through ADBC; raises _UnusualError if a value has the wrong type.

        ADBC takes the type of a column from its first values, which are often NULL, so a row with a
        sample value of each type is added before the table.
        """
        import adbc_driver_sqlite.dbapi as adbc

        types = [self._types[table][c] for c in columns]
        schema = pa.schema(list(zip(columns, map(_ARROW.__getitem__, types), strict=True)))
        seeds = [f"{_SEEDS[t]} AS {quoted(c)}" for c, t in zip(columns, types, strict=True)]
        cells = [
            _CELL.format(quoted(c), t) if t in (_TEXT, _BLOB) else quoted(c)
            for c, t in zip(columns, types, strict=True)
        ]
        rows = f"SELECT {', '.join(cells)} {self._from(table, part)}"
        try:
            with adbc.connect(uri_of(self._content)) as con, con.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH)})
                cursor.execute(f"SELECT {', '.join(seeds)} UNION ALL {rows}")
                seed = 1
                for batch in cursor.fetch_record_batch():
                    if batch.schema.types != schema.types:
                        raise _UnusualError
                    batch = batch.slice(seed)
                    seed = 0
                    if batch.num_rows:
                        yield batch
        except (adbc.Error, OSError, pa.ArrowException) as error:
            raise _UnusualError from error

    def _checked(
        self, table: str, columns: Sequence[str], part: Part | None
    ) -> Iterator[pa.RecordBatch]:
        """Stream a table value by value, and count values of a wrong type."""
        types = [self._types[table][c] for c in columns]
        mistyped = Counter[str]()
        sql = f"SELECT {', '.join(map(quoted, columns))} {self._from(table, part)}"
        try:
            with closing(connect(self._content)) as con:
                cursor = con.execute(sql)
                while rows := cursor.fetchmany(_FEW):
                    found = {}
                    for name, type_, values in zip(
                        columns, types, zip(*rows, strict=True), strict=True
                    ):
                        right: list[Any] = [
                            v if isinstance(v, _PYTHON[type_]) else None for v in values
                        ]
                        mistyped[name] += right.count(None) - values.count(None)
                        if type_ == _FLOAT:
                            # Arrow refuses integers that a float cannot represent exactly.
                            right = [None if v is None else float(v) for v in right]
                        found[name] = pa.array(right, _ARROW[type_])
                    yield pa.RecordBatch.from_pydict(found)
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path}: table {table} is damaged ({brief(error)})") from error
        self.mismatches[table, part] = +mistyped

    def _from(self, table: str, part: Part | None) -> str:
        """Return the SQL clause for a table, or a part of it, in file order."""
        where = f" WHERE rowid BETWEEN {part[0]} AND {part[1]}" if part else ""
        return f"FROM {quoted(table)}{'' if table in self._views else ' NOT INDEXED'}{where}"


class _UnusualError(Exception):
    """ADBC cannot read a table with its declared column types."""


def _sorted(batches: Iterator[pa.RecordBatch], order: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if found := list(batches):
        rows = pa.Table.from_batches(found).sort_by([(column, "ascending") for column in order])
        yield from rows.to_batches(BATCH)


def _type(table: str, column: str, declared: str) -> str:
    """Return the type of a column in the file, unless the column does not accept it."""
    kind = known.kind_of(table, column)
    if kind in (known.TEXT, known.BLOB):
        return _TEXT if kind == known.TEXT else _BLOB
    real = any(word in declared for word in ("REAL", "FLOA", "DOUB"))
    return _FLOAT if real else _INT


def _check_whole(path: Path, content: Path) -> None:
    """Reject a file that is shorter than its header says, or is still being written."""
    with content.open("rb") as file:
        header = file.read(100)
    if len(header) < 100:
        raise InputError(f"{path}: the SQLite file is truncated")
    # 1 means 65,536.
    page = int.from_bytes(header[16:18], "big")
    page = 65_536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    valid = header[24:28] == header[92:96]
    size = content.stat().st_size
    if valid and pages and page * pages > size:
        raise InputError(
            f"{path}: the SQLite file is truncated ({size:,} of {page * pages:,} bytes)"
        )
    for suffix in ("-journal", "-wal"):
        beside = content.with_name(content.name + suffix)
        if beside.is_file() and _is_hot(beside):
            raise InputError(f"{path}: still being written ({beside.name} is next to it)")
    # Without a journal, pages are in the file before the header counts them.
    if valid and pages and page * (pages + 1) <= size:
        raise InputError(
            f"{path}: was copied while it was written "
            f"({size:,} bytes, of which its header counts {page * pages:,}); copy it again"
        )


def _is_hot(beside: Path) -> bool:
    """Return whether a journal may contain data that the database lacks.

    A rollback journal that remains after a commit begins with zeros.
    """
    with beside.open("rb") as file:
        return any(file.read(8))
