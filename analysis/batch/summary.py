"""Summarizes the reports of one task, once, when the task ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfpipe.analysis.report import facts, findings, tried, verdicts
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.session import Session
from perfpipe.batchrecord import TaskSummary
from perfpipe.database import in_list, quote
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.trialrecord import Trial
from perfpipe.units import words

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = (
    "analysis_windows",
    "_timeline_bounds",
    "_kernel_verdict",
    "run_efficiency",
    "findings",
    "reports",
    "_used_gpus",
    *tried.VIEWS,
    *verdicts.VIEWS,
)


def summary_of(store: Store, reports: Sequence[str], run: RunRecord | None) -> TaskSummary:
    """Summarize the reports of a task; `run` is its run, whose other tasks do not count.

    Without reports the store is not read.  Raises StoreError if it cannot be read.
    """
    run = _alone(run, reports)
    if not reports:
        return TaskSummary().timed(_own_ms(run))
    with Session.open(OneTask(store, reports, run), reports, use=VIEWS) as session:
        return summarize(session.con, reports, run)


def summarize(
    con: DuckDBPyConnection, reports: Sequence[str], run: RunRecord | None
) -> TaskSummary:
    """Summarize a task from a connection with the views of VIEWS, such as that of its page.

    `run` has this task alone.
    """
    kinds = rows_of(con, "SELECT kind, count(*) FROM reports GROUP BY kind")
    scope = Scope(con, tuple(sorted(reports)), dict(kinds), run)
    first = next(iter(findings.findings_of(scope)), None)
    statement = next(verdicts.statements_of(scope), None)
    summary = TaskSummary(
        headline=statement.text if statement else None,
        finding=first.claim if first else None,
        gpu="; ".join(facts.gpus_of(scope.con, scope.reports)) or None,
    )
    return _efficiency(_bounds(summary, scope), scope).timed(_own_ms(scope.run))


def _bounds(summary: TaskSummary, scope: Scope) -> TaskSummary:
    """Add the bound of the GPU with the longest steps, and the bound of most of its kernel time."""
    timelines = rows_of(
        scope.con,
        f"""
        SELECT w.step_ns / 1e6, w.p95_ns / 1e6, w.steps, t.bound, t.share_pct, report_id
        FROM analysis_windows AS w
        LEFT JOIN _timeline_bounds AS t USING (report_id, device)
        WHERE report_id IN {in_list(scope.reports)}
        ORDER BY w.step_ns DESC NULLS LAST, t.share_pct DESC NULLS LAST, report_id, device
        LIMIT 1
        """,
    )
    # Kernels of a timeline without a profile are unknown, and may take most of the time.
    kernels = "SELECT bound, subclass, share_pct FROM _kernel_verdict WHERE rank = 1"
    for step, p95, steps, bound, share, report in timelines:
        summary = replace(
            summary, step_ms=step, step_p95_ms=p95, steps=steps, bound=bound, share_pct=share
        )
        kernels = f"""
            SELECT bound, subclass, share_pct FROM step_bounds
            WHERE report_id = {quote(report)} AND rank = 1 AND bound != 'unknown'
        """
    for bound, subclass, share in rows_of(scope.con, kernels):
        named = f"{bound} ({words(subclass)})" if subclass else bound
        summary = replace(summary, kernel_bound=named)
        if summary.bound is None:
            summary = replace(summary, bound=bound, share_pct=share)
    return summary


def _efficiency(summary: TaskSummary, scope: Scope) -> TaskSummary:
    """Add how close the task comes to its roof."""
    if scope.run is None:
        return summary
    sql = f"SELECT sol_pct, mfu_pct FROM run_efficiency WHERE run_id = {quote(scope.run.run_id)}"
    for sol, mfu in rows_of(scope.con, sql):
        summary = replace(summary, sol_pct=sol, mfu_pct=mfu)
    return summary


def _own_ms(run: RunRecord | None) -> float | None:
    return run.tasks[0].median_ms if run is not None and run.tasks else None


def _alone(run: RunRecord | None, reports: Sequence[str]) -> RunRecord | None:
    """Return a run with the task alone that has these reports, as if it were no search."""
    if run is None:
        return None
    own = [task for task in run.tasks if {*task.reports} & {*reports}] or run.tasks
    tasks = tuple(replace(task, generation=None) for task in own[:1])
    return replace(run, tasks=tasks, reports=tuple(sorted(reports)))


class OneTask(Store):
    """A store that shows some reports and one run: its other contents are not even listed.

    A thousand tasks that each listed the reports and runs of all others would read a million.
    """

    def __init__(self, store: Store, reports: Sequence[str], run: RunRecord | None) -> None:
        super().__init__(store.root)
        self._reports, self._run = reports, run

    def own_report_ids(self) -> list[str]:
        return sorted(report for report in self._reports if (self.reports_dir / report).is_dir())

    def runs(self) -> list[RunRecord]:
        return [self._run] if self._run is not None else []

    def trials(self) -> list[Trial]:
        return []
