"""Plans of what to profile, for timelines that are named on the command line."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfpipe.analysis.profile_plan import ProfilePlan
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.collectors.guide import DETAILED, Budget, words_of
from perfpipe.pipelines.collectors.ncu import profile_options
from perfpipe.pipelines.guiding import plan_of
from perfpipe.pipelines.reading import with_files
from perfpipe.pipelines.selection import chosen
from perfpipe.pipelines.workload import CollectNcu
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

#: Placeholder for the program in a command, if the report does not name it.
PROGRAM = "PROGRAM"


@dataclass(frozen=True)
class Planned:
    """A timeline with its plan, or with the reason why it has no plan.

    `command` is the ncu command.  `seconds` is about how long it takes, and `plain_s` how long the
    program takes without ncu: measured, or the length of the timeline, which excludes the time
    before the first operation on the GPU.
    """

    report_id: str
    source_name: str
    plan: ProfilePlan | None
    reason: str | None
    command: tuple[str, ...] = ()
    plain_s: float = 0.0
    measured: bool = False

    @property
    def seconds(self) -> float:
        """Approximate time that ncu takes, s."""
        if self.plan is None:
            return 0.0
        return Budget(self.plain_s).expected_s(self.plan.most_launches, DETAILED)


def plans_of(
    store: Store, names: Sequence[str], coverage: float | None, max_kernels: int | None
) -> list[Planned]:
    """Return the plan of each timeline among runs, reports and files; files are ingested.

    Raises InputError if there is no timeline.
    """
    selection = chosen(store, with_files(store, names))
    tasks = {report: task for run in store.runs() for task in run.tasks for report in task.reports}
    with Session.open(store, selection.reports, use=("reports", "launches")) as session:
        rows = session.execute(
            """
            SELECT report_id, source_name, command, (
                SELECT max(end_ns) - min(start_ns) FROM launches AS l
                WHERE l.report_id = r.report_id
            ) / 1e9
            FROM reports AS r
            WHERE kind IN ('nsys', 'torch') ORDER BY source_name, report_id
            """
        ).fetchall()
    if not rows:
        raise InputError(
            "no timeline in the selection; a plan needs an nsys report or a torch trace"
        )
    return [_planned(store, tuple(row), tasks.get(row[0]), coverage, max_kernels) for row in rows]


def _planned(
    store: Store,
    row: tuple[str, str, str | None, float | None],
    task: TaskResult | None,
    coverage: float | None,
    max_kernels: int | None,
) -> Planned:
    report_id, source_name, command, traced_s = row
    try:
        plan = plan_of(store, report_id, coverage, max_kernels)
    except TaskFailed as reason:
        return Planned(report_id, source_name, None, str(reason))
    options = CollectNcu()
    words = ["ncu", *profile_options(options), *words_of(plan, options)]
    program = task.command if task and task.command else (command or PROGRAM).split()
    measured = bool(task and task.seconds)
    plain_s = statistics.median(task.seconds) if task and task.seconds else traced_s or 0.0
    whole = (*words, "--export=profile", *program)
    return Planned(report_id, source_name, plan, None, whole, plain_s, measured)
