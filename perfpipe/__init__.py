"""perfpipe: GPU workloads from launch to verdict.

In a notebook::

    import perfpipe
    store = perfpipe.open_store("perfpipe-store")
    store.sql("SELECT * FROM kernel_sol").df()
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["open_store"]


def open_store(path: str | Path | None = None) -> DuckDBPyConnection:
    """Open a store for SQL: every table and view of `perfpipe schema`, in memory over Parquet.

    `path` defaults to $PERFPIPE_STORE, else ./perfpipe-store.  Raises StoreError when there is
    no store or when it was written with another schema version.
    """
    from perfpipe.query import connect
    from perfpipe.store import Store

    return connect(Store.locate(path, must_exist=True))
