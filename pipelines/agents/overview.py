"""The MCP tool `overview`: verdict, findings, provenance, gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.report import facts, findings, nothing, opening, tracing, tried, verdicts
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.session import Session
from perfpipe.analysis.words import assumption
from perfpipe.database import in_list
from perfpipe.pipelines.agents.cutting import first, lean
from perfpipe.pipelines.agents.desk import Desk, Row, rows
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.lacking import gaps_of
from perfpipe.pipelines.agents.marking import Marking, marking_of
from perfpipe.pipelines.agents.wording import captured, value, values
from perfpipe.viewmodel import Finding

#: Findings of an overview, runs and reports of a list, levers of a trial.
FINDINGS, _LISTED, _TRIED = 3, 200, 10

#: Classes of kernels, GPUs of a finding, and reports whose origin an answer gives.
_KERNELS, _GPUS, _REPORTS = 3, 8, 8

#: Views of a verdict with its findings.
VIEWS = (
    "kernel_classes",
    *findings.VIEWS,
    *verdicts.VIEWS,
    *facts.VIEWS,
    *nothing.VIEWS,
    *opening.VIEWS,
)

#: Which fields have the time of the profiler in them.
_TRACED = (
    "findings and verdict refer to the untraced step; `bounds`, `budgets`, `idle_in`, lines, calls "
    "and all times in ns to the traced one"
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
    data = {"targets": first(lean(told), _LISTED, len(found))}
    following = Next("overview", {"target": found[0]["target"]})
    return Answer(data, rows="targets", next=following)


def overview(desk: Desk, target: str | None, most: int = FINDINGS) -> Answer:
    """Return verdict, first findings, provenance and gaps of a target, or the list of targets."""
    if target is None:
        return listed(desk)
    chosen = desk.select(target)
    scope = desk.scope(chosen, VIEWS)
    session = desk.session(chosen)
    marks = marking_of(session)
    told = findings.findings_of(scope)
    found = rows(session, "FROM findings ORDER BY rank")
    groups = alike(found)
    statements = tuple(verdicts.statements_of(scope))
    abstained = not statements and not found
    verdict = statements[0] if statements else nothing.no_verdict(scope)
    first_screen, _ = opening.opening_of(scope, told, verdict)
    bound = bounds(session)
    data: dict[str, Any] = {
        "target": target,
        "title": marks.sentence(facts.title_of(scope.con, scope.reports, scope.run)),
        "verdict": None if abstained else marks.sentence(first_screen.verdict.text),
        "bounds": [] if abstained else bound,
        "findings": first([_group(session, own, told) for own in groups[:most]], most, len(groups)),
        "tried": _tried(scope, marks),
        "nothing_found": None if found else _not_all(nothing.nothing_of(scope), marks),
        "provenance": _provenance(scope, session),
        "gaps": gaps_of(session, scope.reports, _claims(bound, groups[:most])),
    }
    return Answer(
        lean(data) | {"findings": lean(data["findings"])},
        Status.ABSTAINED if abstained else Status.ANSWERED,
        _not_all(verdict.text, marks) if abstained else "",
        tuple(evidence(session, own[0]) for own in groups[:most]),
        warnings_of(scope, session),
        rows="findings",
        next=_next(scope, target, found, abstained),
    )


def _not_all(text: str, marks: Marking) -> str:
    return f"{marks.sentence(text.rstrip('.'))}; {NOT_ALL_WELL}"


def alike(found: Sequence[Row]) -> list[list[Row]]:
    """Return findings in groups that differ in the GPU only, each in the place of its first."""
    groups: dict[Any, list[Row]] = {}
    for row in found:
        same = (row["claim"], row["bound"], row["subclass"], row["technique"], row["part"])
        about = same if row["subject"] == "timeline" else row["rank"]
        groups.setdefault(about, []).append(row)
    return [*groups.values()]


def _group(session: Session, rows_: Sequence[Row], told: Sequence[Finding]) -> dict[str, Any]:
    """Return a finding that GPUs share, with the numbers of each GPU if there are several."""
    first_row = rows_[0]
    own = finding(session, first_row, told[first_row["rank"] - 1])
    return own if len(rows_) == 1 else {**own, "on": on_gpus(session, rows_)}


def on_gpus(session: Session, found: Sequence[Row]) -> list[Any]:
    """Return the GPUs of findings that are alike, with the share of each."""
    ranks = {
        (row["report_id"], row["device"]): row["rank"]
        for row in rows(session, "SELECT report_id, device, rank FROM job_ranks")
    }
    told = [
        {
            "finding": row["rank"],
            "report_id": row["reports"][0],
            "rank": ranks.get((row["reports"][0], row["device"])),
            "device": row["device"],
            "share_pct": value(row["share_pct"]),
        }
        for row in found
    ]
    return first(told, _GPUS)


def _claims(bound: Sequence[Row], groups: Sequence[Sequence[Row]]) -> set[str]:
    """Return what an overview speaks of."""
    of_timelines = {str(row["bound"]) for row in bound if row["of"] == "timeline"}
    return of_timelines.union(
        *({row[key] for key in ("claim", "bound", "technique") if row[key]} for (row, *_) in groups)
    )


def _tried(scope: Scope, marks: Marking) -> dict[str, Any] | None:
    """Return what the latest trial of the program measured; None without one."""
    trial = tried.latest(scope)
    if trial is None:
        return None
    levers = [
        {"lever": captured(lever), "says": marks.sentence(own.sentence()), "helps": own.helps}
        for lever, own in tried.outcomes_of(scope, trial)
    ]
    return {"trial": trial, "levers": first(levers, _TRIED)}


def bounds(session: Session) -> list[Row]:
    """Return what bounds the GPUs' time, and most of the profiled kernel time."""
    timelines = rows(
        session,
        """
        SELECT 'timeline' AS of, bound, max(share_pct) AS share_pct,
            if(count(*) > 1, min(share_pct), NULL) AS least_pct,
            if(count(*) > 1, count(*), NULL) AS gpus,
            arg_max(confidence, share_pct) AS confidence
        FROM _timeline_bounds
        GROUP BY bound ORDER BY count(*) DESC, share_pct DESC, bound
        """,
    )
    kernels = rows(
        session,
        """
        SELECT 'kernels' AS of, bound, subclass, share_of, sum(share_pct ORDER BY rank) AS share_pct
        FROM kernel_classes GROUP BY ALL HAVING coalesce(sum(share_pct), 1) > 0
        ORDER BY share_pct DESC, bound, subclass
        """,
    )
    found = [*timelines, *kernels[:_KERNELS]]
    ours = ("of", "bound", "subclass", "share_of", "confidence")
    told = [values(row, ours) for row in found]
    return first(told, len(told), len(timelines) + len(kernels))


