"""Where a GPU's time goes: the exact budget, causes of idle time, overlap, and ranks."""

from __future__ import annotations

from typing import Any

from perfpipe.analysis.report import tracing
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.pipelines.agents.cutting import first, lean
from perfpipe.pipelines.agents.desk import Desk, Row, rows
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.lines import idle_lines
from perfpipe.pipelines.agents.marking import marking_of
from perfpipe.pipelines.agents.overview import traced_of
from perfpipe.pipelines.agents.wording import captured, unmarked, value
from perfpipe.pipelines.budgets import budgets_of
from perfpipe.windows import STEADY

#: Budgets in an answer, and causes of idle time of each GPU.
_BUDGETS, _CAUSES = 12, 5

_NS = 1_000_000

#: Latest time of a capture, ms.
_LONGEST_MS = 1e12


def timeline(
    desk: Desk,
    target: str | None,
    window: str = STEADY,
    start_ms: float | None = None,
    end_ms: float | None = None,
    nvtx: str | None = None,
) -> Answer:
    """Return the time budget of a window, and the causes and code of idle time in it."""
    chosen = desk.select(target)
    of = target or desk.name_of(chosen)
    part = start_ms is not None or end_ms is not None or nvtx is not None
    try:
        found = budgets_of(
            desk.store,
            chosen.reports,
            start=_ns("start_ms", start_ms),
            end=_ns("end_ms", end_ms),
            nvtx=None if nvtx is None else unmarked(nvtx),
            limit=_BUDGETS,
            window=window,
        )
    except InputError as error:
        if nvtx is None:
            raise
        # It may suggest a range of the capture.
        reason = marking_of(desk.session(chosen)).sentence(error)
        return Answer(
            status=Status.FAILED, reason=str(reason), next=Next("overview", {"target": of})
        )
    if not found.rows:
        return Answer(
            status=Status.ABSTAINED,
            reason="where the time goes is unknown, because no selected report is a timeline with "
            "GPU work",
            next=Next("next_capture", {"target": of, "question": "timeline"}),
        )
    several = len(chosen.reports) > 1
    told = _budgets(found.rows, several)
    total = max(len(told), found.ranges or 0)
    data: dict[str, Any] = {"budgets": first(told[:_BUDGETS], _BUDGETS, total)}
    if not part:
        data |= _causes(desk, chosen, window, several)
    proofs = tuple(
        Evidence(
            "window_budget",
            {key: one[key] for key in ("report_id", "device", "window") if key in one},
            one["categories"][0]["category"],
            one["categories"][0]["time_ns"],
            "ns",
            None,
        )
        for one in told
    )
    scope = desk.scope(chosen, tracing.VIEWS)
    return Answer(
        lean(data),
        evidence=proofs,
        warnings=traced_of(scope, desk.session(chosen)),
        rows="budgets",
        next=Next("explain", {"target": of, "finding": 1}) if window == STEADY else None,
    )


def _ns(name: str, ms: float | None) -> int | None:
    """Return a time in ns; InputError for one that no capture has."""
    if ms is None:
        return None
    if not abs(ms) <= _LONGEST_MS:
        raise InputError(f"{name} must be a time of the capture, ms, not {ms:g}")
    return round(ms * _NS)


def _budgets(found: list[Row], several: bool) -> list[dict[str, Any]]:
    told: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in found:
        key = (row["report_id"], row["device"], row["window_index"])
        budget = told.setdefault(
            key,
            {
                **_whose(row, several),
                "device": row["device"],
                "window": captured(row["window_name"]),
                "start_ns": row["window_start_ns"],
                "end_ns": row["window_end_ns"],
                "categories": [],
            },
        )
        if row["time_ns"]:
            share = value(row["share_pct"])
            part = {"category": row["category"], "time_ns": row["time_ns"], "share_pct": share}
            budget["categories"].append(part)
    return [budget for budget in told.values() if budget["categories"]]


def _whose(row: Row, several: bool) -> dict[str, Any]:
    """Return the report of a row, if there are several."""
    return {"report_id": row["report_id"]} if several else {}


#: Data next to budgets: the query of each, and the columns whose texts perfpipe wrote.
_BESIDE = {
    "steps": (
        "SELECT report_id, device, kind, steps, step_ns, p95_ns, source, why FROM analysis_windows "
        "ORDER BY report_id, device",
        ("report_id", "kind", "source", "why"),
    ),
    "idle_in": (
        "SELECT report_id, device, cause, kind, name, nvtx_range, count, time_ns, share_pct, "
        f"count(*) OVER () AS total FROM idle_causes QUALIFY rank <= {_CAUSES} "
        "ORDER BY report_id, device, rank",
        ("report_id", "cause", "kind"),
    ),
    "overlap": (
        "SELECT report_id, device, communication_ns, overlapped_ns, exposed_ns, overlap_pct "
        "FROM comm_overlap WHERE communication_ns > 0 ORDER BY report_id, device",
        ("report_id",),
    ),
    "ranks": (
        "SELECT rank, report_id, device, collectives, waiting_ns, waiting_pct, last_pct, straggler "
        "FROM rank_skew ORDER BY rank, report_id",
        ("report_id", "straggler"),
    ),
}

#: Most rows of each, and the column with the number of rows of a query that leaves some out.
_MOST, _TOTAL = 16, "total"


def _causes(desk: Desk, chosen: Any, window: str, several: bool) -> dict[str, Any]:
    session = desk.session(chosen, window)
    beside = {name: _beside(session, several, *of) for name, of in _BESIDE.items()}
    return beside | idle_lines(session, several)


def _beside(session: Session, several: bool, sql: str, ours: tuple[str, ...]) -> list[Any]:
    found = rows(session, sql)
    told = [
        {
            key: one if key in ours else value(one)
            for key, one in row.items()
            if key != _TOTAL and (several or key != "report_id")
        }
        for row in found[:_MOST]
    ]
    return first(told, _MOST, found[0].get(_TOTAL, len(found)) if found else 0)
