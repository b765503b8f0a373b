"""The GPUs of timelines, and which of them the first screen is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfpipe.analysis.report.ranks import Place, names_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.units import format_ns

#: Views that are read here.
VIEWS = (
    "timeline_bottleneck",
    "analysis_windows",
    "step_times",
    "gpu_time_budget",
    "comm_overlap",
    "_gpu_ranks",
    "_labels",
    "_plain_findings",
)


class Gpu(NamedTuple):
    """A GPU of a timeline in the analyzed window; `job` and `rank` are None if it is of no job.

    `exposed_pct` is the share of a step in which it only communicates, `communication_pct` that in
    which it communicates at all; shares are those of a step without the profiler, if it is known.
    """

    report_id: str
    device: int
    bound: str
    share_pct: float
    kind: str
    steps: int | None
    step_ns: float | None
    p95_ns: float | None
    averaged: int | None
    time_ns: float
    busy_pct: float
    copying_pct: float
    incomplete: bool
    slow_pct: float | None
    loads: bool
    idle: str | None
    idle_pct: float | None
    process_id: int | None
    work_scale: float
    plain_ns: float | None
    exposed_pct: float
    communication_pct: float
    label: str
    job: str | None
    rank: int | None

    @property
    def length_ns(self) -> float:
        """Time of a step without the profiler, else with it, else of the analyzed window."""
        return self.plain_ns or self.step_ns or self.time_ns

    @property
    def place(self) -> Place:
        """What it is named by."""
        return Place(self.report_id, self.device, self.label, self.job, self.rank)

    def untraced(self, ns: float) -> float:
        """Return a traced time within a step as without the profiler, if that is known."""
        return ns * self.plain_ns / self.step_ns if self.plain_ns and self.step_ns else ns


def gpus_of(scope: Scope, reports: Sequence[str] | None = None) -> list[Gpu]:
    """Return the GPUs of timelines with what bounds them, those of a job by rank."""
    sql = f"""
        WITH busy AS (
            SELECT
                b.report_id, b.device,
                coalesce(
                    any_value(t.busy_pct),
                    sum(b.share_pct ORDER BY b.category) FILTER (is_busy(b.category)),
                    0
                ) AS busy_pct,
                coalesce(
                    any_value(t.copying_pct),
                    any_value(b.share_pct) FILTER (b.category = 'transfer'),
                    0
                ) AS copying_pct,
                coalesce(any_value(b.share_pct) FILTER (b.category = 'communication'), 0)
                    AS traced_exposed_pct,
                any_value(t.work_scale) AS work, any_value(t.communication_scale) AS waits,
                any_value(t.idle_scale) AS idles, any_value(t.plain_ns) AS plain_ns
            FROM gpu_time_budget AS b
            LEFT JOIN step_times AS t USING (report_id, device)
            WHERE is_work(b.category)
            GROUP BY b.report_id, b.device
        )
        SELECT
            report_id, device, bound, share_pct * plain_scale(bound, work, waits, idles),
            w.kind, w.steps, w.step_ns, w.p95_ns, w.averaged,
            w.time_ns, busy_pct, copying_pct, incomplete, slow_pct, coalesce(loads, false),
            idle.category, idle.share_pct * coalesce(idles, 1),
            w.process_id, coalesce(work, 1), plain_ns,
            traced_exposed_pct * coalesce(waits, 1) AS exposed_pct,
            least(
                exposed_pct + coalesce(100 * overlapped_ns / w.time_ns, 0) * coalesce(work, 1), 100
            ),
            label, job, rank
        FROM (
            -- Shares are in order, largest first.
            SELECT *, list_filter(shares, lambda part: NOT is_work(part.category))[1] AS idle
            FROM timeline_bottleneck
        ) AS t
        JOIN analysis_windows AS w USING (report_id, device)
        JOIN busy USING (report_id, device)
        LEFT JOIN comm_overlap USING (report_id, device)
        LEFT JOIN _gpu_ranks USING (report_id, device)
        LEFT JOIN (
            SELECT report_id, device, max(slow_pct) AS slow_pct,
                bool_or(technique IN ('data_loading', 'more_loading')) AS loads
            FROM _plain_findings GROUP BY ALL
        ) USING (report_id, device)
        JOIN _labels USING (report_id)
        WHERE report_id IN {in_list(scope.reports if reports is None else reports)}
            AND bound IS NOT NULL
        ORDER BY position NULLS LAST, min(label) OVER (PARTITION BY coalesce(job, report_id)),
            rank NULLS LAST, label, report_id, device
    """
    return [Gpu(*row) for row in rows_of(scope.con, sql)]


def chosen_of(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs that the first screen is about: those of the job or timeline that is slowest.

    The slowest has the longest step without the profiler, as far as that is known.
    """
    lead = max(gpus, key=lambda gpu: (bool(gpu.step_ns), gpu.length_ns))
    return [gpu for gpu in gpus if _group(gpu) == _group(lead)]


def reports_of(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return the reports of some GPUs."""
    return tuple(dict.fromkeys(gpu.report_id for gpu in gpus))


def longest(scope: Scope) -> tuple[str, ...]:
    """Return the timelines of the slowest job, if there are any."""
    gpus = gpus_of(scope) if scope.timeline else []
    return reports_of(chosen_of(gpus)) if gpus else ()


def about(scope: Scope, gpus: Sequence[Gpu], chosen: Sequence[Gpu]) -> str:
    """Return which of several configurations or timelines was chosen; empty if there is one."""
    others = {_group(gpu): gpu for gpu in gpus if _group(gpu) != _group(chosen[0])}
    if not others:
        return ""
    of_run = scope.run is not None and len(scope.run.tasks) > 1
    what = "configurations" if of_run else "timelines"
    label = chosen[0].label
    if len(reports_of(chosen)) > 1 and not of_run:
        label = f"the job of {label}"
    several = len(others) > 1
    text = f"shown: {label}, {'slowest' if several else 'slower'} of {len(others) + 1} {what}"
    if all(gpu.step_ns for gpu in (*others.values(), *chosen)):
        best = min(others.values(), key=lambda gpu: gpu.length_ns)
        which = "fastest" if several else "other"
        text += f" ({which}: {best.label}, {format_ns(best.length_ns)})"
    return text


def named(gpus: Sequence[Gpu]) -> list[str]:
    """Return a name for each GPU."""
    return names_of([gpu.place for gpu in gpus])


def _group(gpu: Gpu) -> str:
    return gpu.job or gpu.report_id
