"""The MCP tool `overview`: verdict, findings, provenance, gaps."""

from __future__ import annotations

from typing import Any

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.report import facts, findings, opening, tried, verdicts
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.session import Session
from perfpipe.analysis.words import assumption
from perfpipe.database import in_list
from perfpipe.pipelines.agents.desk import Desk, Row, rows
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.wording import captured, plain, sentence, value
from perfpipe.viewmodel import Finding

#: Findings of an overview, runs and reports of a list, gaps, levers of a trial.
FINDINGS, _LISTED, _GAPS, _TRIED = 3, 200, 10, 10

#: Views of a verdict with its findings.
VIEWS = (
    "kernel_classes",
    *findings.VIEWS,
    *verdicts.VIEWS,
    *facts.VIEWS,
    *opening.VIEWS,
)

#: Warning of an answer without findings.
NOT_ALL_WELL = "this does not mean that there is no problem"


def listed(desk: Desk) -> Answer:
    """Return the runs and reports of a store, newest first."""
    with desk.fresh(None) as session:
        found = rows(
            session,
            """
            SELECT run_id AS target, 'run' AS what, workload AS name, status,
                started_at, len(reports) AS reports
            FROM runs
            UNION ALL
            SELECT report_id, kind || ' report', source_name, NULL, captured_at, 1
            FROM reports WHERE run_id IS NULL
            ORDER BY what DESC, started_at DESC NULLS LAST, target
            """,
        )
    if not found:
        return Answer(
            status=Status.ABSTAINED,
            reason="the store is empty: nothing has been profiled or ingested yet",
            next=Next("next_capture", {"question": "timeline"}),
        )
    told = [{**row, "name": captured(row["name"])} for row in found[:_LISTED]]
    data = {"targets": told}
    first = Next("overview", {"target": found[0]["target"]})
    return Answer(data, rows="targets", total=len(found), next=first)


def overview(desk: Desk, target: str | None, most: int = FINDINGS) -> Answer:
    """Return verdict, first findings, provenance and gaps of a target, or the list of targets."""
    if target is None:
        return listed(desk)
    chosen = desk.select(target)
    scope = desk.scope(chosen, VIEWS)
    session = desk.session(chosen)
    told = findings.findings_of(scope)
    found = rows(session, "FROM findings ORDER BY rank")
    statements = tuple(verdicts.statements_of(scope))
    abstained = not statements and not found
    verdict = statements[0] if statements else facts.no_verdict(scope)
    first, _ = opening.opening_of(scope, told, verdict)
    data: dict[str, Any] = {
        "target": target,
        "title": captured(facts.title_of(scope.con, scope.reports, scope.run)),
        "notice": sentence(verdicts.notice_of(scope)),
        "verdict": None if abstained else sentence(first.verdict.text),
        "bounds": [] if abstained else bounds(session),
        "findings": [finding(*pair) for pair in zip(found[:most], told, strict=False)],
        "tried": _tried(scope),
        "nothing_found": None if found else f"{facts.nothing_of(scope)}; {NOT_ALL_WELL}",
        "provenance": _provenance(scope, session),
        "gaps": [
            {"what": plain(gap.name), "why": sentence(gap.text)}
            for gap in facts.gaps_of(scope.con, scope.reports)[:_GAPS]
        ],
    }
    return Answer(
        data,
        Status.ABSTAINED if abstained else Status.ANSWERED,
        f"{verdict.text.rstrip('.')}; {NOT_ALL_WELL}" if abstained else "",
        tuple(evidence(session, row) for row in found[:most]),
        _warnings(scope),
        rows="findings",
        total=len(found),
        next=_next(scope, target, found, abstained),
    )


def _tried(scope: Scope) -> dict[str, Any] | None:
    """Return what the latest trial of the program measured; None without one."""
    trial = tried.latest(scope)
    if trial is None:
        return None
    levers = [
        {"lever": captured(lever), "says": sentence(outcome.sentence()), "helps": outcome.helps}
        for lever, outcome in tried.outcomes_of(scope, trial)
    ]
    return {"trial": trial, "levers": levers[:_TRIED]}


