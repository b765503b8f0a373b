"""What a finding about a timeline rests on: copies with their rates, and calls of the host."""

from __future__ import annotations

from typing import Any

from perfpipe.analysis.session import Session
from perfpipe.database import in_list, quote, same
from perfpipe.pipelines.agents.cutting import first
from perfpipe.pipelines.agents.desk import Row, rows
from perfpipe.pipelines.agents.wording import captured, values

#: Kinds of copies, places in the program, and calls of an answer.
_COPIES, _PLACES, _CALLS = 5, 5, 3

#: Claims about what the host does in CUDA calls, and the calls that each is about.
_IN_CALLS = {
    "launch_overhead": "name IN (SELECT api_name FROM launches WHERE kind = 'kernel')",
    "sync": "is_synchronising(name)",
    "readback": "(is_synchronising(name) OR contains(name, 'Memcpy'))",
    "allocation": "is_allocating(name)",
}

#: Claims about code for the GPU that the host loads or builds.
_LOADING = ("building", "loading")


def grounds_of(session: Session, row: Row) -> dict[str, Any]:
    """Return the copies or the CUDA calls that a finding is about; nothing for other findings."""
    if row["claim"] == "transfer":
        return {
            "copies": _copies(session, row),
            "copied_by": _lines(session, row),
            "copied_in": _ranges(session, row),
        }
    if row["claim"] in _LOADING or row["claim"] in _IN_CALLS:
        return {"calls": _calls(session, row), **_beside_calls(session, row)}
    return {}


def _calls(session: Session, row: Row) -> list[Any]:
    """Return the CUDA calls of the analyzed windows that a claim is about, the longest first."""
    about = "is_building(name)" if row["claim"] in _LOADING else _IN_CALLS[row["claim"]]
    found = rows(
        session,
        f"""
        WITH windows AS (
            SELECT sum(time_ns) AS ns, sum(steps) AS steps FROM analysis_windows WHERE {_of(row)}
        )
        SELECT name AS call, count(*) AS count, count(*) / any_value(w.steps) AS per_step,
            sum(end_ns - start_ns)::BIGINT AS time_ns,
            100 * sum(end_ns - start_ns) / any_value(w.ns) AS window_pct
        FROM _analysed_calls CROSS JOIN windows AS w
        WHERE {_of(row)} AND {about}
        GROUP BY name ORDER BY time_ns DESC, name
        """,
    )
    told = [values({**one, "call": captured(one["call"])}, ("call",)) for one in found[:_CALLS]]
    return first(told, _CALLS, len(found))


def _beside_calls(session: Session, row: Row) -> dict[str, Any]:
    """Return how long the GPU idles because of loading, which is more than the calls take."""
    if row["claim"] not in _LOADING:
        return {}
    ((idle_ns,),) = session.execute(
        "SELECT sum(time_ns)::BIGINT FROM gpu_time_budget "
        f"WHERE {_of(row)} AND category = {quote(row['bound'])}"
    ).fetchall()
    return {
        "idle_ns": idle_ns,
        "idle_is": "the GPU's idle time around these calls: the host plans, compiles and loads",
    }


def _copies(session: Session, row: Row) -> list[Any]:
    """Return the copies of each direction and kind of memory: number, bytes, time and rate."""
    found = rows(
        session,
        f"""
        SELECT operation, src_kind AS "from", dst_kind AS "to", pageable, count, bytes,
            total_ns AS time_ns, bytes_per_s / 1e9 AS gb_per_s, link,
            link_bytes_per_s / 1e9 AS link_gb_per_s, link_pct, covered_pct AS overlapped_pct
        FROM memory_op_summary WHERE {_of(row)} ORDER BY total_ns DESC, operation
        """,
    )
    return first([values(copy, ("link",)) for copy in found[:_COPIES]], _COPIES, len(found))


def _ranges(session: Session, row: Row) -> list[Any]:
    """Return the NVTX ranges in which the copies were launched, longest first."""
    found = rows(
        session,
        f"""
        SELECT nvtx_range AS range, count(*) AS count, sum(bytes)::BIGINT AS bytes,
            sum(end_ns - start_ns)::BIGINT AS time_ns
        FROM _analysed_copies JOIN (SELECT track, report_id, device FROM _gpus) AS g USING (track)
        WHERE g.report_id IN {in_list(row["reports"])} AND {same("g.device", row["device"])}
            AND nvtx_range IS NOT NULL
        GROUP BY ALL ORDER BY time_ns DESC, range
        """,
    )
    told = [values({**one, "range": captured(one["range"])}, ("range",)) for one in found[:_PLACES]]
    return first(told, _PLACES, len(found))


def _lines(session: Session, row: Row) -> list[Any]:
    """Return the lines of the program that call for the copies, by stacks during the calls."""
    found = rows(
        session,
        f"""
        WITH copies AS (
            SELECT c.report_id, c.pid, c.tid, c.api_start_ns, c.api_end_ns, c.correlation_id
            FROM _analysed_copies AS c
            JOIN (SELECT track, device FROM _gpus) AS g USING (track)
            WHERE c.report_id IN {in_list(row["reports"])} AND {same("g.device", row["device"])}
        ),
        hits AS (
            SELECT s.report_id, s.stack_id
            FROM _host_cells AS s
            ASOF JOIN copies AS c ON c.report_id = s.report_id AND c.pid = s.pid AND c.tid = s.tid
                AND c.api_start_ns <= s.time_ns
            WHERE s.time_ns < c.api_end_ns
            UNION ALL
            SELECT s.report_id, s.stack_id
            FROM host_samples AS s
            JOIN copies AS c ON c.report_id = s.report_id AND c.pid = s.pid
                AND c.correlation_id = s.correlation_id
        )
        SELECT short_source(file) || coalesce(':' || line, '') AS line, function,
            count(*) AS samples
        FROM hits
        JOIN _stack_code USING (report_id, stack_id)
        JOIN host_frames USING (report_id, frame_id)
        WHERE is_user
        GROUP BY ALL ORDER BY samples DESC, line, function
        """,
    )
    told = [
        {**one, "line": captured(one["line"]), "function": captured(one["function"])}
        for one in found[:_PLACES]
    ]
    return first(told, _PLACES, len(found))


def _of(row: Row) -> str:
    device = same("device", row["device"])
    return f"report_id = {quote(row['reports'][0])} AND {device}"
