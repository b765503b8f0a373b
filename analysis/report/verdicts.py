"""Sentences on what bounds the time, for the top of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perfpipe.analysis import runs
from perfpipe.analysis.report import allocator, facts, hangs, profiled, running, serving
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.search_story import story
from perfpipe.analysis.words import word
from perfpipe.database import in_list
from perfpipe.units import format_ns, gpu_name, words
from perfpipe.viewmodel import Fact, Source

#: Views that are read here.
VIEWS = (
    "timeline_bottleneck",
    "analysis_windows",
    "step_times",
    "_labels",
    "_totals",
    "benchmark_loops",
    "cold_start_findings",
    "profile_plan_totals",
    *profiled.VIEWS,
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

#: The start of a verdict on a trace that lost events.
INCOMPLETE = "The trace is incomplete because the profiler lost events. "

#: Maximum number of GPU timelines that a verdict lists individually.
_NAMED = 4

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
    of_step = profiled.of_steps(scope)
    for text, view in (
        (_timelines(scope), "timeline_bottleneck"),
        (of_step, "step_bounds"),
        (None if of_step else profiled.kernels_of(scope), "kernel_bottleneck"),
    ):
        if text:
            yield Fact("", text, Source(view, scope.reports))


def search_of(scope: Scope) -> Iterator[Fact]:
    """Yield the other sentences about an autotuning run."""
    if scope.history is not None and scope.run is not None:
        told = story(scope.history)[_TOLD:]
        if told:
            yield Fact("Autotuning", " ".join(told), Source("tuning", (scope.run.run_id,)))


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


def notice_of(scope: Scope) -> str | None:
    """Return what every page of a report begins with, if anything."""
    told = (facts.notice_of(scope.run), profiled.uncovered_notice(scope))
    return " ".join(text for text in told if text) or None


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
