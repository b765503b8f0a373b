"""Exports to SQLite, read from the pages of the file, or through SQLite where these are unusual."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa

from perfpipe.errors import InputError, brief
from perfpipe.ingest.nsys import columns as known
from perfpipe.ingest.nsys.export import BATCH, Export, Part
from perfpipe.ingest.nsys.sqlite_pages import check_first_rows, check_pages
from perfpipe.ingest.nsys.sqlite_rows import Layout, Rows
from perfpipe.ingest.nsys.sqlite_tree import (
    SqliteFile,
    Trees,
    UnusualError,
    check_empty,
    page_size_of,
    trees_of,
)
from perfpipe.ingest.nsys.sqlite_values import BLOB, FLOAT, INT, TEXT, TYPES

#: Rows from which a table is worth scanning in parts, and how many: more than are read at a time,
#: so that readers end together.
_LONG, _PARTS = 500_000, 12

#: The table that SQLite lists tables in.
_SCHEMA = "sqlite_master"


class SqliteExport(Export):
    """An export to SQLite."""

    def __init__(self, path: Path, content: Path) -> None:
        super().__init__(path)
        self._content = content
        self._uri = f"{content.resolve().as_uri()}?mode=ro&immutable=1"
        _check_whole(path, content)
        self._layouts: dict[str, Layout] = {}
        self._empty: set[str] = set()
        self._lock, self._sound = Lock(), False
        try:
            with closing(self._connect()) as con:
                named = con.execute("SELECT name, type, rootpage FROM sqlite_master").fetchall()
                # Views and virtual tables have no pages.
                self._roots = {_SCHEMA: 1, **{name: root for name, _, root in named if root}}
                self._schema = _layout(con, _SCHEMA)
                for name in (name for name, type_, _ in named if type_ == "table"):
                    self._layouts[name] = _layout(con, name)
                    if not con.execute(f"SELECT 1 FROM {_name(name)} LIMIT 1").fetchone():
                        self._empty.add(name)
            with SqliteFile(content) as file:
                check_first_rows(path, file, self._roots, self._layouts)
        except (sqlite3.DatabaseError, UnicodeDecodeError, UnusualError) as error:
            raise InputError(f"{path}: damaged SQLite file ({brief(error)})") from error

    def check(self) -> None:
        trees = self._trees
        empty = [root for name, root in self._roots.items() if name in self._empty]
        try:
            with SqliteFile(self._content) as file:
                check_empty(file, np.array(empty, np.int64))
                _claim(Rows(file, trees, _SCHEMA, self._schema, ()))
                # Rows that go on in pages of their own are in small tables.
                for table in sorted(self._layouts.keys() - self._empty, key=trees.size):
                    if trees.doubtful or trees.complete():
                        break
                    _claim(Rows(file, trees, table, self._layouts[table], ()))
        except (IndexError, UnusualError):
            trees.doubtful = True
        if not trees.complete():
            self._checked()

    @cached_property
    def _trees(self) -> Trees:
        return trees_of(self._content, self._roots)

    def _checked(self) -> None:
        """Let SQLite check the whole file, once; raises InputError where it is damaged."""
        with self._lock:
            if not self._sound:
                with closing(self._connect()) as con:
                    check_pages(self.path, con)
                self._sound = True

    def tables(self) -> frozenset[str]:
        return frozenset(self._layouts)

    def has_rows(self, table: str) -> bool:
        return table in self._layouts and table not in self._empty

    def columns(self, table: str) -> frozenset[str]:
        return frozenset(self._layouts[table].types) if table in self._layouts else frozenset()

    def parts(self, table: str) -> list[Part | None]:
        with closing(self._connect()) as con:
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
        try:
            for batch in self._batches(table, columns, order, part):
                done += batch.num_rows
                yield batch
        except UnusualError:
            self._checked()
            for batch in self._asked(table, columns, order, part):
                # What the pages have given already.
                rows = batch.slice(min(done, batch.num_rows))
                done = max(0, done - batch.num_rows)
                if rows.num_rows:
                    yield rows

    def _batches(
        self, table: str, columns: Sequence[str], order: Sequence[str], part: Part | None
    ) -> Iterator[pa.RecordBatch]:
        """Stream a table from its pages."""
        with SqliteFile(self._content) as file:
            rows = Rows(file, self._trees, table, self._layouts[table], columns)
            batches = rows.batches(*(part or ()))
            yield from _sorted(batches, order) if order else batches
        self.mismatches[table, part] = +rows.mistyped

    def _asked(
        self, table: str, columns: Sequence[str], order: Sequence[str], part: Part | None
    ) -> Iterator[pa.RecordBatch]:
        """Stream a table as SQLite gives it; values of another type than their column are NULL."""
        types = [self._layouts[table].types[c] for c in columns]
        mistyped = Counter[str]()
        sql = f"SELECT {', '.join(map(_name, columns))} FROM {_name(table)}{_where(part)}"
        if order:
            sql += f" ORDER BY {', '.join(f'{_name(c)} NULLS LAST' for c in order)}"
        try:
            with closing(self._connect()) as con:
                cursor = con.execute(sql)
                while rows := cursor.fetchmany(BATCH):
                    found = {}
                    for name, type_, values in zip(
                        columns, types, zip(*rows, strict=True), strict=True
                    ):
                        right = [v if isinstance(v, _PYTHON[type_]) else None for v in values]
                        mistyped[name] += right.count(None) - values.count(None)
                        found[name] = pa.array(right, TYPES[type_])
                    yield pa.RecordBatch.from_pydict(found)
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path}: table {table} is damaged ({brief(error)})") from error
        self.mismatches[table, part] = +mistyped

    def _connect(self) -> sqlite3.Connection:
        con = sqlite3.connect(self._uri, uri=True)
        con.text_factory = lambda raw: raw.decode("utf-8", "replace")
        return con


#: What SQLite gives for values of a type.
_PYTHON: dict[str, tuple[type, ...]] = {
    INT: (int,),
    FLOAT: (int, float),
    TEXT: (str,),
    BLOB: (bytes, str),
}


def _claim(rows: Rows) -> None:
    """Read rows for the sake of the pages that they go on in."""
    for _ in rows.batches():
        pass


def _sorted(batches: Iterator[pa.RecordBatch], order: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if found := list(batches):
        rows = pa.Table.from_batches(found).sort_by([(column, "ascending") for column in order])
        yield from rows.to_batches(BATCH)


def _layout(con: sqlite3.Connection, table: str) -> Layout:
    types, filled, keys = {}, set(), []
    for _, name, declared, not_null, _, key in con.execute(f"PRAGMA table_info({_name(table)})"):
        types[name] = _type(table, name, declared.upper())
        if key:
            keys.append(name if declared.upper() == "INTEGER" else None)
        elif not_null:
            filled.add(name)
    return Layout(types, frozenset(filled), keys[0] if len(keys) == 1 else None)


def _type(table: str, column: str, declared: str) -> str:
    """Return the type that a column has in the file, unless it is none that it takes."""
    kind = known.kind_of(table, column)
    if kind in (known.TEXT, known.BLOB):
        return TEXT if kind == known.TEXT else BLOB
    real = any(word in declared for word in ("REAL", "FLOA", "DOUB"))
    return FLOAT if real else INT


def _where(part: Part | None) -> str:
    return f" WHERE rowid BETWEEN {part[0]} AND {part[1]}" if part else ""


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _check_whole(path: Path, content: Path) -> None:
    """Reject a file that is shorter than its header says, or is still being written."""
    # SQLite writes its journals beside the target of a link.
    content = content.resolve()
    with content.open("rb") as file:
        header = file.read(100)
    if len(header) < 100:
        raise InputError(f"{path}: the SQLite file is truncated")
    page = page_size_of(header)
    pages = int.from_bytes(header[28:32], "big")
    valid = header[24:28] == header[92:96]
    if valid and pages and page * pages > content.stat().st_size:
        raise InputError(
            f"{path}: the SQLite file is truncated "
            f"({content.stat().st_size:,} of {page * pages:,} bytes)"
        )
    for suffix in ("-journal", "-wal"):
        beside = content.with_name(content.name + suffix)
        if beside.is_file() and _is_hot(beside):
            raise InputError(f"{path}: still being written ({beside.name} is next to it)")


def _is_hot(beside: Path) -> bool:
    """Return whether a journal may hold what the database lacks.

    A rollback journal that is kept after a commit begins with zeros.
    """
    with beside.open("rb") as file:
        return any(file.read(8))
