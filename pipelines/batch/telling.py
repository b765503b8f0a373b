"""The output of the batch commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from perfpipe.batchrecord import State, TaskState
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.state import BatchState
from perfpipe.pipelines.batch.waiting import line_of, waiting_lines
from perfpipe.units import counted
from perfpipe.visible import visible_line

#: Most tasks of each kind that `status` lists.
_LISTED = 20

#: Last lines of a log that are printed.
_LINES = 200


def status_lines(directory: BatchDirectory, state: BatchState) -> list[str]:
    """Return the state of a batch: in total, by run, and the tasks that failed or run."""
    lines = [f"{directory.batch.batch_id}: {_counts(state.counts, directory.batch.tasks)}"]
    if len(directory.batch.runs) > 1:
        for run in directory.batch.runs:
            own = [task for task in state.tasks if task.task.run_id == run.run_id]
            found = Counter(task.state for task in own)
            lines.append(f"  {run.workload}: {_counts(found, len(own))}")
    lines += [f"waiting: {line}" for line in waiting_lines(state)]
    failed = [t for t in state.tasks if not t.state.in_flight and t.state != State.DONE]
    running = [t for t in state.tasks if t.state == State.RUNNING]
    for title, tasks in (("running", running), ("not successful", failed)):
        if tasks:
            lines += [f"{title}:", *(f"  {line_of(task)}" for task in tasks[:_LISTED])]
            if len(tasks) > _LISTED:
                lines.append(f"  and {len(tasks) - _LISTED} more (--json lists all)")
    if state.unasked:
        lines.append(f"Slurm does not answer: {state.unasked}")
    if failed and state.finished:
        lines.append(f"to rerun them: perfpipe batch resume {directory.batch.batch_id}")
    return [*lines, *_outcome(directory, state)]


def _outcome(directory: BatchDirectory, state: BatchState) -> Iterator[str]:
    outcome = directory.outcome()
    if outcome is not None and state.finished:
        yield f"collected: {directory.path / 'report.html'}"
    elif state.collector is not None and not state.collector.state.final:
        yield f"collector: job {state.collector.job} {state.collector.state.value}"


def _counts(counts: dict[State, int], total: int) -> str:
    found = [f"{counts[state]} {state}" for state in State if counts.get(state)]
    return f"{counted(total, 'task')}: {', '.join(found)}"


def task_document(directory: BatchDirectory, state: BatchState) -> dict[str, Any]:
    """Return the state of a batch as data."""
    return {
        "batch": directory.batch.batch_id,
        "counts": {str(name): number for name, number in state.counts.items()},
        "finished": state.finished,
        "unknown_because": state.unasked,
        "jobs": list(state.jobs),
        "tasks": [{**asdict(task), "state": str(task.state)} for task in state.tasks],
    }


def log_lines(directory: BatchDirectory, task: TaskState) -> Iterator[str]:
    """Yield the last output of a task's job, and the output files of its program."""
    yield line_of(task)
    log = directory.log_of(task.element)
    if log is None:
        yield "no output yet" if task.state.in_flight else "the job printed nothing"
    else:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        yield f"{log}:" if len(lines) <= _LINES else f"{log}, the last {_LINES} lines:"
        yield from (f"  {visible_line(line)}" for line in lines[-_LINES:])
    folder = directory.task_directory(task.task)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    if files:
        yield f"{folder}:"
        yield from (f"  {path.relative_to(folder)}" for path in files)


def listing(batches: Iterable[BatchDirectory]) -> Iterator[str]:
    """Yield a line for each batch."""
    for one in batches:
        batch, outcome = one.batch, one.outcome()
        names = ", ".join(dict.fromkeys(run.workload for run in batch.runs))
        results = sum(one.result_path(task).exists() for task in one.tasks)
        stands = f"{results} of {batch.tasks} tasks have a result"
        if not one.submitted:
            stands = "not submitted: Slurm took no job"
        if outcome is not None and not outcome.resubmitted:
            stands = ", ".join(f"{number} {name}" for name, number in outcome.counts.items())
        yield f"{batch.batch_id}  {batch.created_at}  {names}: {stands}"
