"""Finds the reports that make perfpipe's queries fail, so that the others can be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from perfpipe.analysis.session import Session
from perfpipe.database import first_lines
from perfpipe.errors import PerfpipeError

if TYPE_CHECKING:
    from perfpipe.store import Store


def failing(store: Store, reports: Sequence[str], queries: Iterable[str]) -> dict[str, str]:
    """Return the reports whose exclusion makes the queries run, and why they cannot be read.

    Found by bisection.  If the query fails for every report, no report is to blame.
    """
    for query in queries:
        found = _failing(store, query, reports)
        if found and len(found) < len(reports):
            return {
                report: f"perfpipe cannot use its values ({why})" for report, why in found.items()
            }
    return {}


def _failing(store: Store, query: str, reports: Sequence[str]) -> dict[str, str]:
    """Return the reports that a query fails on, with the error of each."""
    fault = _fault(store, query, reports)
    if fault is None:
        return {}
    if len(reports) == 1:
        return {reports[0]: fault}
    half = len(reports) // 2
    return _failing(store, query, reports[:half]) | _failing(store, query, reports[half:])


def _fault(store: Store, query: str, reports: Sequence[str]) -> str | None:
    """Return the error of a query on some reports; None if it runs."""
    import duckdb

    with Session.open(store, reports) as session:
        try:
            result = session.execute(query)
            while result.fetchmany(_AT_A_TIME):
                pass
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            return first_lines(error)
        except PerfpipeError as error:
            cause = error.__cause__
            return first_lines(cause if isinstance(cause, duckdb.Error) else error)
    return None


#: Rows that are kept in memory at a time.
_AT_A_TIME = 10_000
