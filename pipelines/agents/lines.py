"""Lines of the program that the host executed while a GPU was idle."""

from __future__ import annotations

from typing import Any

from perfpipe.analysis.session import Session
from perfpipe.database import in_list, quote, same
from perfpipe.pipelines.agents.cutting import first
from perfpipe.pipelines.agents.desk import Row, rows
from perfpipe.pipelines.agents.wording import captured, plain, value

#: Lines of each GPU, and lines of an answer.
_LINES, _MOST = 5, 20

#: What findings on idle time are about besides its causes: several of these, or some waits.
_OTHERS = ("launch_overhead", "readback")


def idle_lines(session: Session, several: bool) -> dict[str, Any]:
    """Return the lines with most of the idle time of each GPU, or the reason why there are none.

    Lines of `several` reports have the report.
    """
    found = rows(
        session,
        f"""
        SELECT
            report_id, device, short_source(file) || coalesce(':' || line, '') AS line, function,
            library_function AS calls, via, cause, self_ns, share_pct, low_pct, high_pct, samples,
            reason, count(*) OVER () AS total
        FROM idle_hotspots WHERE level = 'user' QUALIFY rank <= {_LINES}
        ORDER BY report_id, device, rank
        """,
    )
    told = [_told(row, several) for row in found[:_MOST]]
    return {
        "idle_lines": first(told, _MOST, _total(found)),
        "idle_lines_missing": _missing(session, found),
    }


def lines_of_finding(session: Session, row: Row) -> dict[str, Any]:
    """Return the lines behind a finding about idle time; nothing for other findings."""
    bound = row["bound"]
    found = rows(
        session,
        f"""
        SELECT
            short_source(file) || coalesce(':' || line, '') AS line, function, called AS calls,
            via, bound AS cause, ns AS self_ns, share_pct, pct[1] AS low_pct,
            pct[2] AS high_pct, samples, reason, count(*) OVER () AS total
        FROM _bound_lines
        WHERE bound = {quote(bound)} AND {same("device", row["device"])}
            AND report_id IN {in_list(row["reports"])}
        QUALIFY place <= {_LINES}
        ORDER BY report_id, place
        """,
    )
    ((is_idle,),) = session.execute(f"SELECT is_host_cause({quote(bound)})").fetchall()
    if not found and not is_idle and bound not in _OTHERS:
        return {}
    told = [_told(row, several=False) for row in found[:_MOST]]
    return {"lines": first(told, _MOST, _total(found)), "lines_missing": _missing(session, found)}


def _total(found: list[Row]) -> int:
    """Return how many lines there are, besides those that were found."""
    return found[0]["total"] if found else 0


def _told(row: Row, several: bool) -> dict[str, Any]:
    """Return a line without what is unknown; the interval is that of the share."""
    interval = None if row["low_pct"] is None else [value(row["low_pct"]), value(row["high_pct"])]
    told = {
        "report_id": row["report_id"] if several else None,
        "device": row.get("device"),
        "line": captured(row["line"]),
        "function": captured(row["function"]),
        "calls": captured(row["calls"]),
        "via": row["via"],
        "cause": row["cause"],
        "time_ns": row["self_ns"],
        "share_pct": value(row["share_pct"]),
        "interval_pct": interval,
        "samples": row["samples"],
        "reason": row["reason"],
    }
    return {key: one for key, one in told.items() if one is not None}


def _missing(session: Session, found: list[Row]) -> str | None:
    """Return why there are no lines: no stacks were recorded, or none in idle time."""
    if any(row["reason"] is None for row in found):
        return None
    gaps = rows(
        session,
        "SELECT any_value(reason ORDER BY reason) AS reason FROM collection_gaps "
        "WHERE table_name = 'host_samples' AND column_name = ''",
    )
    reason = gaps[0]["reason"]
    return plain(reason) if reason else "no stack was sampled during this idle time"
