"""Runs a workload: launches or replays every configuration, ingests, and records the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from perfpipe.errors import PerfpipeError, TaskFailed
from perfpipe.pipelines.collectors.base import Context
from perfpipe.pipelines.confirming import confirm
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.measuring import Show, measure, profile, with_reports
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.profilers import require_tools
from perfpipe.pipelines.recording import RecordedTask, load_recording
from perfpipe.pipelines.runs import Run, counts_as_failed, result_of
from perfpipe.pipelines.search import Search
from perfpipe.pipelines.tasks import Task, directory_of, task_of
from perfpipe.runrecord import Recorded, RunRecord, TaskResult
from perfpipe.store import Store
from perfpipe.units import counted, format_ns

#: Returns the first screen of a run that is not complete.
Preview = Callable[[RunRecord], str]


def execute(
    plan: Plan, store: Store, progress: Progress, preview: Preview | None = None
) -> RunRecord:
    """Run every configuration and return the run record, which is then in the store.

    The preview of a run with one configuration is printed between its timeline and ncu; a sweep has
    none, because its configurations would fill the screen.  With `plan.resume`, the latest run
    of the workload is resumed, and its task results are kept.
    Raises ToolMissing before anything is launched if a profiler is missing.
    """
    if plan.collector == "replay":
        return _replay(plan, store, progress)
    with Launcher(plan.workload.execution, directory_of(plan.workload, plan.path)) as launcher:
        require_tools(plan.profilers, launcher)
        run = _resumed(plan, store, progress) or _new(plan, store)
        with run.track_status():
            known = run.results()
            for task in _tasks(plan, run):
                kept = known.get(task.key)
                if kept and _still_counts(kept, plan):
                    kept = replace(kept, index=task.index, generation=task.generation)
                    run.add(kept)
                    progress.step(_line(plan, kept, "kept"))
                    continue
                # Loads of a server that an interrupted run finished are kept.
                directory = run.task_directory(task, fresh=task.serve is None)
                context = Context(
                    plan.workload, task, launcher, directory, progress.detail,
                    progress.note if plan.alone else None,
                )  # fmt: skip
                show = _showing(run, progress, preview) if plan.alone and preview else None
                result = measure(plan, context, store, run.keep, show)
                run.add(result, directory)
                progress.step(_line(plan, result, "measured"))
            if plan.workload.tune is not None:
                confirm(plan, run, launcher, progress)
                _profile_search(plan, run, launcher, store, progress)
    return run.record


def _showing(run: Run, progress: Progress, preview: Preview) -> Show:
    """Return a function that prints the preview of a run; a failure is only noted."""

    def show() -> bool:
        progress.detail("reading the timeline")
        try:
            progress.note(preview(run.record))
        except PerfpipeError as error:
            progress.note(f"no preliminary verdict: {error}")
            return False
        return True

    return show


def _still_counts(kept: TaskResult, plan: Plan) -> bool:
    """Return whether a result of the resumed run saves a launch."""
    if not kept.done:
        return not plan.rerun_failed
    return set(plan.profilers) <= set(kept.profilers) or plan.workload.tune is not None


def _new(plan: Plan, store: Store, recording: Recorded | None = None) -> Run:
    file = plan.path.name if plan.words is None else ""
    return Run.new(store, plan.workload.name, file, plan.collector, recording, plan.words)


def _resumed(plan: Plan, store: Store, progress: Progress) -> Run | None:
    if not plan.resume:
        return None
    run = Run.latest_measured(store, plan.workload.name, plan.words)
    if run is None:
        progress.note(f"no run of {plan.workload.name} to resume: starting a new run")
        return None
    progress.note(f"resuming {run.record.run_id}")
    run.record = replace(run.record, collector=plan.collector)
    return run


def _tasks(plan: Plan, run: Run) -> Iterator[Task]:
    """Yield the tasks; in a search, after the previous generation has results."""
    if plan.workload.tune is None:
        yield from plan.tasks
        return
    search = Search(plan.workload, plan.path)
    index = 0
    for generation in range(search.generations):
        for params in search.next_generation(run.record.tasks):
            yield task_of(index, params, plan.workload, plan.path, generation)
            index += 1


def _profile_search(
    plan: Plan, run: Run, launcher: Launcher, store: Store, progress: Progress
) -> None:
    """Profile the fastest configuration of a search, and the default."""
    for result in Search(plan.workload, plan.path).finalists(run.record.tasks):
        if result.reports or not plan.profilers:
            continue
        where = (result.index, result.params, plan.workload, plan.path, result.generation)
        task = task_of(*where)
        directory = run.task_directory(task, fresh=False)
        context = Context(plan.workload, task, launcher, directory, progress.detail)
        run.add(profile(plan, context, store, result, run.keep), directory)


def _replay(plan: Plan, store: Store, progress: Progress) -> RunRecord:
    recording = load_recording(plan.recording)
    run = _new(plan, store, Recorded(recording.gpu, recording.captured_at, recording.tools))
    with run.track_status():
        for task, recorded in recording.tasks_for(plan.tasks, plan.workload, plan.path):
            result = replayed(task, recorded, plan.recording, store)
            run.add(result)
            progress.step(_line(plan, result, "replayed"))
    return run.record


def replayed(
    task: Task, recorded: RecordedTask | None, recording: Path, store: Store
) -> TaskResult:
    """Return the recorded result of a task, with its reports ingested."""
    if recorded is None:
        error = "this configuration is not in the recording"
        return replace(result_of(task), status="failed", failure="not_recorded", error=error)
    return with_reports(recorded.result(task), [recording / name for name in recorded.files], store)


def _line(plan: Plan, result: TaskResult, verb: str) -> str:
    what = result.label if result.params else plan.workload.name
    if not result.done:
        return f"{what}: FAILED: {result.error}"
    median = "" if result.wall_s is None else f", {format_ns(1e9 * result.wall_s)}"
    if result.median_ms is not None:
        median = f", median {format_ns(1e6 * result.median_ms)}"
    return f"{what}: {verb}{median}, {counted(len(result.reports), 'report')}"


def raise_for_status(record: RunRecord) -> None:
    """Raise TaskFailed if a task failed, or in a search, if no task succeeded."""
    failed = [task for task in record.tasks if counts_as_failed(task)]
    if not failed and not any(task.done for task in record.tasks):
        failed = list(record.tasks)
    if failed:
        raise TaskFailed(f"{len(failed)} of {len(record.tasks)} tasks failed: {failed[0].error}")
