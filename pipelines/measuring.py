"""Measures one configuration: validation and timing first, then a launch under each profiler."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfpipe.cores import cores
from perfpipe.errors import PerfpipeError, ToolMissing
from perfpipe.pipelines.collectors import compiled
from perfpipe.pipelines.collectors.base import Context, Job, Keep, ProgramFailed
from perfpipe.pipelines.collectors.guide import NothingToProfile
from perfpipe.pipelines.collectors.timing import Timing
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.pipelines.place import stopwatch
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.profilers import PROFILERS
from perfpipe.pipelines.runs import result_of
from perfpipe.pipelines.workload import Workload
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

#: Output of programs, next to the files of profilers.
_PRINTED = (".out", ".err")


#: Shows what is kept as soon as a timeline has been read and another profiler follows; returns
#: whether there was something to show.
Show = Callable[[], bool]


def forget(result: TaskResult, files: Sequence[Path]) -> None:
    """Keep nothing of an incomplete result."""


@dataclass(frozen=True)
class Measurement:
    """A task to measure: its plan, where it is launched, what keeps and shows partial results."""

    plan: Plan
    context: Context
    keep: Keep = forget
    show: Show | None = None


def measure(
    plan: Plan, context: Context, store: Store, keep: Keep = forget, show: Show | None = None
) -> TaskResult:
    """Return the result of a task, with reports."""
    (result,) = measure_in_turn([Measurement(plan, context, keep, show)], store)
    return result


def measure_in_turn(tasks: Sequence[Measurement], store: Store) -> list[TaskResult]:
    """Return the results of tasks whose launches without a profiler alternate: A B B A.

    Any drift (clocks, temperature, neighbors) then affects all tasks alike.  A search only times
    its tasks; the best are profiled at the end.  Servers run one after the other.
    """
    if any(task.context.task.serve is not None for task in tasks):
        return [_served(task, store) for task in tasks]
    began = [
        stopwatch(task.context.launcher, task.plan.workload.env, task.context.task.command)
        for task in tasks
    ]
    timed = timed_in_turn(tasks)
    results = []
    for task, ran, result in zip(tasks, began, timed, strict=True):
        if isinstance(result, PerfpipeError):
            code = result.program_code if isinstance(result, ProgramFailed) else None
            lost = failed(result_of(task.context.task), result)
            results.append(replace(lost, ran=replace(ran(), exit_code=code)))
            continue
        if not task.plan.workload.tune:
            result = profile(task.plan, task.context, store, result, task.keep, task.show)
        results.append(replace(result, ran=replace(ran(), exit_code=0)))
    return results


def _served(task: Measurement, store: Store) -> TaskResult:
    """Return the result of a server under load."""
    # Other programs need no client.
    from perfpipe.pipelines.serving.session import measure_served

    plan, context = task.plan, task.context

    def read(
        result: TaskResult, files: Sequence[Path], errors: Sequence[PerfpipeError]
    ) -> TaskResult:
        if plan.read_later:
            return failed(result, errors[0]) if errors else result
        result = with_reports(result, files, store, errors)
        discard_raw(context.workload, result, files)
        return result

    return measure_served(plan, context, store, task.keep, read)


def timed_in_turn(tasks: Sequence[Measurement]) -> list[TaskResult | PerfpipeError]:
    """Return the timed result of each task, or its error, after which it is not launched again."""
    timings = {at: Timing(task.context) for at, task in enumerate(tasks)}
    errors: dict[int, PerfpipeError] = {}
    for turn in range(max(task.plan.workload.launches for task in tasks)):
        order = [at for at, task in enumerate(tasks) if turn < task.plan.workload.launches]
        for at in order if turn % 2 == 0 else reversed(order):
            if at in errors:
                continue
            try:
                timings[at].launch()
            except ToolMissing:
                raise
            except PerfpipeError as error:
                errors[at] = error
    return [
        errors[at] if at in errors else timings[at].result(result_of(task.context.task))
        for at, task in enumerate(tasks)
    ]


def profile(
    plan: Plan,
    context: Context,
    store: Store,
    result: TaskResult,
    keep: Keep = forget,
    show: Show | None = None,
) -> TaskResult:
    """Return a result with reports; a failed profiler does not affect the others.

    If the plan says so, its reports are ingested later.
    """
    started = time.monotonic() - sum(result.seconds or ())
    job = Job(context, store, result, plan.profilers, started)
    errors: list[PerfpipeError] = []
    for at, name in enumerate(plan.profilers):
        if job.files and not plan.read_later:
            # Kept if the run ends here.
            job.read(job.files)
        keep(job.so_far(missing=plan.profilers[at:]), job.files)
        if show is not None and job.reports and not job.shown:
            job.shown = show()
        context.say(f"{context.task.label}: {name}")
        try:
            collected = PROFILERS[name].collect(job)
        except NothingToProfile as reason:
            job.notes.append(f"{name} profiled nothing: {reason}")
        except PerfpipeError as error:
            errors.append(error)
        else:
            job.files += [collected.path, *collected.others]
            job.notes += collected.notes
            job.seconds[name] = collected.seconds
    compiled.forget(context)
    result = job.so_far()
    if plan.read_later:
        result = replace(result, reports=())
        return failed(result, errors[0]) if errors else result
    result = with_reports(result, job.files, store, errors)
    if result.reading_s is not None:
        result = replace(result, reading_s=result.reading_s + job.reading_s)
    discard_raw(context.workload, result, job.files)
    return result


def discard_raw(workload: Workload, result: TaskResult, files: Sequence[Path]) -> None:
    """Delete the files of profilers, and their sources, unless the workload keeps them.

    They are kept unless all of them are in the store.
    """
    if workload.collect.keep_raw or len(result.reports) < len(files):
        return
    for path in files:
        for beside in path.parent.glob(f"{glob.escape(path.stem)}.*"):
            if beside.suffix not in _PRINTED:
                beside.unlink(missing_ok=True)


def with_reports(
    result: TaskResult, files: Iterable[Path], store: Store, errors: Iterable[PerfpipeError] = ()
) -> TaskResult:
    """Ingest a task's files and return its result with their reports.

    Its error is the first of `errors`, else that of the first file that cannot be ingested.
    """
    reports = []
    errors = list(errors)
    began = time.monotonic()
    for outcome in ingest_many(files, store, jobs=cores()):
        if isinstance(outcome, Failure):
            errors.append(outcome.error)
        else:
            reports.append(outcome.report_id)
    took = time.monotonic() - began if reports else None
    result = replace(result, reports=tuple(sorted(reports)), reading_s=took)
    return failed(result, errors[0]) if errors else result


def failed(result: TaskResult, error: PerfpipeError) -> TaskResult:
    """Return the result of a task that failed."""
    kind = error.kind if isinstance(error, ProgramFailed) else "profiler"
    if isinstance(error, ToolMissing):
        kind = "tool_missing"
    return replace(result, status="failed", failure=kind, error=str(error))
