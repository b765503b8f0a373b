"""The end of a batch: resubmits tasks that Slurm lost, then writes the runs and the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from perfpipe.batchrecord import BatchRun, Outcome, State, TaskState
from perfpipe.compaction import compact
from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.page import write_pages, write_run_page
from perfpipe.pipelines.batch.resuming import broken_by_slurm, jobs_in_flight, resubmit
from perfpipe.pipelines.batch.state import BatchState, last_collector, state_of
from perfpipe.pipelines.claim import claimed
from perfpipe.pipelines.console import say
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.provenance import utc_now
from perfpipe.runrecord import INVALID_TIME, RunRecord, TaskResult
from perfpipe.units import counted

#: How long to wait for results of ended jobs, s: a shared file system may show them late.
_PATIENCE_S = 60.0

#: Exit codes of jobs that wrote the results of their tasks.
_WITH_RESULTS = (0, 1)

#: How long a query may have replaced files of the store open, s.
_GRACE_S = 3600.0


def collect(
    directory: BatchDirectory,
    number: int,
    cluster: Cluster | None,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome | None:
    """Finish a batch: resubmit the tasks that Slurm lost, or write its runs, pages and outcome.

    `number` is the submission of this collector: if there is a later one, it finishes the batch
    and this one returns None.  Without a `cluster` nothing is resubmitted, and a task without a
    result is unknown.
    """
    if last_collector(directory) > number:
        return None
    state = _settled(directory, cluster, sleep)
    broken = broken_by_slurm(directory, state)
    if broken and cluster is not None:
        try:
            with claimed(directory.path):
                resubmit(directory, cluster, broken, "lost by Slurm", jobs_in_flight(state))
        except PerfpipeError as error:
            # Some sites do not let jobs submit jobs.
            say(f"{counted(len(broken), 'task')} could not be resubmitted: {error}")
        else:
            say(f"{counted(len(broken), 'task')} resubmitted: {', '.join(_names(broken))}")
            return _outcome(directory, number, state, len(broken))
    records = [run_record(directory, run, state) for run in directory.batch.runs]
    for record in records:
        directory.store.write_run(record)
    # Results that were not gathered are still read, and a page can be made later.
    _tried(lambda: compact(directory.store, _GRACE_S))
    for record in records:
        _tried(partial(write_run_page, directory, record))
    outcome = _outcome(directory, number, state, 0)
    write_pages(directory, state, cluster)
    directory.write_outcome(outcome)
    return outcome


def _tried(do: Callable[[], object]) -> None:
    """Do something whose failure must not affect the rest."""
    try:
        do()
    except PerfpipeError as error:
        say(str(error))


def run_record(directory: BatchDirectory, run: BatchRun, state: BatchState) -> RunRecord:
    """Return the record of a run of a batch, with a failure for each task that has no result."""
    own = [task for task in state.tasks if task.task.run_id == run.run_id]
    tasks = tuple(_result(task, state) for task in own)
    complete = state.finished
    done = all(task.done for task in tasks)
    return RunRecord(
        run_id=run.run_id,
        workload=run.workload,
        collector=run.collector,
        started_at=directory.batch.created_at,
        status=("done" if done else "failed") if complete else "running",
        reports=tuple(sorted({report for task in tasks for report in task.reports})),
        tasks=tasks,
        workload_file=run.workload_file,
        words=run.words,
        ended_at=utc_now() if complete else None,
        recording=run.recording,
        provenance=directory.batch.provenance,
    )


def _result(task: TaskState, state: BatchState) -> TaskResult:
    """Return the result of a task; without one, a result that says why."""
    known = state.results.get(task.task.index)
    if known is not None and known.done and task.state == State.FAILED:
        return replace(known, status="failed", failure=INVALID_TIME, error=task.reason)
    if known is not None:
        return known
    own = task.task
    return TaskResult(
        index=own.task_index,
        label=own.label,
        params=dict(own.params),
        status="failed",
        failure=task.state.replace(" ", "_"),
        error=f"{task.state}: {task.reason or 'no result'}",
        key=own.key,
    )


def _settled(
    directory: BatchDirectory, cluster: Cluster | None, sleep: Callable[[float], None]
) -> BatchState:
    """Return the state when the end of every task is known, or when it does not improve."""
    state = state_of(directory, cluster)
    waited, step = 0.0, 1.0
    while waited < _PATIENCE_S and not all(map(_settles, state.tasks)):
        sleep(step)
        waited, step = waited + step, min(step * 2, 15.0)
        # Slurm need not be queried again about jobs that have ended.
        if not state.finished or directory.results(without=state.results.keys()):
            state = state_of(directory, cluster)
    return state


def _settles(task: TaskState) -> bool:
    """Return whether the end of a task is known, or no result can appear later."""
    return not task.state.in_flight and not (
        task.state == State.LOST and task.job_code in _WITH_RESULTS
    )


def _outcome(
    directory: BatchDirectory, number: int, state: BatchState, resubmitted: int
) -> Outcome:
    counts = {str(name): number for name, number in state.counts.items()}
    ok = state.counts.get(State.DONE, 0) == directory.batch.tasks
    return Outcome(
        directory.batch.batch_id, number, utc_now(), counts, ok, 0 if ok else 1, resubmitted
    )


def _names(tasks: list[TaskState]) -> list[str]:
    names = [f"{task.task.index} ({task.state})" for task in tasks[:5]]
    return [*names, "..."] if len(tasks) > len(names) else names
