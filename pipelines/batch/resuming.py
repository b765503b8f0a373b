"""Resubmits tasks of a batch: automatically those that Slurm lost, on demand all failed ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfpipe.batchrecord import Stage, State, TaskState
from perfpipe.errors import InputError, PerfpipeError
from perfpipe.pipelines.batch.changing import Change, change
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.packing import expected_seconds
from perfpipe.pipelines.batch.state import BatchState, state_of
from perfpipe.pipelines.batch.submitting import (
    FIRST,
    arrays_of,
    comment_of,
    largest_array,
    require_fitting,
    submit,
)
from perfpipe.pipelines.claim import claimed
from perfpipe.pipelines.slurm.client import Cluster, Unreachable
from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.pipelines.slurm.states import State as JobIs

#: States that are the scheduler's fault; their tasks are resubmitted automatically.
_BROKEN = (State.NODE_FAILURE, State.PREEMPTED)

#: States that `resume` can select; unknown tasks may still run.
_RESUMED = frozenset(State) - {State.DONE, State.WAITING, State.RUNNING}


def broken_by_slurm(directory: BatchDirectory, state: BatchState) -> list[TaskState]:
    """Return the tasks to resubmit automatically: those below the allowed number of submissions."""
    most = directory.batch.max_attempts
    submitted = _times_submitted(directory)
    return [
        task
        for task in state.tasks
        if task.state in _BROKEN and submitted.get(task.task.index, 0) < most
    ]


def _times_submitted(directory: BatchDirectory) -> dict[int, int]:
    found: dict[int, int] = {}
    for own in directory.submissions():
        if own.what.stage == Stage.PROFILE and own.job:
            for element in own.what.elements:
                for task in element:
                    found[task] = found.get(task, 0) + 1
    return found


def unfinished(state: BatchState, only: Iterable[State] = ()) -> list[TaskState]:
    """Return the tasks that `resume` submits: not successful, and not in flight.

    `only` selects some states; unknown tasks are submitted only if it names that state.
    """
    wanted = {*only} or _RESUMED - {State.UNKNOWN}
    return [task for task in state.tasks if task.state in wanted]


def jobs_in_flight(state: BatchState) -> tuple[str, ...]:
    """Return the jobs that may still produce results."""
    elements = (task.element for task in state.tasks if task.state.in_flight)
    return tuple(dict.fromkeys(one.partition("_")[0] for one in elements if one))


def states_named(names: Iterable[str]) -> frozenset[State]:
    """Return states by their names; raises InputError for one that cannot be resumed."""
    known = {str(state): state for state in State if state in _RESUMED}
    for name in names:
        if name not in known:
            raise InputError(f"--only {name}: not one of {', '.join(known)}")
    return frozenset(known[name] for name in names)


@dataclass(frozen=True)
class Resumed:
    """The tasks that were submitted again, the jobs, the collector's last, and what changed."""

    tasks: Sequence[TaskState] = ()
    jobs: Sequence[str] = ()
    changes: Sequence[str] = ()


def resume(
    directory: BatchDirectory,
    cluster: Cluster,
    only: frozenset[State] = frozenset(),
    flags: Slurm | None = None,
    timeout: float | None = None,
) -> Resumed:
    """Resubmit tasks that did not succeed, with the Slurm options of now (see `change`).

    If only the outcome is missing, submit only a collector.  Raises InputError if another process
    is submitting for this batch, TaskFailed if Slurm does not answer.
    """
    with claimed(directory.path):
        adopt_orphans(directory, cluster)
        state = state_of(directory, cluster)
        state.require_answer()
        again = unfinished(state, only)
        outcome = directory.outcome()
        if not again and (only or state.collecting or (outcome is not None and outcome.ok)):
            return Resumed()
        changed = change(directory, flags or Slurm(), timeout)
        why = "resume" if directory.submitted else FIRST
        jobs = resubmit(directory, cluster, again, why, jobs_in_flight(state), changed)
        if (old := state.collector) is not None and old.state == JobIs.PENDING:
            # The new one waits for all jobs; the old one may wait for what never happens.
            cluster.cancel([old.job])
        return Resumed(again, jobs, changed.said)


def resubmit(
    directory: BatchDirectory,
    cluster: Cluster,
    tasks: Sequence[TaskState],
    reason: str,
    others: tuple[str, ...] = (),
    changed: Change | None = None,
) -> list[str]:
    """Resubmit tasks and return the jobs; the collector waits for these and for `others`.

    Results of failed attempts are set aside.  Nothing changes for tasks whose job Slurm refuses.
    The caller has claimed the batch.
    """
    of = directory.slurm if changed is None else changed.slurm
    slurm = {run.run_id: of(run.run_id) for run in directory.batch.runs}
    chosen = [task.task for task in tasks]
    kinds = {run.run_id: run.collector for run in directory.batch.runs}
    expected = expected_seconds(directory.store, chosen, kinds)
    limits = cluster.limits()
    arrays = arrays_of(chosen, slurm, expected, largest_array(limits), directory.batch.arms)
    require_fitting(directory.batch, arrays, limits)
    if changed is not None:
        changed.write(directory)
    for task in tasks:
        directory.set_aside(task.task, task.attempts)
    known = len(directory.submissions())
    try:
        return submit(directory, cluster, arrays, reason, others)
    except Unreachable:
        raise  # the jobs may exist
    except PerfpipeError:
        new = directory.submissions()[known:]
        taken = {index for own in new if own.job for one in own.what.elements for index in one}
        for task in tasks:
            if task.task.index not in taken:
                directory.put_back(task.task, task.attempts)
        if changed is not None and not taken:
            changed.undo(directory)
        raise


def adopt_orphans(directory: BatchDirectory, cluster: Cluster) -> int:
    """Record the jobs of submissions whose writer was killed before it could; return their number.

    A submission without a job is marked as such.  Raises InputError while that is unknown.
    """
    adopted = 0
    for own in directory.submissions():
        if own.answered:
            continue
        number = own.what.number
        jobs = cluster.find(comment_of(directory, number))
        if len(jobs) > 1:
            raise InputError(f"submission {number} has several jobs: {', '.join(jobs)}")
        directory.write_job(number, jobs[0] if jobs else "")
        adopted += len(jobs)
    return adopted
