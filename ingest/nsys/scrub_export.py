"""Writes an anonymized copy of an nsys SQLite export."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, StoreError, brief
from perfpipe.ingest.masking import mask, names_in
from perfpipe.ingest.nsys.columns import EXPORT_META
from perfpipe.ingest.nsys.database import columns_of, connect, quoted
from perfpipe.ingest.nsys.metadata import (
    CAPTURE_FACTS,
    EXPORT_FACTS,
    SYSTEM_FACTS,
    allowed_variables,
    hide_arguments,
)
from perfpipe.ingest.nsys.python_stacks import strings_of

#: Tables to keep; unknown tables could contain anything.
_KEPT = re.compile(
    r"ENUM_\w+|NVTX_\w+|CUPTI_ACTIVITY_KIND_\w+|StringIds|GPU_METRICS|PROFILER_OVERHEAD|MPI_\w+"
    r"|OSRT_API|(CUDA|SAMPLING|OSRT)_CALLCHAINS|COMPOSITE_EVENTS|CUDA_\w+_EVENTS|PROCESSES"
    r"|ThreadNames|DIAGNOSTIC_EVENT|PERFPIPE_HOST_\w+"
    rf"|ANALYSIS_DETAILS|{'|'.join(EXPORT_META)}|META_DATA_CAPTURE|TARGET_INFO_(GPU|GPU_METRICS|CUDA_DEVICE"
    r"|CUDA_CONTEXT_INFO|CUDA_STREAM|SESSION_START_TIME|SYSTEM_ENV)"
)

#: Columns that identify a machine, or a place in its memory.
_IDENTITY = frozenset({"uuid", "busLocation", "ctxswDevPath", "ctrlDevPath", "luid", "originalIP"})

_REFERS = re.compile(r"^\s*\"?(\w+)\"?\s.*REFERENCES StringIds", re.MULTILINE)

#: Columns that refer to StringIds, for exports whose schema lacks this information.
_STRING_COLUMNS = frozenset(
    {
        "nameId", "textId", "jsonTextId", "shortName", "demangledName", "mangledName", "symbol",
        "module",
    }
)  # fmt: skip

#: Column with the stacks of Python, which refer to StringIds.
_PAYLOAD = "binaryData"

_BATCH = 10_000

_OF_TABLES = "SELECT sql FROM sqlite_master WHERE type = 'table'"

#: SQLite errors while writing.
_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_READONLY", "SQLITE_CANTOPEN")


def scrub_sqlite(source: Path, target: Path, *known: str) -> list[str]:
    """Write a scrubbed copy of an export to `target`; returns the removed tables.

    Raises InputError if `source` is not a database, or a revealing name would remain.
    """
    try:
        with (
            closing(connect(source)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            left_out, names = _copy(old, new, known)
            new.commit()
            new.execute("VACUUM")
            # nsys's own names and comments reveal nothing.
            schema = b"".join(sql.encode() for (sql,) in new.execute(_OF_TABLES))
    except sqlite3.Error as error:
        # Only the copy is written.
        if getattr(error, "sqlite_errorname", "").startswith(_NO_ROOM):
            raise StoreError(f"cannot write {target}: {brief(error)}") from error
        raise InputError(f"{source}: not an nsys SQLite export ({brief(error)})") from error
    content = target.read_bytes()
    for name in sorted(names):
        if content.count(name.encode()) > schema.count(name.encode()):
            raise InputError(f"{source}: '{name}' would remain in the copy; nothing was written")
    return left_out


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, known: tuple[str, ...]
) -> tuple[list[str], frozenset[str]]:
    schema = {
        name: sql if kind == "table" else _as_table(old, name)
        for name, kind, sql in old.execute(_SCHEMA).fetchall()
    }
    kept = {name: sql for name, sql in schema.items() if sql and _KEPT.fullmatch(name)}
    if "StringIds" not in kept:
        raise InputError("not an nsys export: no table StringIds")
    texts = [value for table in _TELLING for value in _texts(old, schema, table)]
    hosts = [v for n, v in _pairs(old, schema, "TARGET_INFO_SYSTEM_ENV") if n == "Hostname"]
    names = names_in(texts, *hosts, *known)
    used: set[int] = set()
    for table, sql in kept.items():
        new.execute(sql)
        if table != "StringIds":
            _copy_table(old, new, table, sql, names, used)
    _hide_arguments(new, kept)
    ((use,),) = old.execute("PRAGMA application_id")
    new.execute(f"PRAGMA application_id = {use}")
    strings = old.execute("SELECT id, CAST(value AS TEXT) FROM StringIds")
    new.executemany(
        "INSERT INTO StringIds (id, value) VALUES (?, ?)",
        ((key, mask(value or "", names)) for key, value in strings if key in used),
    )
    return sorted(schema.keys() - kept.keys()), names


#: Tables and views of an export; the reader also reads views.
_SCHEMA = (
    "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql NOT NULL"
)


def _as_table(con: sqlite3.Connection, view: str) -> str:
    """Return the SQL of a table for the rows of a view, empty if SQLite cannot read the view."""
    try:
        columns = columns_of(con, view, generated=False)
    except sqlite3.DatabaseError:
        return ""
    of = ", ".join(f"{quoted(name)} {declared}" for name, declared in columns.items())
    return f"CREATE TABLE {quoted(view)} ({of})"


def _hide_arguments(new: sqlite3.Connection, kept: Mapping[str, str]) -> None:
    facts = _pairs(new, kept, "META_DATA_CAPTURE")
    hidden = [(value, name) for name, value in hide_arguments(facts)]
    changed = [one for one, (_, old) in zip(hidden, facts, strict=True) if one[0] != old]
    if changed:
        new.executemany("UPDATE META_DATA_CAPTURE SET value = ? WHERE name = ?", changed)


#: Tables whose texts contain user and host names.
_TELLING = ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "PROCESSES", "ProcessStreams")


def _texts(con: sqlite3.Connection, schema: dict[str, str], table: str) -> Iterator[str]:
    if schema.get(table):
        for row in con.execute(f"SELECT * FROM {quoted(table)}"):
            yield from (value for value in row if isinstance(value, str))


def _pairs(
    con: sqlite3.Connection, schema: Mapping[str, str], table: str
) -> list[tuple[str, str | None]]:
    if not schema.get(table):
        return []
    if not {"name", "value"} <= columns_of(con, table, generated=True).keys():
        return []
    return con.execute(f"SELECT name, value FROM {quoted(table)}").fetchall()


def _copy_table(
    old: sqlite3.Connection,
    new: sqlite3.Connection,
    table: str,
    sql: str,
    names: frozenset[str],
    used: set[int],
) -> None:
    columns = list(columns_of(old, table, generated=False))
    cells = ", ".join(map(quoted, columns))
    cursor = old.execute(f"SELECT {cells} FROM {quoted(table)}")
    strings = (set(_REFERS.findall(sql)) | _STRING_COLUMNS) & set(columns)
    insert = f"INSERT INTO {quoted(table)} ({cells}) VALUES ({', '.join('?' * len(columns))})"
    while rows := cursor.fetchmany(_BATCH):
        new.executemany(insert, _clean(table, columns, rows, names))
        for column in strings:
            at = columns.index(column)
            used.update(row[at] for row in rows if row[at] is not None)
        if _PAYLOAD in columns:
            at = columns.index(_PAYLOAD)
            used.update(key for row in rows if row[at] for key in strings_of(row[at]))


def _clean(
    table: str, columns: list[str], rows: list[tuple[Any, ...]], names: frozenset[str]
) -> Iterator[list[Any]]:
    hidden = [index for index, column in enumerate(columns) if column in _IDENTITY]
    for row in rows:
        values = list(row)
        if table in _FACTS:
            values = _fact(table, columns, values)
            if not values:
                continue
        for index in hidden:
            values[index] = "" if isinstance(values[index], str) else None
        yield [mask(value, names) if isinstance(value, str) else value for value in values]


_FACTS = frozenset({*EXPORT_META, "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"})


def _fact(table: str, columns: list[str], values: list[Any]) -> list[Any]:
    """Return a row of facts, or nothing if it must be removed."""
    if not {"name", "value"} <= set(columns):
        return []
    name, value = (values[columns.index(column)] for column in ("name", "value"))
    if "ENV" in str(name).upper() and table not in EXPORT_META:
        lines = [f"{own}={text}" for own, text in allowed_variables(str(value or ""))]
        values[columns.index("value")] = "\n".join(lines)
        return values if lines else []
    if table in EXPORT_META:
        keep = name in EXPORT_FACTS or str(name).startswith("EXPORT_SCHEMA")
    elif table == "META_DATA_CAPTURE":
        keep = bool(CAPTURE_FACTS.fullmatch(str(name)))
    else:
        keep = name in SYSTEM_FACTS and name != "Hostname"
    return values if keep else []
