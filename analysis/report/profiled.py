"""Sentences on what bounds the kernels that ncu profiled, and how much of a timeline they are."""

from __future__ import annotations

from typing import NamedTuple

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import in_list, quote
from perfpipe.units import counted, format_ns, words

#: Views that are read here.
VIEWS = (
    "_kernel_verdict",
    "_setup_launches",
    "_launch_names",
    "analysis_windows",
    "benchmark_loops",
    "step_bounds",
    "step_coverage",
    "_uncovered_profiles",
)

#: The whole of the kernels' shares if there are no steps.
_KERNEL_TIME = {"whole": "kernel time", "timed": "time of the timed kernels"}

#: Limiters that have a name of their own.
_LIMITERS = {
    ("memory", "dram"): "DRAM",
    ("memory", "l2"): "the L2 cache",
    ("memory", "l1"): "the L1 cache",
    ("memory", "shared"): "shared memory",
    ("compute", "tensor"): "tensor cores",
    ("compute", "issue"): "instruction issue",
    ("compute", "fma"): "the FMA pipe",
    ("compute", "lsu"): "load and store instructions",
    ("compute", "divergence"): "divergent warps",
    ("latency", "memory"): "memory latency",
    ("latency", "dependency"): "dependent instructions",
    ("latency", "barrier"): "barriers",
    ("latency", "occupancy"): "too few warps",
    ("latency", "idle_lanes"): "idle lanes of narrow blocks",
    ("latency", "dram_unknown"): "memory latency or DRAM, which ncu cannot measure on this GPU",
    ("latency", "tail"): "uneven work across SMs",
    ("latency", "small_grid"): "small grids",
    ("launch", "small_grid"): "small grids",
    ("launch", "short"): "short kernels",
}

#: From which share on a verdict is on all of the time.
_ALL_PCT = 99.5

#: Set-up and reference kernels that a verdict names.
_SETUPS = 2

#: Bounds of a step's kernels that a verdict names.
_BOUNDS = 3


def kernels_of(scope: Scope) -> str | None:
    """Return the bound of most of the profiled time, its SOL, and how much was profiled."""
    verdict = verdict_on_kernels(scope)
    return of_profiled(scope, *verdict) if verdict else None


def verdict_on_kernels(scope: Scope) -> tuple[str, float, float] | None:
    """Return what bounds most of the profiled time, in words, its share and its SOL, %."""
    sql = "SELECT bound, subclass, share_pct, sol_pct FROM _kernel_verdict WHERE rank = 1"
    for bound, subclass, share, sol in rows_of(scope.con, sql):
        return limiter(bound, subclass), share, sol
    return None


def of_profiled(scope: Scope, bound: str, share: float, sol: float) -> str:
    """Return a verdict on kernels as a sentence that says how much was profiled."""
    setup = setup_of(scope)
    if setup.alone:
        return (
            f"Only set-up or reference kernels were profiled: {setup.listed} "
            f"({profiled_of(scope)}), bound by {bound} at {sol:.0f} % of SOL"
        )
    if len(setup.work) == 1 and share >= _ALL_PCT:
        verdict = f"{setup.work[0]} ({profiled_of(scope)}) is bound by {bound} and runs"
    else:
        whole = "the other kernels' time" if setup.names else "the profiled kernel time"
        verdict = (
            f"Kernels that are limited by {bound} take {share:.0f} % of {whole} "
            f"({profiled_of(scope)}) and run"
        )
    excluded = ""
    if setup.names:
        excluded = f"; excluded: set-up and reference kernels ({setup.listed}"
        excluded += f", {setup.share_pct:.0f} % of the profiled time)" if setup.share_pct else ")"
    return f"{verdict} at {sol:.0f} % of SOL{excluded}"


class Setup(NamedTuple):
    """The names of set-up and reference kernels, longest first, and of all other kernels."""

    names: tuple[str, ...]
    work: tuple[str, ...]
    share_pct: float | None

    @property
    def alone(self) -> bool:
        """Whether nothing else was profiled."""
        return bool(self.names) and not self.work

    @property
    def listed(self) -> str:
        """The first names as text."""
        more = f" and {len(self.names) - _SETUPS} more" if self.names[_SETUPS:] else ""
        return f"{', '.join(self.names[:_SETUPS])}{more}"


def setup_of(scope: Scope) -> Setup:
    """Return which kernels are set-up and reference kernels."""
    sql = f"""
        SELECT short_name, setup IS NOT NULL AS of_setup,
            100 * ordered_sum(duration_ns) / nullif(sum(sum(duration_ns)) OVER (), 0) AS share_pct
        FROM ncu_launches
        JOIN _launch_names USING (report_id, launch_id)
        LEFT JOIN _setup_launches USING (report_id, launch_id)
        WHERE report_id IN {in_list(scope.reports)}
        GROUP BY ALL ORDER BY share_pct DESC NULLS LAST, short_name
    """
    rows = rows_of(scope.con, sql)
    shares = [share for _, of_setup, share in rows if of_setup and share is not None]
    return Setup(
        tuple(name for name, of_setup, _ in rows if of_setup),
        tuple(name for name, of_setup, _ in rows if not of_setup),
        sum(shares) if shares else None,
    )


