"""Makes the views of a session, those of which it has no data at little cost.

A report of ncu has no timeline, and most views are of timelines.  Which tables must have rows for
a view to have some follows from its SQL: FILE, as made by `make docs`, says so of each, and with
which columns it is made where they have none.  It counts as long as all SQL is as it was then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

from perfpipe.analysis.macros import macros
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.views import views
from perfpipe.catalogue import CATALOGUE
from perfpipe.database import execute_known
from perfpipe.files import packaged
from perfpipe.model import tables
from perfpipe.storetables import StoreTables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Where it lies what views are without rows.
FILE = "columns.json"


@dataclass(frozen=True)
class Emptiness:
    """When a view has no rows, and what it is then.

    It has none if in one of `groups` no table or view has any; `columns` are as in CREATE TABLE.
    """

    columns: str
    groups: Sequence[Sequence[str]]


class ViewMaker:
    """Makes views in a database."""

    def __init__(self, store_tables: StoreTables | None) -> None:
        self._store_tables = store_tables
        self._empty: set[str] = set()  # tables made of views that have no rows
        self._filled: dict[str, bool] = {}

    def begin(self) -> None:
        """Forget which tables had rows: some may have been added since."""
        self._filled.clear()

    def make(self, con: DuckDBPyConnection, name: str, kind: str, query: str) -> str:
        """Make a view of a kind, VIEW or TABLE, or a table if it can have no rows.

        Returns the kind.
        """
        # Rows can be added to tables that are not those of a store: a view there stays one.
        fixed = kind == "TABLE" or self._store_tables is not None
        known = _shipped().get(name) if fixed else None
        if known and any(self._none_has_rows(con, group) for group in known.groups):
            execute_known(con, f"CREATE TABLE {name} ({known.columns})")
            self._empty.add(name)
            return "TABLE"
        made = execute_known(con, f"CREATE {kind} {name} AS {query}")
        if kind == "TABLE" and made.fetchone() == (0,):
            self._empty.add(name)
        return kind

    def _none_has_rows(self, con: DuckDBPyConnection, names: Sequence[str]) -> bool:
        return not any(self._has_rows(con, name) for name in names)

    def _has_rows(self, con: DuckDBPyConnection, name: str) -> bool:
        if name in views():
            return name not in self._empty
        if name not in self._filled:
            if self._store_tables is not None and name in tables():
                self._filled[name] = self._store_tables.has_files(name)
            else:
                found = con.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()
                self._filled[name] = found is not None
        return self._filled[name]


def file_of(found: Mapping[str, Emptiness]) -> str:
    """Return the content of FILE for some views."""
    import duckdb

    head = json.dumps({"duckdb": duckdb.__version__, "sql": _digest()})
    lines = (f"{json.dumps(name)}: {json.dumps(asdict(of))}" for name, of in sorted(found.items()))
    return head[:-1] + ', "views": {\n' + ",\n".join(lines) + "\n}}\n"


@cache
def _shipped() -> Mapping[str, Emptiness]:
    """Return what FILE says of views; nothing where it is of other SQL or another DuckDB."""
    import duckdb

    document = json.loads(packaged("perfpipe.analysis", FILE))
    if document["duckdb"] != duckdb.__version__ or document["sql"] != _digest():
        return {}
    return {name: Emptiness(**view) for name, view in document["views"].items()}


def _digest() -> str:
    """Return a digest of all SQL; that limits, steps and windows are others changes nothing."""
    texts = [
        *(macro.sql for _, macro in sorted(macros(thresholds()).items())),
        *(view.sql for _, view in sorted(views().items())),
        *(repr(table) for _, table in sorted(tables().items())),
        repr(CATALOGUE),
    ]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
