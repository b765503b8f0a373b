"""Sentences on what bounds the time, for the top of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from perfpipe.analysis import runs
from perfpipe.analysis.report import allocator, facts, hangs, running, serving
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.search_story import story
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.words import word
from perfpipe.database import in_list, quote
from perfpipe.units import counted, format_ns, gpu_name, words
from perfpipe.viewmodel import Fact, Source

#: Views that are read here.
VIEWS = (
    "timeline_bottleneck",
    "analysis_windows",
    "step_times",
    "_labels",
    "_kernel_verdict",
    "_setup_launches",
    "_launch_names",
    "_totals",
    "benchmark_loops",
    "cold_start_findings",
    "profile_plan_totals",
    "step_bounds",
    "step_coverage",
    "_uncovered_profiles",
    *runs.VIEWS,
)

#: The bound of busy time by sampled GPU metrics.
_BUSY = {
    "compute": ", compute-bound",
    "memory": ", memory-bound",
    "neither": ", neither compute- nor memory-bound",
}

#: The whole of a share, by the kind of window.
_WHOSE = {
    "whole": "the GPU's time",
    "startup": "the GPU's time in start-up and warm-up",
    "step": "the step",
}

#: The whole of the kernels' shares if there are no steps.
_KERNEL_TIME = {"whole": "kernel time", "timed": "time of the timed kernels"}

#: The start of a verdict on a trace that lost events.
INCOMPLETE = "The trace is incomplete because the profiler lost events. "

#: Maximum number of GPU timelines that a verdict lists individually.
_NAMED = 4

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

#: Sentences about an autotuning run in the verdict; the others go into the summary.
_TOLD = 3


def statements_of(scope: Scope) -> Iterator[Fact]:
    """Yield the sentences of the verdict: on the run, the comparison, timelines, kernels."""
    yield from running.statements_of(scope)
    yield from hangs.statements_of(scope)
    if scope.history is not None and scope.run is not None:
        source = Source("tuning", (scope.run.run_id,))
        yield from (Fact("", text, source) for text in story(scope.history)[:_TOLD])
    elif scope.run is not None and (text := runs.reach(scope.con, scope.run.run_id)):
        yield Fact("", text, Source("run_efficiency", (scope.run.run_id,)))
    if scope.compared is not None:
        yield from scope.compared.statements
    for text in serving.sentences(scope):
        yield Fact("", text, Source("serving_rates", scope.reports))
    for text in allocator.sentences(scope):
        yield Fact("", text, Source("snapshot_peak", scope.reports))
    of_step = of_steps(scope)
    for text, view in (
        (_timelines(scope), "timeline_bottleneck"),
        (of_step, "step_bounds"),
        (None if of_step else _kernels(scope), "kernel_bottleneck"),
    ):
        if text:
            yield Fact("", text, Source(view, scope.reports))


def search_of(scope: Scope) -> Iterator[Fact]:
    """Yield the other sentences about an autotuning run."""
    if scope.history is not None and scope.run is not None:
        told = story(scope.history)[_TOLD:]
        if told:
            yield Fact("Autotuning", " ".join(told), Source("tuning", (scope.run.run_id,)))


def _kernels(scope: Scope) -> str | None:
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


def _timelines(scope: Scope) -> str | None:
    """Return the bound of the GPUs' time, or a benchmark; None without a timeline."""
    if timed := benchmark_of(scope, scope.reports):
        return timed
    if cold := cold_of(scope, scope.reports):
        return cold
    rows = rows_of(
        scope.con,
        f"""
        WITH parts AS (
            SELECT
                report_id, device, label, position, bound, busy_bound, incomplete,
                w.kind, w.steps, w.startup_ns,
                coalesce(s.plain_ns, w.step_ns) AS step_ns,
                unnest(shares).category AS category,
                unnest(shares).share_pct
                    * plain_scale(category, s.work_scale, s.communication_scale, s.idle_scale)
                    AS pct
            FROM timeline_bottleneck AS t
            JOIN analysis_windows AS w USING (report_id, device)
            JOIN _labels USING (report_id)
            LEFT JOIN step_times AS s USING (report_id, device)
            WHERE report_id IN {in_list(scope.reports)} AND bound IS NOT NULL
        )
        SELECT
            bound,
            any_value(pct) FILTER (category = bound),
            string_agg(printf('%s %.0f %%', replace(category, '_', ' '), pct), ', '
                ORDER BY pct DESC, category)
                FILTER (pct >= threshold('timeline.contributor_pct')),
            busy_bound, label, device, kind, steps, step_ns, startup_ns, incomplete
        FROM parts
        GROUP BY
            bound, busy_bound, label, device, kind, steps, step_ns, startup_ns, incomplete,
            position, report_id
        ORDER BY position NULLS LAST, label, report_id, device
        """,
    )
    if not rows:
        return None
    return f"{INCOMPLETE if any(row[-1] for row in rows) else ''}{_bounds(rows)}"


def benchmark_of(scope: Scope, reports: Sequence[str]) -> str:
    """Return the benchmark of some timelines, if they have nothing else; else an empty text."""
    rows = rows_of(
        scope.con,
        f"""
        SELECT b.repetitions, b.flush_pct, b.longest, b.longest_pct
        FROM analysis_windows AS w LEFT JOIN benchmark_loops AS b USING (report_id, device)
        WHERE report_id IN {in_list(reports)}
        """,
    )
    if len(rows) != 1 or rows[0][0] is None:
        return ""
    ((repetitions, flush_pct, longest, longest_pct),) = rows
    return (
        f"This is a benchmark with {repetitions:,} timed repetitions; {longest} takes "
        f"{longest_pct:.0f} % of the timed kernel time. Flushing the L2 cache before each "
        f"repetition takes {flush_pct:.0f} % of kernel time"
    )


