"""Small helpers for queries about some reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perfpipe.database import quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def in_list(reports: Iterable[str]) -> str:
    """Return a SQL list of report ids."""
    return f"({', '.join(quote(report) for report in reports) or 'NULL'})"


def rows_of(con: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return con.execute(sql).fetchall()