def bounds(session: Session) -> list[Row]:
    """Return the bound of each GPU's time, and of most of the profiled kernel time."""
    timelines = rows(
        session,
        """
        SELECT 'timeline' AS of, report_id, device, bound, share_pct, confidence
        FROM _timeline_bounds
        ORDER BY share_pct DESC, report_id, device LIMIT 4
        """,
    )
    kernels = rows(
        session,
        """
        SELECT 'kernels' AS of, bound, subclass, share_of, sum(share_pct ORDER BY rank) AS share_pct
        FROM kernel_classes GROUP BY ALL ORDER BY share_pct DESC, bound, subclass LIMIT 3
        """,
    )
    return [{key: _own(found) for key, found in row.items()} for row in (*timelines, *kernels)]


def finding(row: Row, told: Finding) -> dict[str, Any]:
    """Return a finding in fields, and in words."""
    technique = techniques().get(row["technique"] or "")
    return {
        "finding": row["rank"],
        "about": row["subject"],
        "claim": row["claim"],
        "bound": row["bound"],
        "subclass": row["subclass"],
        "cause": row["cause"],
        "kernel": captured(row["kernel_name"]) if row["subject"] == "kernel" else None,
        "device": row["device"],
        "configuration": captured(row["label"]),
        "share": share(row),
        "says": sentence(told.claim),
        "because": sentence(told.evidence),
        "gain": gain(row["bound_pct"], row["floor"], findings.whole(row["share_of"])),
        "tried": sentence(told.tried or None),
        "confidence": row["confidence"],
        "try": technique.technique if technique else None,
    }


def share(row: Row) -> dict[str, Any]:
    """Return the share of a finding, with its whole."""
    return {"pct": value(row["share_pct"]), "of": findings.whole(row["share_of"])}


def gain(at_most_pct: float | None, floor: str | None, of: str) -> dict[str, Any]:
    """Return a bound on a gain, always with its assumption."""
    if at_most_pct is None or floor is None:
        return {"at_most_pct": None, "why": "no bound can be derived"}
    assumes = assumption(floor)
    return {"at_most_pct": value(at_most_pct), "of": of, "assumes": assumes, "promise": False}


def evidence(session: Session, row: Row) -> Evidence:
    """Return the share of a finding as evidence: a share of launches or of steps."""
    count = row["launches"]
    if row["subject"] == "timeline" and row["share_of"] == "step":
        counted = rows(
            session,
            "SELECT sum(steps) AS steps FROM analysis_windows "
            f"WHERE device = {row['device']} AND report_id IN {in_list(row['reports'])}",
        )
        count = None if counted[0]["steps"] is None else int(counted[0]["steps"])
    about = "kernel_name" if row["subject"] == "kernel" else "device"
    key = {"rank": row["rank"], about: value(row[about]), "report_id": row["reports"][:4]}
    unit = f"% of {findings.whole(row['share_of'])}"
    return Evidence("findings", key, "share_pct", value(row["share_pct"]), unit, count)


def _own(found: Any) -> Any:
    """Return a value whose texts are perfpipe's words or ids."""
    return found if isinstance(found, str) else value(found)


def _provenance(scope: Scope, session: Session) -> list[Row]:
    found = rows(
        session,
        f"""
        SELECT report_id, kind, tool_version, captured_at, gpu, source_name, recorded
        FROM reports WHERE report_id IN {in_list(scope.reports)} ORDER BY report_id LIMIT 8
        """,
    )
    ours = ("report_id", "kind")
    return [
        {key: one if key in ours else value(one) for key, one in row.items() if one is not None}
        for row in found
    ]


def _warnings(scope: Scope) -> tuple[str, ...]:
    found = facts.warnings_of(scope)
    return tuple(str(sentence(warning.text)) for warning in found)


def _next(scope: Scope, target: str, found: list[Row], abstained: bool) -> Next | None:
    if abstained or not found:
        settled = "kernels" if scope.timeline else "timeline"
        return Next("next_capture", {"question": settled, "target": target})
    if found[0]["subject"] == "timeline":
        return Next("timeline", {"target": target})
    return Next("explain", {"target": target, "finding": found[0]["rank"]})