def cold_of(scope: Scope, reports: Sequence[str]) -> str:
    """Return what some timelines hold if it is only start-up on each GPU; else an empty text."""
    rows = rows_of(
        scope.con,
        f"""
        SELECT cold_ns, window_ns, causes
        FROM analysis_windows LEFT JOIN cold_start_findings USING (report_id, device)
        WHERE report_id IN {in_list(reports)}
        ORDER BY cold_ns DESC, report_id, device
        """,
    )
    if not rows or any(cold_ns is None for cold_ns, *_ in rows):
        return ""
    cold_ns, window_ns, causes = rows[0]
    return (
        f"The capture holds only start-up or a cold first iteration, not a typical step: start-up "
        f"takes {format_ns(cold_ns)} of {format_ns(window_ns)} ({causes})"
    )


def _bounds(rows: Sequence[tuple[Any, ...]]) -> str:
    """Return what bounds the time of each GPU."""
    if len(rows) == 1:
        (
            bound,
            share,
            contributors,
            busy_bound,
            _,
            _,
            kind,
            _,
            step_ns,
            startup_ns,
            _,
        ) = rows[0]
        more = f"; largest parts: {_listed(contributors)}" if ", " in (contributors or "") else ""
        if kind == "steady":
            busy = (
                f"compute{_BUSY.get(busy_bound, '')}"
                if bound == "compute"
                else word("category", bound, "part")
            )
            begun = "; start-up and warm-up are excluded" if startup_ns else ""
            return f"A step takes {format_ns(step_ns)}: {share:.0f} % {busy}{more}{begun}"
        busy = f"goes to {words(bound)}{word('category', bound, 'idle')}"
        if bound == "compute":
            busy = f"is compute{_BUSY.get(busy_bound, '')}"
        return f"{share:.0f} % of {_WHOSE[kind]} {busy}{more}"
    if len(rows) <= _NAMED and len({row[0] for row in rows}) > 1:
        parts = [
            f"{words(bound)} {share:.0f} %{f' of a {format_ns(step)} step' if step else ''} "
            f"({label}, {gpu_name(device)})"
            for bound, share, _, _, label, device, _, _, step, *_ in rows
        ]
        return f"Largest part of each GPU's time: {', '.join(parts)}"
    shares: dict[str, list[float]] = {}
    for bound, share, *_ in rows:
        shares.setdefault(bound, []).append(share)
    parts = [
        f"{words(bound)} on {len(own)} ({_range(own)} % of the time)"
        for bound, own in sorted(shares.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]
    begun = _steps([row[8] for row in rows])
    if len(shares) == 1:
        bound = rows[0][0]
        every = "both" if len(rows) == 2 else f"all {len(rows)}"
        return (
            f"{begun}On {every} GPU timelines, the largest part of the time is {words(bound)} "
            f"({_range(shares[bound])} %)"
        )
    return f"{begun}Largest part of the time on {len(rows)} GPU timelines: {', '.join(parts)}"


def _listed(contributors: str) -> str:
    """Return categories with their shares in the words of pages."""
    parts = [part.rsplit(" ", 2) for part in contributors.split(", ")]
    return ", ".join(f"{words(name.replace(' ', '_'))} {pct} %" for name, pct, _ in parts)


def _steps(steps: Sequence[float | None]) -> str:
    """Return how long a step takes on several timelines, as the beginning of a sentence."""
    known = sorted(step for step in steps if step)
    if len(known) < len(steps):
        return ""
    shortest, longest = format_ns(known[0]), format_ns(known[-1])
    if shortest == longest:
        return f"A step takes {longest}. "
    return f"A step takes {shortest} to {longest}. "


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
    most = sorted(known.items(), key=lambda item: -item[1])[:_TOLD]
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


def notice_of(scope: Scope) -> str | None:
    """Return what every page of a report begins with, if anything."""
    told = (facts.notice_of(scope.run), _uncovered_notice(scope))
    return " ".join(text for text in told if text) or None


def _uncovered_notice(scope: Scope) -> str | None:
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


def next_step(scope: Scope) -> Iterator[Fact]:
    """Yield which kernels of an nsys report to profile if compute takes most of the time."""
    rows = rows_of(
        scope.con,
        f"""
        SELECT report_id, chosen, coverage_pct, window_kind FROM profile_plan_totals
        WHERE report_id IN (SELECT report_id FROM timeline_bottleneck WHERE bound = 'compute')
            AND report_id IN (SELECT report_id FROM reports WHERE kind = 'nsys')
            AND report_id IN {in_list(scope.reports)} AND chosen > 0 AND refused IS NULL
        ORDER BY report_id LIMIT 1
        """,
    )
    for report_id, chosen, coverage, kind in rows:
        whole = "kernel time" if kind == "whole" else "steps' kernel time"
        those = "the kernel that takes" if chosen == 1 else f"the {chosen} kernels that take"
        yield Fact(
            "Next",
            f"Profile {those} {coverage:.0f} % of the {whole}: "
            f"perfpipe plan {report_id} prints the ncu command",
            Source("profile_plan_totals", (report_id,)),
        )


def _range(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
    return low if low == high else f"{low} to {high}"
