"""Whether the pages of an SQLite file belong together: by their first rows, and by SQLite itself.

Unasked SQLite reads what it finds: of a damaged tree some rows only, of another table's page that
table's rows.  https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import IO

from perfpipe.errors import InputError, brief

_HEADER = 100
_INTERIOR, _LEAF = 5, 13

#: Faults that quick_check is asked for: values of a wrong type come behind those of pages.
_FAULTS = 100

#: What quick_check says of a value that its column was not declared for; readers count these.
_VALUE = re.compile(r"(?!NULL )\w+ value in |non-\w+ value in |NUMERIC value in ")


def check_pages(path: Path, uri: str) -> None:
    """Raise InputError where SQLite finds damage; it reads the whole file, 50 MB in about 0.2 s.

    `path` is what the user calls the file, here and below.
    """
    try:
        with closing(sqlite3.connect(uri, uri=True)) as con:
            con.text_factory = lambda raw: raw.decode("utf-8", "replace")
            for (fault,) in con.execute(f"PRAGMA quick_check({_FAULTS})"):
                if fault != "ok" and not _VALUE.match(fault):
                    raise InputError(f"{path}: damaged SQLite file ({brief(fault)})")
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: damaged SQLite file ({brief(error)})") from error


def check_first_rows(path: Path, content: Path, con: sqlite3.Connection) -> None:
    """Raise InputError where the first row of a table has another number of columns than it."""
    sql = """
        SELECT t.name, t.rootpage, (SELECT count(*) FROM pragma_table_info(t.name))
        FROM sqlite_master AS t
        WHERE t.type = 'table' AND t.rootpage > 0 AND t.name NOT LIKE 'sqlite_%'
    """
    tables = con.execute(sql).fetchall()
    with content.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
        size = 65536 if size == 1 else size
        for name, root, declared in tables:
            there = _columns_of_first_row(file, root, size)
            if there is not None and there != declared:
                raise InputError(
                    f"{path}: damaged SQLite file (table {brief(name)} has {declared} columns, "
                    f"its first row {there}: it is one of another table)"
                )


def _columns_of_first_row(file: IO[bytes], page: int, size: int) -> int | None:
    """Return the number of values in the first row of a tree; None without a row."""
    seen: set[int] = set()
    try:
        while page not in seen:
            seen.add(page)
            file.seek((page - 1) * size)
            content = file.read(size)
            head = _HEADER if page == 1 else 0
            kind, cells = content[head], int.from_bytes(content[head + 3 : head + 5], "big")
            if not cells or kind not in (_INTERIOR, _LEAF):
                return None
            pointers = head + (12 if kind == _INTERIOR else 8)
            cell = int.from_bytes(content[pointers : pointers + 2], "big")
            if kind == _LEAF:
                return _columns_of(content, cell)
            page = int.from_bytes(content[cell : cell + 4], "big")
    except (IndexError, OSError):
        pass
    # The tree itself is damaged, which quick_check tells.
    return None


def _columns_of(content: bytes, cell: int) -> int:
    """Return the number of values of the row that is in a cell of a leaf page."""
    _, at = _varint(content, cell)
    _, at = _varint(content, at)
    length, first = _varint(content, at)
    end, columns = at + length, 0
    while first < end:
        _, first = _varint(content, first)
        columns += 1
    return columns


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of SQLite's varying length, and where it ends."""
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | content[place] & 0x7F
        if content[place] < 0x80:
            return value, place + 1
    return value << 8 | content[at + 8], at + 9
