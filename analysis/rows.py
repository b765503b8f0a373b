"""A small helper for queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def rows_of(con: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return con.execute(sql).fetchall()
