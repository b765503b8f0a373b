"""Findings on kernels: one for each class of launches, ranked by what it could save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.knowledge import advice_for
from analysis.report_facts import in_list
from analysis.views import thresholds
from perfpipe.units import format_ns
from perfpipe.viewmodel import Finding, Recommendation, Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_WORDS = {
    "compute": "is bound by compute",
    "memory": "is bound by memory",
    "latency": "is bound by latency: neither compute nor memory is busy",
    "launch": "is too small to fill the GPU",
    "balanced": "is balanced between compute and memory",
}

#: Recommendations in a report.
_MOST = 8


def kernel_findings(con: DuckDBPyConnection, reports: Sequence[str]) -> list[Finding]:
    """Return one finding for each kernel configuration, the largest possible saving first.

    The bound on the saving is the share of profiled time x (1 - max SOL), in percent.
    """
    return [
        Finding(
            claim=_claim(name, bound, subclass, max(compute, memory)),
            evidence=(
                f"compute SOL {compute:.1f} %, memory SOL {memory:.1f} %, "
                f"{launches} launches, {format_ns(time)}, {share:.1f} % of profiled time"
                + (f"; NVIDIA: {verdict}" if verdict else "")
            ),
            bound_pct=headroom,
            confidence=confidence,
            subject=f"{name} <<<{grid}; {block}>>>" + (f" in {nvtx}" if nvtx else ""),
            advice=advice.technique if (advice := advice_for(bound, subclass)) else "",
            source=Source("kernel_bottleneck", tuple(ids)),
        )
        for (
            name,
            grid,
            block,
            nvtx,
            bound,
            subclass,
            confidence,
            verdict,
            launches,
            time,
            share,
            compute,
            memory,
            headroom,
            ids,
        ) in _classified(con, reports)
        if bound in _WORDS
    ]


def _claim(name: str, bound: str, subclass: str | None, sol: float) -> str:
    where = f" ({subclass})" if subclass else ""
    if sol >= thresholds()["finding.secondary_sol_pct"]:
        return f"{name} runs near the hardware limit of {bound}{where}"
    return f"{name} {_WORDS[bound]}{where}"


def verdict(con: DuckDBPyConnection, reports: Sequence[str]) -> str | None:
    """Return one sentence: what bounds most of the profiled time, and how near the limit it is."""
    by_class: dict[tuple[str, str | None], list[tuple[float, float]]] = {}
    for row in _classified(con, reports):
        bound, subclass, share, sol = row[4], row[5], row[10], max(row[11], row[12])
        by_class.setdefault((bound, subclass), []).append((share, sol))
    if not by_class:
        return None
    (bound, subclass), parts = max(by_class.items(), key=lambda item: sum(s for s, _ in item[1]))
    share = sum(s for s, _ in parts)
    sol = sum(s * value for s, value in parts) / share
    where = f"{bound} ({subclass})" if subclass else bound
    near = "near the limit" if sol >= thresholds()["finding.secondary_sol_pct"] else "with room"
    return (
        f"{share:.0f} % of the profiled kernel time is bound by {where}, "
        f"{near}: {sol:.0f} % of the speed of light"
    )


def recommendations(con: DuckDBPyConnection, reports: Sequence[str]) -> list[Recommendation]:
    """Return what to try, by the sum of the bounds of the kernels in each class."""
    gains: dict[tuple[str, str | None], list[tuple[float, str]]] = {}
    for row in _classified(con, reports):
        name, bound, subclass, headroom = row[0], row[4], row[5], row[13]
        if headroom is not None and advice_for(bound, subclass):
            gains.setdefault((bound, subclass), []).append((headroom, name))
    ranked = sorted(gains.items(), key=lambda item: (-sum(g for g, _ in item[1]), str(item[0])))
    found = []
    for priority, ((bound, subclass), kernels) in enumerate(ranked[:_MOST], start=1):
        advice = advice_for(bound, subclass)
        if advice is None:
            continue
        names = list(dict.fromkeys(name for _, name in sorted(kernels, reverse=True)))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        found.append(
            Recommendation(
                priority,
                advice.technique,
                f"{bound}{f' ({subclass})' if subclass else ''}: {', '.join(names[:3])}{more}",
                advice.check_first,
                f"at most {sum(g for g, _ in kernels):.1f} % of profiled time",
                advice.difficulty,
                advice.link,
            )
        )
    return found


def _classified(con: DuckDBPyConnection, reports: Sequence[str]) -> list[tuple]:  # type: ignore[type-arg]
    return con.execute(
        f"""
        WITH launches AS (
            SELECT * FROM kernel_sol JOIN kernel_bottleneck USING (report_id, launch_id)
            WHERE report_id IN {in_list(reports)}
                AND duration_ns IS NOT NULL AND max_sol_pct IS NOT NULL
        )
        SELECT
            kernel_name, grid, block, nvtx_path, bound, subclass, confidence,
            any_value(ncu_verdict ORDER BY report_id, launch_id) AS verdict,
            count(*) AS launches,
            sum(duration_ns) AS time_ns,
            100 * sum(duration_ns) / sum(sum(duration_ns)) OVER () AS share_pct,
            sum(compute_sol_pct * duration_ns) / sum(duration_ns) AS compute_pct,
            sum(memory_sol_pct * duration_ns) / sum(duration_ns) AS memory_pct,
            sum((100 - least(max_sol_pct, 100)) * duration_ns) / sum(sum(duration_ns)) OVER ()
                AS headroom_pct,
            list(DISTINCT report_id ORDER BY report_id)
        FROM launches
        GROUP BY kernel_name, kernel_demangled, grid, block, nvtx_path, bound, subclass, confidence
        ORDER BY headroom_pct DESC, time_ns DESC, kernel_name, grid, block, nvtx_path
        """
    ).fetchall()
