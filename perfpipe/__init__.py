"""perfpipe: profiles GPU workloads and reports what limits them.

In a notebook::

    import perfpipe
    store = perfpipe.open_store("perfpipe-store")
    store.sql("SELECT * FROM kernel_sol").df()
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfpipe.windows import STEADY

if TYPE_CHECKING:
    from collections.abc import Collection

    from perfpipe.analysis.session import Session

__all__ = ["open_store"]

__version__ = "0.1.0"


def open_store(
    path: str | Path | None = None,
    reports: Collection[str] | None = None,
    *,
    step_range: str | int | None = None,
    window: str = STEADY,
) -> Session:
    """Open a store for SQL, with every table and view of `perfpipe schema`.

    `path` defaults to $PERFPIPE_STORE, else ./perfpipe-store.  `reports` are the ids of the reports
    to open (default: all), which is faster in a large store.  `step_range` is a regular expression
    of NVTX ranges to treat as steps, or the number of a loop (view `loops`) whose iterations are
    the steps; `window` is the part of timelines to analyze: steady, whole,
    startup, or a step's name or number.  `.sql(query)` returns a DuckDB relation.

    Raises StoreError if there is no store, or it was written with another schema version,
    InputError if `step_range` is not a regular expression.
    """
    from perfpipe.analysis.session import Session
    from perfpipe.store import Store

    store = Store.locate(path, must_exist=True)
    return Session.open(store, reports, step_range=step_range, window=window)
