"""Makes the views of a session, those of which it has no data at little cost.

A report of ncu has no timeline, and most views are of timelines.  What a view says where nothing
that it reads has rows depends on no data: such views are planned once in a process, and are tables
without rows from then on.  What they are like with the usual thresholds and steps comes with
perfpipe in columns.json, as made by `make docs`; it counts as long as all SQL is as it was then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from analysis.macros import macros
from analysis.thresholds import thresholds
from analysis.views import views
from perfpipe.catalogue import CATALOGUE
from perfpipe.database import execute_known
from perfpipe.model import tables
from perfpipe.storetables import StoreTables
from perfpipe.windows import STEADY

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: What macros depend on beside their text: name of steps, window, and limits by name.
Variant = tuple[str | None, str, tuple[tuple[str, float], ...]]

#: Columns of views that have no rows where nothing that they read has, by query and variant.
_COLUMNS: dict[tuple[str, Variant], str] = {}

#: Where those of the usual variant lie.
FILE = "columns.json"


class ViewMaker:
    """Makes views in a database."""

    def __init__(self, store_tables: StoreTables | None, variant: Variant) -> None:
        self._store_tables, self._variant = store_tables, variant
        self._empty: set[str] = set()  # tables made of views that have no rows
        self._filled: dict[str, bool] = {}

    def begin(self) -> None:
        """Forget which tables had rows: some may have been added since."""
        self._filled.clear()

    def make(
        self,
        con: DuckDBPyConnection,
        name: str,
        kind: str,
        query: str,
        sources: Collection[str],
    ) -> str:
        """Make a view of a kind, VIEW or TABLE, or a table if its `sources` can have no rows.

        Returns the kind.
        """
        # Rows can be added to tables that are not those of a store: a view there stays one.
        fixed = kind == "TABLE" or self._store_tables is not None
        bare = fixed and bool(sources) and not any(self._has_rows(con, one) for one in sources)
        columns = self._columns(name, query) if bare else None
        if columns:
            execute_known(con, f"CREATE TABLE {name} ({columns})")
            self._empty.add(name)
            return "TABLE"
        kind = "TABLE" if bare else kind
        made = execute_known(con, f"CREATE {kind} {name} AS {query}")
        if kind == "TABLE" and made.fetchone() == (0,):
            self._empty.add(name)
            if bare:
                _COLUMNS[query, self._variant] = columns_of(con, name)
        return kind

    def _columns(self, view: str, query: str) -> str | None:
        known = _COLUMNS.get((query, self._variant))
        return known or _shipped(self._variant).get(view)

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


def columns_of(con: DuckDBPyConnection, name: str) -> str:
    """Return the columns of a table or view as in CREATE TABLE."""
    rows = con.execute(f"DESCRIBE {name}").fetchall()
    return ", ".join(f'"{column}" {of}' for column, of, *_ in rows)


def columns_file(views_without_rows: Mapping[str, str]) -> str:
    """Return the content of FILE for the columns of some views, as in CREATE TABLE."""
    import duckdb

    usual = None, STEADY, tuple(thresholds().items())
    document = {"duckdb": duckdb.__version__, "sql": _digest(usual), "views": views_without_rows}
    return json.dumps(document, indent=0, sort_keys=True) + "\n"


@cache
def _shipped(variant: Variant) -> Mapping[str, str]:
    """Return what FILE says of views; nothing where it is of other SQL or another DuckDB."""
    import duckdb

    document = json.loads(resources.files("analysis").joinpath(FILE).read_text(encoding="utf-8"))
    usable = document["duckdb"] == duckdb.__version__ and document["sql"] == _digest(variant)
    return document["views"] if usable else {}


def _digest(variant: Variant) -> str:
    """Return a digest of all that the columns of views depend on."""
    step_range, window, limits = variant
    texts = [
        *(macro.sql for _, macro in sorted(macros(dict(limits), step_range, window).items())),
        *(view.sql for _, view in sorted(views().items())),
        *(repr(table) for _, table in sorted(tables().items())),
        repr(CATALOGUE),
    ]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
