"""Exports to SQLite, read through ADBC."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from ingest.nsys.columns import BLOB, NUMBER, TEXT, kind_of
from ingest.nsys.export import BATCH, Export, Part
from ingest.nsys.sqlite_pages import check_pages
from perfpipe.errors import InputError, brief

#: Rows from which a table is worth scanning in parts, and how many: more than are read at a time,
#: so that readers end together.
_LONG, _PARTS = 500_000, 12


#: Integers that are NULL in most exports but cost as much to read as others.
_SELDOM = {"NVTX_EVENTS": ("category", "endGlobalTid")}


class SqliteExport(Export):
    """An export to SQLite."""

    def __init__(self, path: Path, content: Path) -> None:
        super().__init__(path)
        self._content = content
        self._uri = f"{content.resolve().as_uri()}?mode=ro&immutable=1"
        _check_whole(path, content)
        self._types: dict[str, dict[str, str]] = {}
        self._filled: set[str] = set()
        try:
            with closing(sqlite3.connect(self._uri, uri=True)) as con:
                con.text_factory = lambda raw: raw.decode("utf-8", "replace")
                names = con.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                for (name,) in names.fetchall():
                    info = con.execute(f"PRAGMA table_info({_name(name)})")
                    self._types[name] = {
                        column: _kind(name, column, declared) for _, column, declared, *_ in info
                    }
                    if con.execute(f"SELECT 1 FROM {_name(name)} LIMIT 1").fetchone():
                        self._filled.add(name)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: damaged SQLite file ({brief(error)})") from error

    def check(self) -> None:
        check_pages(self.path, self._content, self._uri)

    def tables(self) -> frozenset[str]:
        return frozenset(self._types)

    def has_rows(self, table: str) -> bool:
        return table in self._filled

    def columns(self, table: str) -> frozenset[str]:
        return frozenset(self._types.get(table, ()))

    def parts(self, table: str) -> list[Part | None]:
        with closing(sqlite3.connect(self._uri, uri=True)) as con:
            # With both in one SELECT, SQLite scans the whole table.
            first_and_last = (
                f"(SELECT {end}(rowid) FROM {_name(table)})" for end in ("min", "max")
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
        done = 0
        for how in (_SPARSE, _TYPED, _CHECKED) if table in _SELDOM else (_TYPED, _CHECKED):
            # What the way before has given already.
            skip = done
            try:
                for batch in self._scan(table, columns, order, part, how):
                    rows = batch.slice(skip)
                    skip = max(0, skip - batch.num_rows)
                    if rows.num_rows:
                        done += rows.num_rows
                        yield rows
            except _Mismatch:
                if how == _TYPED:
                    self.mismatches[table, part] = self._mismatches(table, columns, part)
            except (_AdbcError, pa.ArrowException, UnicodeDecodeError) as error:
                raise InputError(
                    f"{self.path}: table {table} is damaged ({brief(error)})"
                ) from error
            else:
                return

    def _mismatches(self, table: str, columns: Sequence[str], part: Part | None) -> dict[str, int]:
        """Return how many values of each column have another type than it."""
        kinds = {c: self._types[table][c] for c in columns if c != _BLOB}
        sums = [
            f"total(typeof({_name(c)}) NOT IN ({_STORAGE[kind]}, 'null'))"
            for c, kind in kinds.items()
        ]
        sql = f"SELECT {', '.join(sums)} FROM {_name(table)}{_where(part)}"
        try:
            with closing(sqlite3.connect(self._uri, uri=True)) as con:
                counts = con.execute(sql).fetchone()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path}: table {table} is damaged ({brief(error)})") from error
        return {c: int(count) for c, count in zip(kinds, counts, strict=True) if count}

    def _scan(
        self,
        table: str,
        columns: Sequence[str],
        order: Sequence[str],
        part: Part | None,
        how: int,
    ) -> Iterator[pa.RecordBatch]:
        """Stream a table behind a seed row; raises _Mismatch where that needs another way.

        ADBC takes a column's type from its first values, which are often NULL; the seed row has
        one value of each declared type and is dropped again.  _SPARSE: columns that are seldom
        filled are read as one.  _CHECKED: values that contradict their column are read as NULL.
        """
        import adbc_driver_sqlite.dbapi as adbc

        sparse = [c for c in _SELDOM.get(table, ()) if c in columns] if how == _SPARSE else []
        typed = [(c, self._types[table][c]) for c in columns if c not in sparse]
        seeds = [f"{_SEEDS[kind]} AS {_name(c)}" for c, kind in typed]
        cells = [_checked(c, kind) if how == _CHECKED else _value(c) for c, kind in typed]
        if sparse:
            seeds.append(f"{_SEEDS['int']} AS _sparse")
            cells.append(f"coalesce({', '.join(map(_name, sparse))}, NULL)")
        if order:
            seeds.append("0 AS _row")
            cells.append("1")
        seed, values = ", ".join(seeds), ", ".join(cells)
        sql = f"SELECT {seed} UNION ALL SELECT {values} FROM {_name(table)}{_where(part)}"
        if order:
            sql += f" ORDER BY _row, {', '.join(_name(c) for c in order)}"
        with adbc.connect(self._uri) as con, con.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH)})
            cursor.execute(sql)
            first = True
            for batch in _mismatches(cursor.fetch_record_batch()):
                rows = batch.slice(1) if first else batch
                first = False
                for column, kind in typed:
                    if batch.schema.field(column).type != _TYPES[kind]:
                        raise _Mismatch(f"{column} is not {kind}")
                if sparse:
                    rows = _with_nulls(rows, sparse)
                if rows.num_rows:
                    yield rows.select(list(columns))


def _with_nulls(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return a batch with columns of NULL; _Mismatch where one of them holds something."""
    if rows.column("_sparse").null_count < rows.num_rows:
        raise _Mismatch(f"{' or '.join(columns)} is filled")
    for column in columns:
        rows = rows.append_column(column, pa.nulls(rows.num_rows, _TYPES["int"]))
    return rows


