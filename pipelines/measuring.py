"""Measures one configuration: validation and timing first, then a launch under each profiler."""

from __future__ import annotations

import glob
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfpipe.cores import cores
from perfpipe.errors import PerfpipeError, ToolMissing
from perfpipe.pipelines.collectors import compiled
from perfpipe.pipelines.collectors.base import Collected, Context, ProgramFailed
from perfpipe.pipelines.collectors.guide import Budget, NothingToProfile
from perfpipe.pipelines.collectors.ncu import collect_ncu
from perfpipe.pipelines.collectors.nsys import collect_nsys
from perfpipe.pipelines.collectors.timing import Timing
from perfpipe.pipelines.collectors.torch_profiler import collect_torch
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.pipelines.place import stopwatch
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.runs import result_of
from perfpipe.pipelines.workload import Workload
from perfpipe.runrecord import GpuState, TaskResult
from perfpipe.store import Store

#: Receives an incomplete result with the reports that are already in the store, and the files that
#: profilers have written: everything that remains if perfpipe ends here.
Keep = Callable[[TaskResult, Sequence[Path]], None]

#: Output of programs, next to the files of profilers.
_PRINTED = (".out", ".err")


def forget(result: TaskResult, files: Sequence[Path]) -> None:
    """Keep nothing of an incomplete result."""


@dataclass(frozen=True)
class Measurement:
    """A task to measure: its plan, where it is launched, and what keeps intermediate results."""

    plan: Plan
    context: Context
    keep: Keep = forget


def measure(plan: Plan, context: Context, store: Store, keep: Keep = forget) -> TaskResult:
    """Return the result of a task, with reports."""
    (result,) = measure_in_turn([Measurement(plan, context, keep)], store)
    return result


def measure_in_turn(tasks: Sequence[Measurement], store: Store) -> list[TaskResult]:
    """Return the results of tasks whose launches without a profiler alternate: A B B A.

    Any drift (clocks, temperature, neighbors) then affects all tasks alike.  A search only times
    its tasks; the best are profiled at the end.
    """
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
            result = profile(task.plan, task.context, store, result, task.keep)
        results.append(replace(result, ran=replace(ran(), exit_code=0)))
    return results


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
    plan: Plan, context: Context, store: Store, result: TaskResult, keep: Keep = forget
) -> TaskResult:
    """Return a result with reports; a failed profiler does not affect the others.

    If the plan says so, its reports are ingested later.
    """
    started = time.monotonic() - sum(result.seconds or ())
    errors: list[PerfpipeError] = []
    files: list[Path] = []
    notes: list[str] = []
    seconds: dict[str, float] = {}
    for name in plan.profilers:
        keep(result, files)
        context.say(f"{context.task.label}: {name}")
        try:
            if name == "ncu":
                collected = _profile_kernels(context, store, files, result, started, keep)
            else:
                collected = _collect(name, context, guides="ncu" in plan.profilers)
            files += [collected.path, *collected.others]
            notes += collected.notes
            seconds[name] = collected.seconds
        except NothingToProfile as reason:
            notes.append(f"ncu profiled nothing: {reason}")
        except PerfpipeError as error:
            errors.append(error)
    compiled.forget(context)
    root = store.runs_dir.resolve()
    result = replace(
        result,
        profilers=plan.profilers,
        files=tuple(str(path.relative_to(root)) for path in files),
        notes=(*result.notes, *notes),
        profiler_s=seconds,
    )
    if plan.read_later:
        return failed(result, errors[0]) if errors else result
    result = with_reports(result, files, store, errors)
    discard_raw(context.workload, result, files)
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


def _collect(name: str, context: Context, *, guides: bool) -> Collected:
    """Collect a timeline; `guides` means that ncu profiles the kernels that it shows."""
    wanted = context.workload.collect
    if name == "nsys" and wanted.nsys:
        compiled.forget(context)
        keep = guides and wanted.ncu is not None and wanted.ncu.guided
        return collect_nsys(context, wanted.nsys, compiled.environment(context) if keep else {})
    if name == "torch" and wanted.torch:
        return collect_torch(context, wanted.torch)
    raise ValueError(name)


def _profile_kernels(
    context: Context,
    store: Store,
    timelines: Sequence[Path],
    result: TaskResult,
    started: float,
    keep: Keep,
) -> Collected:
    """Profile kernels with ncu, chosen from the first timeline unless the workload chooses them.

    `started` is the time of the first launch of the task.  Raises NothingToProfile if the timeline
    has no kernel that may be profiled.
    """
    options = context.workload.collect.ncu
    if options is None:
        raise ValueError("ncu")
    if not options.guided:
        return collect_ncu(context, options)
    # Only guided launches need the analysis.
    from perfpipe.pipelines.guiding import guide_by

    reports = [
        outcome.report_id
        for outcome in ingest_many(timelines[:1], store, jobs=1)
        if not isinstance(outcome, Failure)
    ]
    keep(replace(result, reports=tuple(reports)), timelines)
    plain_s = statistics.median(result.seconds) if result.seconds else 0.0
    state = result.gpu_state or GpuState()
    spent_s = time.monotonic() - started
    # Only kernel replay saves memory.
    pinned_gb = state.pinned_gb if options.replay_mode == "kernel" else None
    budget = Budget(plain_s, spent_s, state.program_gb, pinned_gb)
    report = next(iter(reports), None)
    same = report is not None and compiled.is_kept(context)
    guide = guide_by(store, report, options, budget, from_start=same)
    return collect_ncu(context, options, guide)


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
