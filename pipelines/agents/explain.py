"""Explains a finding or the bound of a kernel: class, evidence, bounds, hot lines, advice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.questions import query_of_command
from perfpipe.analysis.report import findings, tried
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.session import Session
from perfpipe.analysis.words import assumption
from perfpipe.database import in_list, quote, same
from perfpipe.errors import InputError
from perfpipe.pipelines.agents.cutting import first, lean
from perfpipe.pipelines.agents.desk import Desk, Row, rows
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.following import after
from perfpipe.pipelines.agents.grounds import grounds_of
from perfpipe.pipelines.agents.lines import lines_of_finding
from perfpipe.pipelines.agents.marking import marking_of
from perfpipe.pipelines.agents.overview import (
    VIEWS,
    alike,
    evidence,
    finding,
    gain,
    notices_of,
    on_gpus,
    share,
)
from perfpipe.pipelines.agents.wording import captured, names, plain, value, values

#: Techniques and hot lines of an answer; `full` also has the metrics or rows behind it.
_TOLD, _HOT = {"brief": 3, "full": 20}, {"brief": 3, "full": 10}

#: More on a launch: the name of each part, its query, and the columns that it has already.
_METRICS = {
    "sol": "kernel_sol",
    "stalls": "(FROM kernel_stalls WHERE is_stall ORDER BY rank)",
    "occupancy": "kernel_occupancy",
    "memory": "kernel_memory",
}

#: Rows behind a finding, and of each part of a launch's metrics.
_ROWS = 10


def explain(
    desk: Desk, target: str | None, number: int | None, kernel: str | None, detail: str
) -> Answer:
    """Explain a finding (by its number in an overview) or a kernel."""
    if (number is None) == (kernel is None):
        raise InputError("pass either the number of a finding or the name of a kernel")
    chosen = desk.select(target)
    scope = desk.scope(chosen, VIEWS)
    session = desk.session(chosen)
    of = target or desk.name_of(chosen)
    if kernel is not None:
        answer = _of_name(session, of, kernel, detail)
    else:
        found = rows(session, "FROM findings ORDER BY rank")
        row = next((row for row in found if row["rank"] == number), None)
        if row is None:
            raise InputError(f"no finding {number}: there are {len(found)} findings")
        explained = _of_kernel_class if row["subject"] == "kernel" else _of_timeline
        answer = explained(scope, session, of, row, found, detail)
    return replace(answer, warnings=notices_of(scope, session))


def _of_kernel_class(
    scope: Scope, session: Session, of: str, row: Row, _: Sequence[Row], detail: str
) -> Answer:
    classed = rows(
        session,
        f"FROM kernel_classes WHERE kernel_name = {quote(row['kernel_name'])} "
        f"AND grid = {quote(row['grid'])} AND block = {quote(row['block'])} "
        f"AND {_alike(row)} ORDER BY rank",
    )
    told = findings.findings_of(scope)[row["rank"] - 1]
    return _of_kernel(session, of, classed[0], detail, query_of_command(told.command))


def _of_timeline(
    scope: Scope, session: Session, of: str, row: Row, found: Sequence[Row], detail: str
) -> Answer:
    told = findings.findings_of(scope)[row["rank"] - 1]
    group = next(own for own in alike(found) if row in own)
    data = {
        **finding(session, row, told),
        "on": on_gpus(session, group) if len(group) > 1 else None,
        **grounds_of(session, row),
        **lines_of_finding(session, row),
        "techniques": _timeline_techniques(session, row, detail),
    }
    # What is tried first is the first technique.
    del data["try"], data["tried"]
    sql = query_of_command(told.command)
    if detail == "full":
        data |= {"rows": _rows_of(session, sql)}
    following = after(session, scope, of, row, found) or Next("query", {"target": of, "sql": sql})
    return Answer(lean(data), evidence=(evidence(session, row),), rows="techniques", next=following)


def _rows_of(session: Session, sql: str) -> list[Any]:
    """Return the rows that show more on a finding."""
    found = rows(session, sql)
    return first([values(row) for row in found[:_ROWS]], _ROWS, len(found))


def _timeline_techniques(session: Session, row: Row, detail: str) -> list[dict[str, Any]]:
    """Return the techniques of a finding, first the one of which the overview speaks."""
    bounds = in_list([one for one in (row["bound"], row["claim"], row["subclass"]) if one])
    session.use("_plain_findings", "_own_advice")
    found = rows(
        session,
        f"""
        SELECT technique, gain_pct, floor
        FROM (FROM _plain_findings UNION ALL BY NAME FROM _own_advice)
        WHERE report_id = {quote(row["reports"][0])} AND {same("device", row["device"])}
            AND bound IN {bounds} AND technique IS DISTINCT FROM {quote(row["technique"] or "")}
        ORDER BY rank, technique
        """,
    )
    if row["technique"]:
        found.insert(0, {**row, "gain_pct": row["bound_pct"]})
    whole = findings.whole(row["share_of"])
    told = [_technique(one["technique"], one["gain_pct"], one["floor"], whole) for one in found]
    return first(_with_trials(session, row, told), _TOLD[detail])


def _with_trials(session: Session, row: Row, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return techniques with what a trial of each measured."""
    known = tried.tried_of(session.con, row["reports"])
    for technique in told:
        outcome = tried.outcome(known, row["reports"], technique["key"])
        says = outcome and outcome.sentence()
        technique["tried"] = marking_of(session).sentence(says)
    return told