def finding(session: Session, row: Row, told: Finding) -> dict[str, Any]:
    """Return a finding in fields, and in words."""
    technique = techniques().get(row["technique"] or "")
    marks = marking_of(session)
    return {
        "finding": row["rank"],
        "about": row["subject"],
        "claim": row["claim"],
        "bound": row["bound"],
        "subclass": row["subclass"],
        "cause": row["cause"],
        "kernel": captured(row["kernel_name"]) if row["subject"] == "kernel" else None,
        "device": row["device"],
        "share": share(row),
        "says": marks.sentence(told.claim),
        "because": marks.sentence(told.evidence),
        "gain": gain(row["bound_pct"], row["floor"], findings.whole(row["share_of"])),
        "tried": marks.sentence(told.tried or None),
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
    return {"at_most_pct": value(at_most_pct), "of": of, "assumes": assumes}


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
    key = {"rank": row["rank"], about: value(row[about])}
    unit = f"% of {findings.whole(row['share_of'])}"
    return Evidence("findings", key, "share_pct", value(row["share_pct"]), unit, count)


def _provenance(scope: Scope, session: Session) -> list[Any]:
    found = rows(
        session,
        f"""
        SELECT report_id, kind, tool_version, captured_at, gpu, source_name,
            if(recorded, true, NULL) AS recorded
        FROM reports WHERE report_id IN {in_list(scope.reports)} ORDER BY report_id
        """,
    )
    ours = ("report_id", "kind", "recorded")
    return first([values(row, ours) for row in found[:_REPORTS]], _REPORTS, len(found))


def warnings_of(scope: Scope, session: Session) -> tuple[str, ...]:
    """Return what to know before anything else is read, then the warnings of the reports."""
    found = [warning.text for warning in facts.warnings_of(scope)]
    own = (str(marking_of(session).sentence(text)) for text in found)
    return (*notices_of(scope, session), *own)


def notices_of(scope: Scope, session: Session) -> tuple[str, ...]:
    """Return what makes every answer on a selection doubtful, such as profiles of other kernels."""
    notice = verdicts.notice_of(scope)
    if notice is None:
        return traced_of(scope, session)
    doubt = marking_of(session).sentence(notice.removeprefix("Warning: "))
    return (str(doubt), *traced_of(scope, session))


def traced_of(scope: Scope, session: Session) -> tuple[str, ...]:
    """Return by how much the profiler lengthened steps, and which fields that concerns."""
    text = tracing.lengthened_of(scope)
    return () if text is None else (f"{marking_of(session).sentence(text)}; {_TRACED}",)


def _next(scope: Scope, target: str, found: list[Row], abstained: bool) -> Next | None:
    if abstained or not found:
        settled = "kernels" if scope.timeline else "timeline"
        return Next("next_capture", {"question": settled, "target": target})
    if found[0]["subject"] == "timeline":
        return Next("timeline", {"target": target})
    return Next("explain", {"target": target, "finding": found[0]["rank"]})
