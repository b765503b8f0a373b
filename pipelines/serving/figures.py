"""The figures of a run's loads, for its JSON output."""

from __future__ import annotations

from typing import Any

from perfpipe.runrecord import RunRecord
from perfpipe.store import Store

#: Views whose rows are returned.
_VIEWS = ("serving_rates", "serving_latencies", "serving_overhead")


def figures_of(store: Store, record: RunRecord) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the views of loads, by view; empty without a load."""
    from perfpipe.analysis.session import Session

    if not record.reports:
        return {}
    found = {}
    with Session.open(store, record.reports, use=_VIEWS) as session:
        for view in _VIEWS:
            rows = session.execute(f"FROM {view}")
            names = [column[0] for column in rows.description]
            found[view] = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
    return found if any(found.values()) else {}