def _technique(key: str, gain_pct: float | None, floor: str | None, of: str) -> dict[str, Any]:
    item = techniques()[key]
    return {
        "key": key,
        "technique": item.technique,
        "how": item.detail,
        "check_first": item.check_first,
        "gain": gain(gain_pct, floor, of),
        "difficulty": item.difficulty,
        "link": item.link,
    }


def _of_name(session: Session, of: str, kernel: str, detail: str) -> Answer:
    session.use("kernel_names", "kernel_classes")
    known = rows(session, "FROM kernel_names ORDER BY name, demangled, report_id")
    meant = [
        row
        for row in known
        if any(names(kernel, row[key]) for key in ("name", "demangled", "short_name"))
    ]
    if not meant:
        raise InputError(f"no kernel named {plain(kernel, 60)}")
    whole = {row["demangled"] for row in meant} | {row["name"] for row in meant}
    found = rows(
        session, "FROM kernel_classes WHERE bound != 'unknown' ORDER BY time_ns DESC, rank"
    )
    for row in found:
        if row["kernel_name"] in whole or row["kernel_demangled"] in whole:
            sql = f"FROM kernel_findings WHERE kernel_name = {quote(row['kernel_name'])}"
            return _of_kernel(session, of, row, detail, sql)
    return Answer(
        {"kernel": captured(meant[0]["name"]), "category": meant[0]["category"]},
        Status.ABSTAINED,
        "ncu did not profile this kernel, or did not collect its speed-of-light metrics: its bound "
        "is unknown; that does not mean that it is fast",
        next=Next("next_capture", {"target": of, "question": "kernels"}),
    )


