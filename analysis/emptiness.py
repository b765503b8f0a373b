"""Makes the views of a session, those of which it has no data at little cost.

A report of ncu has no timeline, and most views are of timelines.  What a view says where nothing
that it reads has rows depends on no data: such views are planned once in a process, and are tables
without rows from then on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from analysis.views import views
from perfpipe.database import execute_known
from perfpipe.model import tables
from perfpipe.storetables import StoreTables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Columns of views that have no rows where nothing that they read has, by query and variant.
_COLUMNS: dict[tuple[str, object], str] = {}


class ViewMaker:
    """Makes views in a database; `variant` is what macros depend on beside their text."""

    def __init__(self, store_tables: StoreTables | None, variant: object) -> None:
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
        columns = _COLUMNS.get((query, self._variant)) if bare else None
        if columns:
            execute_known(con, f"CREATE TABLE {name} ({columns})")
            self._empty.add(name)
            return "TABLE"
        kind = "TABLE" if bare else kind
        made = execute_known(con, f"CREATE {kind} {name} AS {query}")
        if kind == "TABLE" and made.fetchone() == (0,):
            self._empty.add(name)
            if bare:
                rows = con.execute(f"DESCRIBE {name}").fetchall()
                found = ", ".join(f'"{column}" {of}' for column, of, *_ in rows)
                _COLUMNS[query, self._variant] = found
        return kind

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
