"""Findings on timelines and what to do about them, ranked by their share of the time."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.knowledge import techniques
from analysis.rows import in_list
from analysis.views import thresholds
from perfpipe.units import words
from perfpipe.viewmodel import Finding, Recommendation, Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CLAIMS = {
    "launch_overhead": "waits for launches: the host issues work more slowly than the GPU does it",
    "sync": "waits because the host waited for it before issuing more",
    "host": "waits for a host that asks for nothing",
    "transfer": "copies while nothing computes",
    "communication": "communicates while nothing computes",
}

#: What sampled GPU metrics say of busy time.
_BUSY = {
    "compute": ", bound by compute",
    "memory": ", bound by memory",
    "neither": ", bound by neither compute nor memory",
}


#: Views that are read here.
VIEWS = ("timeline_bottleneck", "timeline_findings", "rank_skew", "_labels")

#: GPU timelines that a verdict names one by one.
_NAMED = 4


def timeline_verdict(con: DuckDBPyConnection, reports: Sequence[str]) -> str | None:
    """Return one sentence on what bounds the GPUs' time; None without a timeline."""
    rows = con.execute(
        f"""
        SELECT bound, share_pct, contributors, busy_bound, label, device
        FROM timeline_bottleneck JOIN _labels USING (report_id)
        WHERE report_id IN {in_list(reports)} AND bound IS NOT NULL
        ORDER BY position NULLS LAST, label, report_id, device
        """
    ).fetchall()
    if not rows:
        return None
    if len(rows) == 1:
        bound, share, contributors, busy_bound, *_ = rows[0]
        busy = f"goes to {words(bound)}"
        if bound == "compute":
            busy = f"is spent computing{_BUSY.get(busy_bound, '')}"
        more = f" ({contributors})" if contributors and ", " in contributors else ""
        return f"{share:.0f} % of the GPU's time {busy}{more}"
    if len(rows) <= _NAMED and len({row[0] for row in rows}) > 1:
        parts = [
            f"{share:.0f} % {words(bound)} ({label}, GPU {device})"
            for bound, share, _, _, label, device in rows
        ]
        return f"The largest part of each GPU's time: {', '.join(parts)}"
    shares: dict[str, list[float]] = {}
    for bound, share, *_ in rows:
        shares.setdefault(bound, []).append(share)
    parts = [
        f"{words(bound)} on {len(own)} ({_range(own)} % of the time)"
        for bound, own in sorted(shares.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]
    if len(shares) == 1:
        bound = rows[0][0]
        return (
            f"The largest part of each of {len(rows)} GPU timelines is {words(bound)} "
            f"({_range(shares[bound])} % of the time)"
        )
    return f"Of {len(rows)} GPU timelines the largest part is {', '.join(parts)}"


def next_step(con: DuckDBPyConnection, reports: Sequence[str]) -> str | None:
    """Return which kernel to profile where computing takes most of the time; None elsewhere."""
    rows = con.execute(
        f"""
        SELECT name, 100 * sum(dur_ns) / sum(sum(dur_ns)) OVER () AS share_pct
        FROM nsys_kernels
        WHERE report_id IN (
            SELECT report_id FROM timeline_bottleneck
            WHERE bound = 'compute' AND report_id IN {in_list(reports)}
        )
        GROUP BY name
        ORDER BY share_pct DESC, name
        LIMIT 1
        """
    ).fetchall()
    if not rows or rows[0][1] is None:
        return None
    name, share = rows[0]
    return (
        "Profile the kernels, the largest first: ncu --set basic --kernel-name "
        f"{shlex.quote(str(name))} ({share:.0f} % of the kernel time)"
    )


def _range(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
    return low if low == high else f"{low} to {high}"


#: How long each GPU waits in collectives, and who comes to them last.
_WAITING = """
    SELECT report_id, device, waiting_pct, own_rank, last_rank, last_pct
    FROM (SELECT job, report_id, device, waiting_pct, rank AS own_rank FROM rank_skew)
    JOIN (
        SELECT job, arg_max(rank, last) AS last_rank, max(last_pct) AS last_pct
        FROM rank_skew
        GROUP BY job
    ) USING (job)
"""


def timeline_findings(con: DuckDBPyConnection, reports: Sequence[str]) -> list[Finding]:
    """Return one finding for each contributor to the time of each GPU, the largest first."""
    rows = con.execute(
        f"""
        SELECT report_id, device, bound, any_value(share_pct) AS share, any_value(confidence),
            any_value(largest_gap), arg_min(technique, rank), any_value(label),
            any_value(waiting_pct), any_value(own_rank), any_value(last_rank), any_value(last_pct)
        FROM timeline_findings
        JOIN _labels USING (report_id)
        LEFT JOIN ({_WAITING}) USING (report_id, device)
        WHERE report_id IN {in_list(reports)}
        GROUP BY report_id, device, bound
        ORDER BY share DESC, report_id, device, bound
        """
    ).fetchall()
    found = []
    for report_id, device, bound, share, confidence, gap, technique, name, *waits in rows:
        waiting, rank, last_rank, last_pct = waits if bound == "communication" else (None,) * 4
        evidence = [f"{words(bound)} is {share:.1f} % of the time between first and last operation"]
        evidence += [f"longest interval: {gap}"] if gap else []
        claim = _CLAIMS.get(bound, f"spends time on {words(bound)}")
        if waiting is not None and waiting >= thresholds()["timeline.contributor_pct"]:
            claim = "waits for other ranks in collectives"
            who = f"; rank {last_rank} comes last in {last_pct:.0f} % of them"
            who = who if last_pct and last_rank != rank else ""
            evidence.insert(1, f"{waiting:.1f} % is waiting{who}")
        found.append(
            Finding(
                claim=f"GPU {device} {claim}" + (f" ({name})" if len(reports) > 1 else ""),
                evidence="; ".join(evidence),
                bound_pct=share,
                confidence=confidence,
                subject=f"GPU {device} in {name}",
                advice=techniques()[technique].technique,
                source=Source("timeline_findings", (report_id,)),
            )
        )
    return found


def timeline_recommendations(
    con: DuckDBPyConnection, reports: Sequence[str]
) -> list[Recommendation]:
    """Return what to try about the time between kernels, each technique once."""
    rows = con.execute(
        f"""
        SELECT technique, bound, max(share_pct) AS share, any_value(difficulty), count(*)
        FROM timeline_findings WHERE report_id IN {in_list(reports)}
        GROUP BY technique, bound
        ORDER BY share DESC, technique
        """
    ).fetchall()
    made: list[Recommendation] = []
    for key, bound, share, difficulty, count in rows:
        item = techniques()[key]
        gpus = f" on {count} GPU timelines" if count > 1 else ""
        made.append(
            Recommendation(
                len(made) + 1,
                item.technique,
                f"{words(bound)}{gpus}, {share:.1f} % of the GPU's time",
                item.check_first,
                f"at most {share:.1f} % of the GPU's time",
                difficulty,
                item.link,
                item.detail,
                Source("timeline_findings", tuple(reports)),
            )
        )
    return made
