"""Whether the pages of an SQLite file belong together: by their first rows, and by SQLite itself.

Unasked SQLite reads what it finds: of a damaged tree some rows only, of another table's page that
table's rows.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from perfpipe.errors import InputError, brief
from perfpipe.ingest.nsys.sqlite_rows import Layout
from perfpipe.ingest.nsys.sqlite_tree import SqliteFile, columns_of_first_row

#: Faults that quick_check is asked for: values of a wrong type come behind those of pages.
_FAULTS = 100

#: What quick_check says of a value that its column was not declared for; readers count these.
_VALUE = re.compile(r"(?!NULL )\w+ value in |non-\w+ value in |NUMERIC value in ")


def check_pages(path: Path, con: sqlite3.Connection) -> None:
    """Raise InputError where SQLite finds damage; it reads the whole file, 50 MB in about 0.2 s.

    `path` is what the user calls the file, here and below.
    """
    try:
        for (fault,) in con.execute(f"PRAGMA quick_check({_FAULTS})"):
            if fault != "ok" and not _VALUE.match(fault):
                raise InputError(f"{path}: damaged SQLite file ({brief(fault)})")
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: damaged SQLite file ({brief(error)})") from error


def check_first_rows(
    path: Path, file: SqliteFile, roots: Mapping[str, int], layouts: Mapping[str, Layout]
) -> None:
    """Raise InputError where the first row of a table has another number of columns than it."""
    for name, layout in layouts.items():
        # Virtual tables have no pages.
        there = columns_of_first_row(file, roots[name]) if name in roots else None
        declared = len(layout.types)
        if there is not None and there != declared:
            raise InputError(
                f"{path}: damaged SQLite file (table {brief(name)} has {declared} columns, "
                f"its first row {there}: it is one of another table)"
            )
