"""The figures of a run's loads, for its JSON output."""

from __future__ import annotations

from typing import Any

from perfpipe.runrecord import RunRecord
from perfpipe.store import Store

#: Views whose rows are returned.
_VIEWS = (
    "serving_rates",
    "serving_latencies",
    "serving_overhead",
    "serving_classes",
    "ttft_around",
)


def figures_of(store: Store, record: RunRecord) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the views of loads, by view; empty without a load."""
    from perfpipe.analysis.rows import records_of
    from perfpipe.analysis.session import Session

    if not record.reports:
        return {}
    with Session.open(store, record.reports, use=_VIEWS) as session:
        found = {view: records_of(session.con, f"FROM {view}") for view in _VIEWS}
    return found if any(found.values()) else {}
