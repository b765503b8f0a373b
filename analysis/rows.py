"""Small helpers for queries of perfpipe's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perfpipe.database import own_error

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def rows_of(con: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query; raises QueryFailed, and StoreError for a damaged store."""
    with named(sql):
        return con.execute(sql).fetchall()
    raise AssertionError("unreachable")


def records_of(con: DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query by column; raises as `rows_of` does."""
    with named(sql):
        result = con.execute(sql)
        columns = [column[0] for column in result.description]
        return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
    raise AssertionError("unreachable")


@contextmanager
def named(sql: str) -> Iterator[None]:
    """Name the query of perfpipe's own that fails in the block."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise own_error(error, sql) from error