#: Ways to read a table, each for what the one before cannot read.
_SPARSE, _TYPED, _CHECKED = range(3)

_TYPES = {"int": pa.int64(), "float": pa.float64(), "text": pa.string()}
_SEEDS = {"int": "0", "float": "0.0", "text": "''"}
_STORAGE = {"int": "'integer'", "float": "'real', 'integer'", "text": "'text'"}


#: Declared as text, but blobs: ADBC takes a column for one or the other.
_BLOB = "binaryData"


def _kind(table: str, column: str, declared: str) -> str:
    """Return the type to read a column as; a number may be whole or not, as it was declared."""
    kind = kind_of(table, column)
    if kind in (TEXT, BLOB):
        return "text"
    real = any(word in declared.upper() for word in ("REAL", "FLOA", "DOUB"))
    return "float" if kind == NUMBER and real else "int"


def _where(part: Part | None) -> str:
    return f" WHERE rowid BETWEEN {part[0]} AND {part[1]}" if part else ""


def _value(column: str) -> str:
    if column != _BLOB:
        return _name(column)
    # Most are NULL, which hex would make a text of.
    return f"CASE WHEN {_name(column)} IS NOT NULL THEN hex({_name(column)}) END"


def _checked(column: str, kind: str) -> str:
    if column == _BLOB:
        return _value(column)
    name = _name(column)
    return f"CASE WHEN typeof({name}) IN ({_STORAGE[kind]}) THEN {name} END"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Mismatch(Exception):
    """A value contradicts the declared type of its column."""


def _mismatches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Name the error by which ADBC refuses a value behind the first batch."""
    try:
        yield from batches
    except (pa.ArrowException, OSError, _AdbcError) as error:
        if "mismatch" not in str(error):
            raise
        raise _Mismatch(str(error).split("\n")[0]) from error


def _adbc_error() -> type[Exception]:
    import adbc_driver_manager

    return adbc_driver_manager.Error


_AdbcError = _adbc_error()


def _check_whole(path: Path, content: Path) -> None:
    """Reject a file that is shorter than its header says, or is still being written."""
    with content.open("rb") as file:
        header = file.read(100)
    if len(header) < 100:
        raise InputError(f"{path}: the SQLite file is truncated")
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    valid = header[24:28] == header[92:96]
    if valid and pages and page * pages > content.stat().st_size:
        raise InputError(
            f"{path}: the SQLite file is truncated "
            f"({content.stat().st_size:,} of {page * pages:,} bytes)"
        )
    for suffix in ("-journal", "-wal"):
        beside = content.with_name(content.name + suffix)
        if beside.is_file() and beside.stat().st_size:
            raise InputError(f"{path}: still being written ({beside.name} is next to it)")
