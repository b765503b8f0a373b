"""Findings on kernels and what to do about them, ranked by what it could save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from analysis.knowledge import techniques
from analysis.rows import in_list
from analysis.views import thresholds
from perfpipe.units import format_bytes, format_ns, words
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

#: Views that are read here.
VIEWS = ("kernel_sol", "kernel_bottleneck", "kernel_findings")

#: Recommendations in a report.
_MOST = 10


class Classified(NamedTuple):
    """Launches of one kernel configuration and class; times in ns, the rest in percent.

    SOL is the mean weighted by duration; `headroom_pct` the share of all profiled time x
    (1 - max SOL): an upper bound on what could be saved.
    """

    name: str
    grid: str
    block: str
    nvtx_path: str | None
    bound: str
    subclass: str | None
    cause: str | None
    confidence: str
    ncu_verdict: str | None
    explanation: str | None
    technique: str | None
    launches: int
    time_ns: float
    share_pct: float
    compute_pct: float
    memory_pct: float
    headroom_pct: float
    reports: list[str]

    @property
    def where(self) -> str:
        """The class with its subclass and cause: memory (dram, uncoalesced)."""
        detail = ", ".join(words(part) for part in (self.subclass, self.cause) if part)
        return f"{self.bound} ({detail})" if detail else self.bound

    @property
    def sol_pct(self) -> float:
        """The larger of compute and memory SOL."""
        return max(self.compute_pct, self.memory_pct)

    @property
    def near_limit(self) -> bool:
        """Whether little is left to gain."""
        return _near_limit(self.sol_pct)


def classified(con: DuckDBPyConnection, reports: Sequence[str]) -> list[Classified]:
    """Return the classified launches of some reports, the largest headroom first."""
    rows = con.execute(
        f"""
        WITH launches AS (
            SELECT *
            FROM kernel_sol
            JOIN kernel_bottleneck USING (report_id, launch_id)
            LEFT JOIN (
                SELECT report_id, launch_id, technique FROM kernel_findings WHERE rank = 1
            ) USING (report_id, launch_id)
            WHERE report_id IN {in_list(reports)}
                AND duration_ns IS NOT NULL AND max_sol_pct IS NOT NULL
        )
        SELECT
            kernel_name, grid, block, nvtx_path, bound, subclass, cause, confidence,
            any_value(ncu_verdict ORDER BY report_id, launch_id),
            any_value(explanation ORDER BY report_id, launch_id),
            any_value(technique ORDER BY report_id, launch_id),
            count(*),
            sum(duration_ns) AS time_ns,
            100 * sum(duration_ns) / sum(sum(duration_ns)) OVER (),
            sum(compute_sol_pct * duration_ns) / sum(duration_ns),
            sum(memory_sol_pct * duration_ns) / sum(duration_ns),
            sum((100 - least(max_sol_pct, 100)) * duration_ns) / sum(sum(duration_ns)) OVER ()
                AS headroom_pct,
            list(DISTINCT report_id ORDER BY report_id)
        FROM launches
        GROUP BY
            kernel_name, kernel_demangled, grid, block, nvtx_path,
            bound, subclass, cause, confidence
        ORDER BY headroom_pct DESC, time_ns DESC, kernel_name, grid, block, nvtx_path
        """
    ).fetchall()
    return [Classified(*row) for row in rows]


def _near_limit(sol_pct: float) -> bool:
    return sol_pct >= thresholds()["finding.secondary_sol_pct"]


def verdict(found: Sequence[Classified]) -> str | None:
    """Return one sentence: what bounds most of the profiled time, and how near the limit it is."""
    if not found:
        return None
    classes: dict[tuple[str, str | None], list[Classified]] = {}
    for item in found:
        classes.setdefault((item.bound, item.subclass), []).append(item)
    items = max(classes.values(), key=lambda items: sum(i.share_pct for i in items))
    share = sum(item.share_pct for item in items)
    sol = sum(item.share_pct * item.sol_pct for item in items) / share
    room = "near the limit" if _near_limit(sol) else "with room"
    first = items[0]
    where = f"{first.bound} ({words(first.subclass)})" if first.subclass else first.bound
    return (
        f"{share:.0f} % of the profiled kernel time is bound by {where}, "
        f"{room}: {sol:.0f} % of the speed of light"
    )


def kernel_findings(found: Sequence[Classified]) -> list[Finding]:
    """Return one finding for each kernel configuration, in the order of `found`."""
    return [_finding(item) for item in found if item.bound in _WORDS]


def _finding(item: Classified) -> Finding:
    detail = ", ".join(words(part) for part in (item.subclass, item.cause) if part)
    claim = f"{item.name} {_WORDS[item.bound]}" + (f" ({detail})" if detail else "")
    if item.near_limit:
        claim = f"{item.name} runs near the hardware limit of {item.where}"
    evidence = [
        f"compute SOL {item.compute_pct:.1f} %, memory SOL {item.memory_pct:.1f} %, "
        f"{item.launches} launches, {format_ns(item.time_ns)}, "
        f"{item.share_pct:.1f} % of profiled time"
    ]
    evidence += [f"NVIDIA: {item.ncu_verdict}"] if item.ncu_verdict else []
    evidence += [item.explanation] if item.explanation else []
    return Finding(
        claim=claim,
        evidence="; ".join(evidence),
        bound_pct=item.headroom_pct,
        confidence=item.confidence,
        subject=f"{item.name} <<<{item.grid}; {item.block}>>>"
        + (f" in {item.nvtx_path}" if item.nvtx_path else ""),
        advice=techniques()[item.technique].technique if item.technique else "",
        source=Source("kernel_bottleneck", tuple(item.reports)),
        kernel=item.name,
    )


def recommendations(con: DuckDBPyConnection, reports: Sequence[str]) -> list[Recommendation]:
    """Return what to try, the largest bound first: time share x gain, summed over launches.

    Kernels near their limit come last.  Gains overlap, so that those of several techniques are
    never to be added up.
    """
    share = "duration_ns / sum(duration_ns) OVER ()"
    rows = con.execute(
        f"""
        WITH launches AS (
            SELECT report_id, launch_id, {share} AS share
            FROM ncu_launches WHERE report_id IN {in_list(reports)}
        )
        SELECT
            technique,
            any_value(difficulty),
            sum(share * gain_pct) AS priority,
            100 * sum(share),
            list(DISTINCT printf(
                '%s (%s)', kernel_name, replace(concat_ws(', ', bound, subclass, cause), '_', ' ')
            )),
            count(*),
            list(DISTINCT gain_source ORDER BY gain_source),
            sum(saved_bytes),
            bool_and(secondary) AS secondary
        FROM kernel_findings JOIN launches USING (report_id, launch_id)
        WHERE gain_pct > 0
        GROUP BY technique
        HAVING priority >= {thresholds()["finding.min_gain_pct"]}
        ORDER BY secondary, priority DESC, technique
        LIMIT {_MOST}
        """
    ).fetchall()
    return [_recommendation(reports, number + 1, *row) for number, row in enumerate(rows)]


def _recommendation(
    reports: Sequence[str],
    number: int,
    key: str,
    difficulty: str,
    priority: float,
    share: float,
    kernels: list[str],
    launches: int,
    sources: list[str],
    saved_bytes: float | None,
    secondary: bool,
) -> Recommendation:
    item = techniques()[key]
    names = sorted(kernels)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    gain = f"at most {priority:.1f} % of profiled time ({', '.join(sources)})"
    if saved_bytes:
        gain += f", {format_bytes(saved_bytes)} less traffic"
    if secondary:
        gain += "; secondary, the kernel is near its limit"
    return Recommendation(
        number,
        item.technique,
        f"{', '.join(names[:3])}{more}: {launches} launches, {share:.1f} % of profiled time",
        item.check_first,
        gain,
        difficulty,
        item.link,
        item.detail,
        Source("kernel_findings", tuple(reports)),
    )
