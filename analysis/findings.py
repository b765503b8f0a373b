"""Findings on kernels: one for each class of launches, ranked by what it could save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    confidence: str
    ncu_verdict: str | None
    launches: int
    time_ns: float
    share_pct: float
    compute_pct: float
    memory_pct: float
    headroom_pct: float
    reports: list[str]

    @property
    def where(self) -> str:
        """The class with its subclass: memory (dram)."""
        return f"{self.bound} ({self.subclass})" if self.subclass else self.bound

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
            SELECT * FROM kernel_sol JOIN kernel_bottleneck USING (report_id, launch_id)
            WHERE report_id IN {in_list(reports)}
                AND duration_ns IS NOT NULL AND max_sol_pct IS NOT NULL
        )
        SELECT
            kernel_name, grid, block, nvtx_path, bound, subclass, confidence,
            any_value(ncu_verdict ORDER BY report_id, launch_id),
            count(*),
            sum(duration_ns) AS time_ns,
            100 * sum(duration_ns) / sum(sum(duration_ns)) OVER (),
            sum(compute_sol_pct * duration_ns) / sum(duration_ns),
            sum(memory_sol_pct * duration_ns) / sum(duration_ns),
            sum((100 - least(max_sol_pct, 100)) * duration_ns) / sum(sum(duration_ns)) OVER ()
                AS headroom_pct,
            list(DISTINCT report_id ORDER BY report_id)
        FROM launches
        GROUP BY kernel_name, kernel_demangled, grid, block, nvtx_path, bound, subclass, confidence
        ORDER BY headroom_pct DESC, time_ns DESC, kernel_name, grid, block, nvtx_path
        """
    ).fetchall()
    return [Classified(*row) for row in rows]


def _near_limit(sol_pct: float) -> bool:
    return sol_pct >= thresholds()["finding.secondary_sol_pct"]


def _by_class(found: Sequence[Classified]) -> dict[tuple[str, str | None], list[Classified]]:
    classes: dict[tuple[str, str | None], list[Classified]] = {}
    for item in found:
        classes.setdefault((item.bound, item.subclass), []).append(item)
    return classes


def verdict(found: Sequence[Classified]) -> str | None:
    """Return one sentence: what bounds most of the profiled time, and how near the limit it is."""
    if not found:
        return None
    items = max(_by_class(found).values(), key=lambda items: sum(i.share_pct for i in items))
    share = sum(item.share_pct for item in items)
    sol = sum(item.share_pct * item.sol_pct for item in items) / share
    room = "near the limit" if _near_limit(sol) else "with room"
    return (
        f"{share:.0f} % of the profiled kernel time is bound by {items[0].where}, "
        f"{room}: {sol:.0f} % of the speed of light"
    )


def kernel_findings(found: Sequence[Classified]) -> list[Finding]:
    """Return one finding for each kernel configuration, in the order of `found`."""
    return [_finding(item) for item in found if item.bound in _WORDS]


def _finding(item: Classified) -> Finding:
    advice = advice_for(item.bound, item.subclass)
    near = f"{item.name} runs near the hardware limit of {item.where}"
    subclass = f" ({item.subclass})" if item.subclass else ""
    return Finding(
        claim=near if item.near_limit else f"{item.name} {_WORDS[item.bound]}{subclass}",
        evidence=(
            f"compute SOL {item.compute_pct:.1f} %, memory SOL {item.memory_pct:.1f} %, "
            f"{item.launches} launches, {format_ns(item.time_ns)}, "
            f"{item.share_pct:.1f} % of profiled time"
            + (f"; NVIDIA: {item.ncu_verdict}" if item.ncu_verdict else "")
        ),
        bound_pct=item.headroom_pct,
        confidence=item.confidence,
        subject=f"{item.name} <<<{item.grid}; {item.block}>>>"
        + (f" in {item.nvtx_path}" if item.nvtx_path else ""),
        advice=advice.technique if advice else "",
        source=Source("kernel_bottleneck", tuple(item.reports)),
    )


def recommendations(found: Sequence[Classified]) -> list[Recommendation]:
    """Return what to try, the class with the largest sum of bounds first."""
    made: list[Recommendation] = []
    for (bound, subclass), items in sorted(_by_class(found).items(), key=_by_headroom):
        advice = advice_for(bound, subclass)
        if advice is None or len(made) == _MOST:
            continue
        names = list(dict.fromkeys(item.name for item in items))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        made.append(
            Recommendation(
                len(made) + 1,
                advice.technique,
                f"{items[0].where}: {', '.join(names[:3])}{more}",
                advice.check_first,
                f"at most {sum(item.headroom_pct for item in items):.1f} % of profiled time",
                advice.difficulty,
                advice.link,
            )
        )
    return made


def _by_headroom(
    pair: tuple[tuple[str, str | None], list[Classified]],
) -> tuple[float, str]:
    (bound, subclass), items = pair
    return -sum(item.headroom_pct for item in items), f"{bound} {subclass}"
