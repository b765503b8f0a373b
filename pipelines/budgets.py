"""Time budgets of the analyzed windows, of a part of the capture, or within NVTX ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfpipe.analysis.rows import records_of
from perfpipe.analysis.session import Session
from perfpipe.analysis.windows import VIEWS_USED, choose_ranges, choose_time, range_names
from perfpipe.errors import InputError, did_you_mean
from perfpipe.store import Store
from perfpipe.windows import STEADY


@dataclass(frozen=True)
class Budgets:
    """Rows of window_budget with the source's name; `ranges` counts the ranges of that name."""

    rows: list[dict[str, Any]]
    ranges: int | None = None


def budgets_of(
    store: Store,
    reports: Sequence[str],
    *,
    start: int | None = None,
    end: int | None = None,
    nvtx: str | None = None,
    limit: int = 20,
    step_range: str | int | None = None,
    window: str = STEADY,
) -> Budgets:
    """Return the budgets of reports: between two times (ns), in ranges, or of the usual windows.

    Raises InputError if no range has the name, or if no step matches the window.
    """
    if start is not None and end is not None and start >= end:
        raise InputError("--from must be before --to")
    ranges = None
    with Session.open(
        store, reports, use=VIEWS_USED, step_range=step_range, window=window
    ) as session:
        con = session.con
        view = "window_budget"
        if start is not None or end is not None:
            choose_time(con, start, end)
        elif nvtx is None:
            session.check_window()
            view = "_analysed_budget"
        else:
            known = range_names(con)
            plain = nvtx if nvtx in known else nvtx.partition(":")[2]
            if plain not in known:
                raise InputError(f"no NVTX range '{nvtx}'{did_you_mean(nvtx, known)}")
            choose_ranges(con, nvtx, limit)
            ranges = known[plain]
        session.use(view, "reports")
        found = records_of(
            con,
            f"SELECT source_name, b.* FROM {view} AS b JOIN reports USING (report_id) "
            "ORDER BY window_index, time_ns DESC, category",
        )
    return Budgets(found, ranges)
