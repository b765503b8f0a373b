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
from perfpipe.ingest.nsys.metadata import (
    CAPTURE_FACTS,
    EXPORT_FACTS,
    SYSTEM_FACTS,
    allowed_variables,
    hide_arguments,
)

#: Tables to keep; unknown tables could contain anything.
_KEPT = re.compile(
    r"ENUM_\w+|NVTX_\w+|CUPTI_ACTIVITY_KIND_\w+|StringIds|GPU_METRICS|PROFILER_OVERHEAD|MPI_\w+"
    r"|OSRT_API|CUDA_\w+_EVENTS|PROCESSES|ThreadNames|DIAGNOSTIC_EVENT"
    r"|ANALYSIS_DETAILS|META_DATA_EXPORT|META_DATA_CAPTURE|TARGET_INFO_(GPU|GPU_METRICS|CUDA_DEVICE"
    r"|CUDA_CONTEXT_INFO|CUDA_STREAM|SESSION_START_TIME|SYSTEM_ENV)"
)

#: Columns that identify a machine.
_IDENTITY = frozenset({"uuid", "busLocation", "ctxswDevPath", "ctrlDevPath", "luid"})

_REFERS = re.compile(r"^\s*\"?(\w+)\"?\s.*REFERENCES StringIds", re.MULTILINE)

#: Columns that refer to StringIds, for exports whose schema lacks this information.
_STRING_COLUMNS = frozenset(
    {"nameId", "textId", "jsonTextId", "shortName", "demangledName", "mangledName"}
)

_BATCH = 10_000

#: SQLite errors while writing.
_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_READONLY", "SQLITE_CANTOPEN")


def scrub_sqlite(source: Path, target: Path, *known: str) -> list[str]:
    """Write a scrubbed copy of an export to `target`; returns the removed tables.

    Raises InputError if `source` is not a database, or a revealing name would remain.
    """
    uri = f"{source.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with (
            closing(sqlite3.connect(uri, uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            left_out, names = _copy(old, new, known)
            new.commit()
            new.execute("VACUUM")
    except sqlite3.Error as error:
        # Only the copy is written.
        if getattr(error, "sqlite_errorname", "").startswith(_NO_ROOM):
            raise StoreError(f"cannot write {target}: {brief(error)}") from error
        raise InputError(f"{source}: not an nsys SQLite export ({brief(error)})") from error
    content = target.read_bytes()
    for name in sorted(names):
        if name.encode() in content:
            raise InputError(f"{source}: '{name}' would remain in the copy; nothing was written")
    return left_out


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, known: tuple[str, ...]
) -> tuple[list[str], frozenset[str]]:
    schema: dict[str, str] = dict(
        old.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL")
    )
    kept = {name: sql for name, sql in schema.items() if _KEPT.fullmatch(name)}
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
    strings = old.execute("SELECT id, value FROM StringIds")
    new.executemany(
        "INSERT INTO StringIds (id, value) VALUES (?, ?)",
        ((key, mask(value or "", names)) for key, value in strings if key in used),
    )
    return sorted(schema.keys() - kept.keys()), names


def _hide_arguments(new: sqlite3.Connection, kept: Mapping[str, str]) -> None:
    facts = _pairs(new, kept, "META_DATA_CAPTURE")
    hidden = [(value, name) for name, value in hide_arguments(facts)]
    changed = [one for one, (_, old) in zip(hidden, facts, strict=True) if one[0] != old]
    new.executemany("UPDATE META_DATA_CAPTURE SET value = ? WHERE name = ?", changed)


#: Tables whose texts contain user and host names.
_TELLING = ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "PROCESSES", "ProcessStreams")


def _texts(con: sqlite3.Connection, schema: dict[str, str], table: str) -> Iterator[str]:
    if table in schema:
        for row in con.execute(f'SELECT * FROM "{table}"'):
            yield from (value for value in row if isinstance(value, str))


def _pairs(
    con: sqlite3.Connection, schema: Mapping[str, str], table: str
) -> list[tuple[str, str | None]]:
    return con.execute(f'SELECT name, value FROM "{table}"').fetchall() if table in schema else []


def _copy_table(
    old: sqlite3.Connection,
    new: sqlite3.Connection,
    table: str,
    sql: str,
    names: frozenset[str],
    used: set[int],
) -> None:
    cursor = old.execute(f'SELECT * FROM "{table}"')
    columns = [column[0] for column in cursor.description]
    strings = (set(_REFERS.findall(sql)) | _STRING_COLUMNS) & set(columns)
    insert = f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})'
    while rows := cursor.fetchmany(_BATCH):
        new.executemany(insert, _clean(table, columns, rows, names))
        for column in strings:
            at = columns.index(column)
            used.update(row[at] for row in rows if row[at] is not None)


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


_FACTS = frozenset({"META_DATA_EXPORT", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"})


def _fact(table: str, columns: list[str], values: list[Any]) -> list[Any]:
    """Return a row of facts, or nothing if it must be removed."""
    name, value = (values[columns.index(column)] for column in ("name", "value"))
    if "ENV" in str(name).upper() and table != "META_DATA_EXPORT":
        lines = [f"{own}={text}" for own, text in allowed_variables(str(value or ""))]
        values[columns.index("value")] = "\n".join(lines)
        return values if lines else []
    keep = {
        "META_DATA_EXPORT": name in EXPORT_FACTS or str(name).startswith("EXPORT_SCHEMA"),
        "META_DATA_CAPTURE": bool(CAPTURE_FACTS.fullmatch(str(name))),
        "TARGET_INFO_SYSTEM_ENV": name in SYSTEM_FACTS and name != "Hostname",
    }[table]
    return values if keep else []
