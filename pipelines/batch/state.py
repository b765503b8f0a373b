"""The states of a batch's tasks: from their results, else from the scheduler."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from perfpipe.batchrecord import BatchTask, Stage, State, TaskState
from perfpipe.errors import StoreError, TaskFailed
from perfpipe.pipelines.batch.disk import BatchDirectory, Submitted, elements_of
from perfpipe.pipelines.slurm.client import Answer, Cluster
from perfpipe.pipelines.slurm.reasons import explained
from perfpipe.pipelines.slurm.states import JobState
from perfpipe.pipelines.slurm.states import State as JobIs
from perfpipe.runrecord import TIME_LIMIT, TaskResult

#: States of a job that ended without a result of its task.
_ENDED = {
    JobIs.TIMEOUT: State.TIMEOUT,
    JobIs.OUT_OF_MEMORY: State.OUT_OF_MEMORY,
    JobIs.CANCELLED: State.CANCELLED,
    JobIs.NODE_FAIL: State.NODE_FAILURE,
    JobIs.PREEMPTED: State.PREEMPTED,
}

#: States of jobs that a batch keeps, by their names on disk.
_KEPT = {state.value: state for state in _ENDED}

#: Why a task failed that left a result without times.
SILENT = "the program printed no times, but did with other parameters"

#: States that end a job regardless of its tasks.
_OF_ALL = (State.CANCELLED, State.NODE_FAILURE, State.PREEMPTED)


@dataclass(frozen=True)
class BatchState:
    """The tasks of a batch with their states; `results` by index.

    `unasked` is the reason if the scheduler could not be queried, `collector` the state of the last
    collector, None without a collector or with its result.
    """

    tasks: tuple[TaskState, ...]
    results: Mapping[int, TaskResult]
    unasked: str | None = None
    collector: JobState | None = None
    jobs: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[State, int]:
        """The number of tasks in each state that occurs, in the order of State."""
        found = Counter(task.state for task in self.tasks)
        return {state: found[state] for state in State if found[state]}

    @property
    def collecting(self) -> bool:
        """Whether the last collector has not ended yet."""
        return self.collector is not None and not self.collector.state.final

    def require_answer(self) -> None:
        """Raise TaskFailed unless the scheduler said which tasks still run."""
        if self.unasked is not None:
            raise TaskFailed(f"cannot find out which tasks still run: {self.unasked}")

    @property
    def finished(self) -> bool:
        """Whether no task can still change without a new submission."""
        return not any(task.state.in_flight for task in self.tasks)


def state_of(directory: BatchDirectory, cluster: Cluster | None) -> BatchState:
    """Return the state of a batch; `cluster` is queried once, and only if results are missing.

    Results are read after the scheduler's answer: a task that ends in between is done, not lost.
    """
    submissions = directory.submissions()
    results = directory.results()
    asked = _elements(submissions, {task.index for task in directory.tasks} - results.keys())
    answer = Answer({}, "the scheduler was not queried")
    if asked and cluster is not None:
        answer = cluster.states(asked)
    # A task begins when the earlier tasks of its job have their results.
    attempts, ended = directory.attempts(), directory.ended()
    _keep(directory, answer, ended)
    results |= directory.results(without=results.keys())
    by_element = answer.states
    holding = elements_of(submissions, Stage.PROFILE)
    reading = elements_of(submissions, Stage.INGEST)
    tasks = tuple(
        _one(
            directory,
            task,
            results,
            attempts.get(task.index, 0),
            _deciding(task.index, holding[task.index], reading[task.index], by_element),
            by_element,
            answer.trouble,
            ended,
        )
        for task in directory.tasks
    )
    tasks = tuple(_with_silence(directory, tasks, results))
    collectors = [own.job for own in submissions if own.what.stage == Stage.COLLECT and own.job]
    collector = by_element.get((collectors[-1], None)) if collectors else None
    jobs = tuple(own.job for own in submissions if own.job)
    unasked = answer.trouble if asked else None
    return BatchState(tasks, results, unasked, collector, jobs)


def _keep(directory: BatchDirectory, answer: Answer, known: Mapping[str, str]) -> None:
    """Record how jobs ended, as far as that is not known: without accounting, Slurm forgets it."""
    new = {
        f"{job}_{at}": row.state.value
        for (job, at), row in answer.states.items()
        if at is not None and row.state in _ENDED and f"{job}_{at}" not in known
    }
    if new:
        # A user who may only read the store sees the state nevertheless.
        with contextlib.suppress(StoreError):
            directory.write_ended(new)


def _elements(submissions: Iterable[Submitted], missing: Set[int]) -> dict[str, list[int]]:
    """Return the query by job: elements with missing results, and the last collector."""
    asked: dict[str, list[int]] = {}
    collector = ""
    for own in submissions:
        if own.job and own.what.stage == Stage.COLLECT:
            collector = own.job
        elif own.job:
            held = [
                at
                for at, element in enumerate(own.what.elements)
                if not missing.isdisjoint(element)
            ]
            asked |= {own.job: held} if held else {}
    return {**asked, collector: []} if collector else asked


def _one(
    directory: BatchDirectory,
    task: BatchTask,
    results: Mapping[int, TaskResult],
    attempts: int,
    submitted: Submitted | None,
    by_element: Mapping[tuple[str, int | None], JobState],
    why: str | None,
    ended: Mapping[str, str],
) -> TaskState:
    """Return the state of a task, from its result or its last job."""
    found = TaskState(task, State.UNSUBMITTED, attempts=attempts)
    result = results.get(task.index)
    if result is not None:
        ran = result.ran
        state = State.DONE if result.done else _failure(result)
        found = replace(found, state=state, reason=result.error)
        if ran is not None:
            element = ran.job
            found = replace(
                found, element=element, node=ran.host, seconds=ran.seconds, ended_at=ran.ended_at
            )
        return found
    if submitted is None or submitted.job is None:
        return found
    at = _place(submitted, task.index)
    element = f"{submitted.job}_{at}"
    began = directory.attempt(task.index, attempts) if attempts else None
    if began is not None and began.element != element:
        began = None  # an earlier job started it, not this one
    row = by_element.get((submitted.job, at))
    if row is None and why is None and (kept := _KEPT.get(ended.get(element, ""))):
        row = JobState(submitted.job, at, kept)
    state, reason, node = _by_scheduler(row, began is not None, why)
    first = next(index for index in submitted.what.elements[at] if index not in results)
    if (
        row is not None
        and row.state.final
        and state not in _OF_ALL
        and began is None
        and first != task.index
    ):
        # The cause that ended the job is reported for the task that was running.
        state, reason = State.STOPPED, f"the job ended ({state}) before this task started"
    node = node or (began.host if began else None)
    code = row.exit_code if row and not row.signal else None
    return replace(found, state=state, reason=reason, element=element, node=node, job_code=code)


def _deciding(
    task: int,
    profiling: Sequence[Submitted],
    reading: Sequence[Submitted],
    by_element: Mapping[tuple[str, int | None], JobState],
) -> Submitted | None:
    """Return the submission whose job has the state of a task without a result.

    That is the last that profiles it, or the one that reads its reports, once they exist.
    """
    last = next((own for own in reversed(profiling) if own.job), None)
    if last is None or last.job is None:
        return None
    row = by_element.get((last.job, _place(last, task)))
    if row is None or row.state != JobIs.COMPLETED:
        return last
    reader = (own for own in reading if own.job and own.what.number > last.what.number)
    return next(reader, last)


def _place(submitted: Submitted, task: int) -> int:
    """Return the index of the array element that contains a task."""
    return next(i for i, tasks in enumerate(submitted.what.elements) if task in tasks)


def _by_scheduler(
    row: JobState | None, begun: bool, why: str | None
) -> tuple[State, str | None, str | None]:
    """Return state, reason and node of a task without a result."""
    if row is None and why is None:
        # Slurm answered: the job ended too long ago for it to remember.
        return (
            State.LOST,
            "Slurm no longer knows the job of this task, and there is no result",
            None,
        )
    if row is None:
        return State.UNKNOWN, why, None
    if row.state == JobIs.UNKNOWN:
        return State.UNKNOWN, why or row.reason, row.node
    node = row.node
    match row.state:
        case JobIs.PENDING:
            return State.WAITING, explained(row.reason), None
        case JobIs.RUNNING:
            return (State.RUNNING if begun else State.WAITING), row.reason, node
    if row.state in _ENDED:
        return _ENDED[row.state], row.reason, node
    ended = "completed" if row.state == JobIs.COMPLETED else "failed"
    how = f" with exit code {row.exit_code}" if row.exit_code else ""
    how = f" by signal {row.signal}" if row.signal else how
    if not begun:
        return State.STOPPED, f"the job {ended}{how} before this task started", node
    return State.LOST, f"the job {ended}{how} without a result", node


def _with_silence(
    directory: BatchDirectory, tasks: Sequence[TaskState], results: Mapping[int, TaskResult]
) -> Iterator[TaskState]:
    """Yield tasks; one that prints no times has failed if others of its run print some."""
    measured = {run.run_id for run in directory.batch.runs if run.measures}
    done = [own.task for own in tasks if own.state == State.DONE and own.task.run_id in measured]
    printing = {task.run_id for task in done if results[task.index].prints_times}
    silent = {
        task.index
        for task in done
        if task.run_id in printing and not results[task.index].prints_times
    }
    for own in tasks:
        quiet = own.task.index in silent
        yield replace(own, state=State.FAILED, reason=SILENT) if quiet else own


def _failure(result: TaskResult) -> State:
    return State.TIMEOUT if result.failure in (TIME_LIMIT, "timeout") else State.FAILED


def last_collector(directory: BatchDirectory) -> int:
    """Return the number of the last submission of a collector; 0 if there is none."""
    numbers = (o.what.number for o in directory.submissions() if o.what.stage == Stage.COLLECT)
    return max(numbers, default=0)
