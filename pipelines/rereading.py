"""Repeats work on a store without reports that turned out to be unreadable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from perfpipe.analysis.failing import failing
from perfpipe.database import own_error
from perfpipe.errors import PerfpipeError, QueryFailed, StoreError
from perfpipe.inuse import busy, reading
from perfpipe.store import Store
from perfpipe.verify import damage

#: Attempts while files vanish.
_ATTEMPTS = 5

T = TypeVar("T")


def rereading(
    store: Store,
    reports: Callable[[], Sequence[str]],
    work: Callable[[], T],
    queries: Iterable[str] = (),
) -> T:
    """Return what the work gives, which reads some reports of a store.

    The work is repeated without reports that cannot be read, which are set aside with a warning,
    and if reports vanished because another process removed or re-ingested them.  `queries` are
    queries of perfpipe that the work may run.  Raises what the work raises; a DuckDB error becomes
    one sentence.  If other files vanish at each attempt, the sentence says that the store is busy.
    """
    import duckdb

    faults: set[str] = set()
    for attempts in range(_ATTEMPTS, 0, -1):
        try:
            with reading(store.root):
                return work()
        except (PerfpipeError, duckdb.Error) as error:
            cause = error if isinstance(error, duckdb.Error) else error.__cause__
            if isinstance(cause, duckdb.InterruptException):
                raise
            vanished = isinstance(cause, duckdb.IOException) or (
                isinstance(error, StoreError) and isinstance(cause, FileNotFoundError)
            )
            if vanished or (attempts > 1 and isinstance(cause, duckdb.Error)):
                failed = [error.sql] if isinstance(error, QueryFailed) and error.sql else []
                found = _unreadable(store, reports, cause, [*failed, *queries])
                for report_id, fault in found.items():
                    store.set_aside(report_id, fault)
                faults.add(str(error))
                if attempts > 1 and (found or vanished):
                    continue
                # The same fault each time is no change by others.
                if vanished and not found and len(faults) > 1:
                    raise busy(store.root) from error
            if isinstance(error, duckdb.Error):
                raise own_error(error) from error
            raise
    raise AssertionError("unreachable")


def _unreadable(
    store: Store,
    reports: Callable[[], Sequence[str]],
    cause: BaseException | None,
    queries: Sequence[str],
) -> dict[str, str]:
    """Return the reports that made a query fail, and why they cannot be read."""
    import duckdb

    if isinstance(cause, duckdb.DataError):
        return failing(store, reports(), queries)
    # Errors of DuckDB for a damaged file; the last is raised if one of its libraries fails.
    of_files = isinstance(
        cause, duckdb.IOException | duckdb.InvalidInputException | FileNotFoundError
    )
    if of_files or type(cause) is duckdb.Error:
        return damage(store, reports())
    return {}