def profiled_of(scope: Scope) -> str:
    """Return how many launches of the verdict were profiled, and how long they took."""
    sql = f"""
        SELECT count(*), sum(duration_ns)
        FROM ncu_launches LEFT JOIN _setup_launches USING (report_id, launch_id)
        WHERE report_id IN {in_list(scope.reports)}
            AND (setup IS NULL OR {str(setup_of(scope).alone).lower()})
    """
    ((launches, time_ns),) = rows_of(scope.con, sql)
    return counted(launches, "launch") + (f", {format_ns(time_ns)}" if time_ns else "")


def of_steps(scope: Scope) -> str | None:
    """Return the bounds of the kernels if one GPU has a timeline and profiles; else None."""
    rows = rows_of(
        scope.con,
        f"""
        SELECT
            report_id, if(b.repetitions IS NULL, window_kind, 'timed'),
            configurations, profiled_configurations, profiled_pct, otherwise_pct,
            -- The idle time of a benchmark is the harness's.
            if(b.repetitions IS NULL, 100 * kernel_time_ns / nullif(w.time_ns, 0), NULL)
        FROM step_coverage JOIN analysis_windows AS w USING (report_id, device)
        LEFT JOIN benchmark_loops AS b USING (report_id, device)
        WHERE report_id IN {in_list(scope.reports)}
        """,
    )
    if len(rows) != 1:
        return None
    ((report_id, kind, kernels, profiled, covered_pct, otherwise_pct, kernels_pct),) = rows
    whole = _KERNEL_TIME.get(kind, "step's kernel time")
    looked_at = f"{profiled} of {kernels} kernels were profiled"
    least = thresholds()["timeline.contributor_pct"]
    if kernels_pct is not None and kernels_pct < least:
        of_it = "less than 0.1" if kernels_pct < 0.1 else f"{kernels_pct:.1f}"
        whose = "the step" if kind == "steady" else "the analyzed window"
        return f"Kernels take only {of_it} % of {whose}, so their bottlenecks hardly matter"
    if covered_pct < thresholds()["plan.least_pct"]:
        way_out = f"perfpipe plan {report_id} lists the kernels to profile"
        if otherwise_pct >= thresholds()["plan.otherwise_pct"]:
            way_out = (
                f"{otherwise_pct:.0f} % was profiled only with a different grid, block or "
                "duration, as happens when each process autotunes its kernels"
            )
        return (
            f"{looked_at} ({covered_pct:.2g} % of the {whole}), and the bottleneck of the rest "
            f"is unknown ({way_out})"
        )
    shares = rows_of(
        scope.con,
        f"""
        SELECT bound, subclass, share_pct FROM step_bounds
        WHERE report_id = {quote(report_id)} ORDER BY rank
        """,
    )
    # Classes with the same words are merged: kernels limited by small grids may have two bounds.
    known: dict[str, float] = {}
    for bound, sub, share in shares:
        if bound not in ("unknown", "communication"):
            known[limiter(bound, sub)] = known.get(limiter(bound, sub), 0) + share
    most = sorted(known.items(), key=lambda item: -item[1])[:_BOUNDS]
    of_what = f"of the {whole} is bound "
    parts = [
        f"{share:.0f} % {of_what if place == 0 else ''}by {by}"
        for place, (by, share) in enumerate(most)
        if share >= 1 or place == 0
    ]
    for bound in ("communication", "unknown"):
        share = sum(row[2] for row in shares if row[0] == bound)
        parts += [f"{share:.0f} % is {bound}"] if share >= 0.5 else []
    return f"{', '.join(parts)}; {looked_at} ({covered_pct:.0f} % of kernel time)"


def uncovered(scope: Scope) -> dict[str, float | None]:
    """Return the ncu reports that say little about the timelines, with the share they profile."""
    if not (scope.timeline and scope.profiled):
        return {}
    sql = f"FROM _uncovered_profiles WHERE report_id IN {in_list(scope.reports)} ORDER BY ALL"
    return dict(rows_of(scope.con, sql))


def uncovered_notice(scope: Scope) -> str | None:
    """Return a warning about ncu reports that say little about the timelines."""
    found = uncovered(scope)
    shares = [share for share in found.values() if share is not None]
    told = []
    if shares:
        most = max(shares)
        share = f"{most:.2g} % of" if most else "none of"
        told.append(
            f"ncu profiled {share} the kernel time on the timeline, so the classes of the profiled "
            "kernels say little about it"
        )
    others = [report for report, share in found.items() if share is None]
    if others:
        sql = f"SELECT source_name FROM reports WHERE report_id IN {in_list(others)} ORDER BY 1"
        names = [str(name) for (name,) in rows_of(scope.con, sql)]
        more = f" and {len(names) - 1} more" if names[1:] else ""
        told.append(
            f"{names[0]}{more} profiled another program or GPU than the timeline shows, so "
            f"{'their' if more else 'its'} kernels do not count as part of the step"
        )
    return f"Warning: {'; '.join(told)}." if told else None


def limiter(bound: str, subclass: str | None) -> str:
    """Return what bounds a kernel, in words: DRAM, tensor cores, latency (small grid)."""
    if bound == "balanced":
        return "both compute and memory"
    known = _LIMITERS.get((bound, subclass or ""))
    return known or (f"{bound} ({words(subclass)})" if subclass else bound)
