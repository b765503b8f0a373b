"""Launches the fastest configuration of a search again, alternating with the default.

The fastest of many configurations is partly the luckiest, and the default ran before all others:
the times of the search do not prove that either is faster.
"""

from __future__ import annotations

from dataclasses import replace

from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.collectors.base import Context
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.measuring import Measurement, timed_in_turn
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.runs import Run
from perfpipe.pipelines.search import Search
from perfpipe.pipelines.tasks import task_of

#: Directory of these launches, in that of the configuration.
_DIRECTORY = "confirm"


def confirm(plan: Plan, run: Run, launcher: Launcher, progress: Progress) -> None:
    """Launch both alternately, as often as the workload says, and add the times to their results.

    If either fails, neither gets these times, and the failed result notes why.
    """
    tune = plan.workload.tune
    finalists = Search(plan.workload, plan.path).finalists(run.record.tasks)
    if tune is None or not tune.confirm or len(finalists) < 2:
        return
    if all(len(result.confirm_ms) == tune.confirm for result in finalists):
        return
    workload = plan.workload.model_copy(update={"launches": tune.confirm})
    turns = replace(plan, workload=workload)
    tasks, directories = [], []
    for result in finalists:
        where = (result.index, result.params, plan.workload, plan.path, result.generation)
        task = task_of(*where)
        directories.append(run.task_directory(task, fresh=False))
        into = directories[-1] / _DIRECTORY
        into.mkdir(exist_ok=True)
        tasks.append(Measurement(turns, Context(workload, task, launcher, into, progress.detail)))
    progress.detail("confirming: launching the fastest and the default alternately")
    timed = timed_in_turn(tasks)
    errors = [again for again in timed if isinstance(again, PerfpipeError)]
    for result, again, directory in zip(finalists, timed, directories, strict=True):
        if not isinstance(again, PerfpipeError) and not errors:
            result = replace(result, confirm_ms=again.launches_ms)
        elif isinstance(again, PerfpipeError):
            note = f"the launch that should confirm its time failed: {again}"
            result = replace(result, confirm_ms=(), notes=(*result.notes, note))
        run.add(result, directory)