def _of_kernel(session: Session, of: str, row: Row, detail: str, sql: str) -> Answer:
    launch = rows(
        session,
        f"""
        SELECT report_id, launch_id, duration_ns, b.* EXCLUDE (report_id, launch_id)
        FROM kernel_bottleneck AS b JOIN ncu_launches AS l USING (report_id, launch_id)
        WHERE l.kernel_name = {quote(row["kernel_name"])}
            AND concat_ws(',', grid_x, grid_y, grid_z) = {quote(row["grid"])}
            AND concat_ws(',', block_x, block_y, block_z) = {quote(row["block"])}
            AND {_alike(row)}
        ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id LIMIT 1
        """,
    )[0]
    at = f"report_id = {quote(launch['report_id'])} AND launch_id = {launch['launch_id']}"
    advice = rows(session, f"FROM kernel_findings WHERE {at} ORDER BY rank, technique")
    hot = rows(
        session,
        "SELECT *, count(*) OVER () AS total FROM kernel_hotspots "
        f"WHERE {at} ORDER BY kind, rank LIMIT {_HOT[detail]}",
    )
    advised = [
        {
            **_technique(one["technique"], one["gain_pct"], one["floor"], "its time"),
            "nvidia_estimate_pct": value(one["nvidia_pct"]),
        }
        for one in advice
    ]
    data: dict[str, Any] = {
        "kernel": captured(row["kernel_name"]),
        "grid": row["grid"],
        "block": row["block"],
        "bound": launch["bound"],
        "subclass": launch["subclass"],
        "cause": launch["cause"],
        "confidence": row["confidence"],
        "explanation": marking_of(session).sentence(row["explanation"]),
        "nvidia": {
            "verdict": value(launch["ncu_verdict"]),
            "agrees": launch["agrees_with_ncu"],
        },
        "share": share(row),
        "sol_pct": {
            "compute": value(row["compute_sol_pct"]),
            "memory": value(row["memory_sol_pct"]),
        },
        "near_limit": row["near_limit"] or None,
        "headroom": {
            "pct": value(row["headroom_pct"]),
            "of": findings.whole(row["share_of"]),
            "assumes": assumption("work"),
        },
        "techniques": first(_with_trials(session, row, advised), _TOLD[detail]),
        "hot": first([_hot(one) for one in hot], _HOT[detail], hot[0]["total"] if hot else 0),
        "hot_missing": None if hot else "no source counters were collected",
    }
    if detail == "full":
        data |= _metrics(session, at)
    key = {"report_id": launch["report_id"], "launch_id": launch["launch_id"]}
    proofs = tuple(
        Evidence("kernel_bottleneck", key, one["metric"], value(one["value"]), one["unit"], 1)
        for one in json.loads(launch["evidence"] or "[]")
        if isinstance(one.get("value"), (int, float))
    )
    following = (
        Next("query", {"target": of, "sql": sql})
        if hot
        else Next("next_capture", {"target": of, "question": "source"})
    )
    return Answer(lean(data), evidence=proofs, rows="techniques", next=following)


def _metrics(session: Session, at: str) -> dict[str, Any]:
    """Return the metrics of a launch: of its units, stalls, occupancy and memory."""
    known = ("report_id", "launch_id", "kernel_name", "kernel_demangled", "nvtx_path", "grid")
    told: dict[str, Any] = {}
    for part, view in _METRICS.items():
        found = rows(session, f"FROM {view} WHERE {at}")
        lines = [
            {key: _plain(one) for key, one in row.items() if key not in (*known, "block")}
            for row in found[:_ROWS]
        ]
        told[part] = lines[0] if len(found) == 1 else first(lines, _ROWS, len(found))
    return told


def _plain(found: Any) -> Any:
    """Return a value of a metric, whose texts are perfpipe's words."""
    return plain(found) if isinstance(found, str) else value(found)


def _alike(row: Row) -> str:
    """Return the condition for launches of the same class."""
    parts = ("bound", "subclass", "cause")
    known = {part: "NULL" if row[part] is None else quote(row[part]) for part in parts}
    return " AND ".join(f"{part} IS NOT DISTINCT FROM {one}" for part, one in known.items())


def _hot(row: Row) -> dict[str, Any]:
    where = {"file": captured((row["file"] or "").rpartition("/")[2]), "line": row["line"]}
    return {
        "kind": row["kind"],
        **(where if row["file"] else {}),
        "text": captured(row["sass"] or row["text"]),
        "stall_pct": value(row["stall_pct"]),
        "top_reason": row["top_reason"],
    }
