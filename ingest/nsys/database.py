"""Opens SQLite files of exports."""

from __future__ import annotations

import sqlite3
from pathlib import Path

#: Kinds of columns in PRAGMA table_xinfo: plain, and both kinds of generated columns.
_PLAIN, _GENERATED = 0, (2, 3)


def uri_of(content: Path) -> str:
    """Return the URI for reading an export, which nothing writes any more."""
    return f"{content.resolve().as_uri()}?mode=ro&immutable=1"


def connect(content: Path) -> sqlite3.Connection:
    """Open an export for reading; bytes of a text that are not UTF-8 are replaced."""
    con = sqlite3.connect(uri_of(content), uri=True)
    con.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return con


def columns_of(con: sqlite3.Connection, table: str, *, generated: bool) -> dict[str, str]:
    """Return the declared type of each column of a table or view, with or without generated ones.

    Raises sqlite3.DatabaseError if SQLite cannot read the definition of a view.
    """
    kinds = (_PLAIN, *_GENERATED) if generated else (_PLAIN,)
    rows = con.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
    return {row[1]: row[2] for row in rows if row[6] in kinds}


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'
