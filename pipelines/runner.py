"""Runs a workload: launches or replays every configuration, ingests, and records what was done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, PerfpipeError, TaskFailed, ToolMissing
from perfpipe.store import Store
from pipelines.collectors.base import Context, ProgramFailed
from pipelines.collectors.ncu import collect_ncu
from pipelines.collectors.nsys import collect_nsys
from pipelines.collectors.timing import time_task
from pipelines.collectors.torch_profiler import collect_torch
from pipelines.console import Progress
from pipelines.ingesting import Failure, default_jobs, ingest_many
from pipelines.launcher import Launcher
from pipelines.recording import load_recording
from pipelines.runs import EMPTY_RESULT, Run, counts_as_failed, result_of
from pipelines.tasks import Task, directory_of, task_of, tasks
from pipelines.tools import find_tool_by, gpus_by, need_tool
from pipelines.tuning import Search
from pipelines.workload import Execution, Workload

COLLECTORS = ("auto", "all", "timing", "nsys", "ncu", "torch", "replay")

#: Profilers that each collector runs, beside the plain launch.
_PROFILERS = {
    "all": ("nsys", "ncu", "torch"),
    "timing": (),
    "nsys": ("nsys",),
    "ncu": ("ncu",),
    "torch": ("torch",),
}


@dataclass(frozen=True)
class Plan:
    """A workload, where it lies, its configurations, and how they are collected."""

    workload: Workload
    path: Path
    tasks: list[Task]
    collector: str
    resume: bool = False
    rerun_failed: bool = False

    @property
    def recording(self) -> Path:
        """The directory of the recording."""
        if self.workload.recording is None:
            raise InputError(f"{self.path}: there is no GPU here, and the file names no recording")
        return self.path.parent / self.workload.recording

    @property
    def profilers(self) -> tuple[str, ...]:
        """The profilers that run: those of the collector that the workload asks for."""
        wanted = self.workload.collect
        return tuple(name for name in _PROFILERS[self.collector] if getattr(wanted, name))

    @property
    def launches(self) -> int:
        """How many tasks will run at most."""
        tune = self.workload.tune
        if tune is None:
            return len(self.tasks)
        if self.collector == "replay":
            return len(load_recording(self.recording).tasks)
        return tune.generations * tune.population


def planned_tasks(
    workload: Workload, path: Path, filters: dict[str, list[str]] | None = None
) -> list[Task]:
    """Return the tasks that are known beforehand: all, or the first generation of a search."""
    if workload.tune is None:
        return tasks(workload, path, filters)
    search = Search(workload, path)
    first = enumerate(search.next_generation([]))
    return [task_of(index, params, workload, path, 0) for index, params in first]


def choose_collector(asked: str, launcher: Launcher | None = None) -> tuple[str, str]:
    """Return the collector for `asked`, and a sentence that says why."""
    if asked != "auto":
        return asked, f"collector {asked}, as asked"
    launcher = launcher or Launcher(Execution(), Path.cwd())
    found = gpus_by(launcher)
    if not found:
        return "replay", "no GPU here: replaying a recorded capture, nothing is measured"
    match [name for name in ("nsys", "ncu") if find_tool_by(launcher, name)]:
        case []:
            return "replay", "a GPU is here but neither nsys nor ncu: replaying a recorded capture"
        case [only]:
            reason = f"measuring on {found[0]} with {only} alone, the other is not installed"
            return only, reason
        case _:
            return "all", f"measuring on {found[0]}"


def execute(plan: Plan, store: Store, progress: Progress) -> dict[str, Any]:
    """Run every configuration and return the run record, which is in the store then.

    With `plan.resume` the newest run of the workload is gone on with: tasks whose result it has
    are kept.  Raises ToolMissing before anything is launched where a profiler is missing.
    """
    if plan.collector == "replay":
        return _replay(plan, store, progress)
    with Launcher(plan.workload.execution, directory_of(plan.workload, plan.path)) as launcher:
        for name in plan.profilers:
            if name != "torch":
                need_tool(name, launcher)
        run = _resumed(plan, store, progress) or Run.new(store, **_facts(plan))
        known = run.results()
        with run.going():
            for task in _tasks(plan, run):
                kept = known.get(task.key)
                if kept and _still_counts(kept, plan):
                    kept |= {"index": task.index, "generation": task.generation}
                    run.add(kept)
                    progress.step(_line(task, kept, "kept"))
                    continue
                directory = run.task_directory(task)
                context = Context(plan.workload, task, launcher, directory, progress.detail)
                result = measure(plan, context, store)
                run.add(result, directory)
                progress.step(_line(task, result, "measured"))
            if plan.workload.tune is not None:
                _profile_search(plan, run, launcher, store, progress)
    return run.record


def _still_counts(kept: dict[str, Any], plan: Plan) -> bool:
    """Say whether a result of the run that is resumed spares a launch."""
    if kept["status"] != "done":
        return not plan.rerun_failed
    return set(plan.profilers) <= set(kept["profilers"]) or plan.workload.tune is not None


def _facts(plan: Plan) -> dict[str, Any]:
    return {
        "workload": plan.workload.name,
        "workload_file": plan.path.name,
        "collector": plan.collector,
    }


def _resumed(plan: Plan, store: Store, progress: Progress) -> Run | None:
    if not plan.resume:
        return None
    run = Run.unfinished(store, plan.workload.name)
    if run is None:
        progress.note(f"no run of {plan.workload.name} to resume: this is the first")
    else:
        progress.note(f"going on with {run.record['run_id']}")
        run.record["collector"] = plan.collector
    return run


def _tasks(plan: Plan, run: Run) -> Iterator[Task]:
    """Yield the tasks; those of a search as results of the generation before are there."""
    if plan.workload.tune is None:
        yield from plan.tasks
        return
    search = Search(plan.workload, plan.path)
    index = 0
    for generation in range(search.generations):
        for params in search.next_generation(run.record["tasks"]):
            yield task_of(index, params, plan.workload, plan.path, generation)
            index += 1


def measure(plan: Plan, context: Context, store: Store) -> dict[str, Any]:
    """Return the result of a task: its check and times first, then a launch under each profiler.

    A search times its tasks only; those that are worth it are profiled in the end.
    """
    result = result_of(context.task)
    try:
        result |= time_task(context, plan.workload.collect.nvml)
    except ToolMissing:
        raise
    except PerfpipeError as error:
        return result | _failed(error)
    return result if plan.workload.tune else profile(plan, context, store, result)


def profile(plan: Plan, context: Context, store: Store, result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with reports; a profiler that fails takes nothing from the others."""
    errors: list[PerfpipeError] = []
    files: list[Path] = []
    for name in plan.profilers:
        context.say(f"{context.task.label}: {name}")
        try:
            files.append(_collect(name, context))
        except PerfpipeError as error:
            errors.append(error)
    root = store.runs_dir.resolve()
    result |= {"reports": [], "files": [str(path.relative_to(root)) for path in files]}
    result["profilers"] = list(plan.profilers)
    errors += ingest_files(files, store, result)
    return result | _failed(errors[0]) if errors else result


def _profile_search(
    plan: Plan, run: Run, launcher: Launcher, store: Store, progress: Progress
) -> None:
    """Profile the quickest configuration of a search, and its default beside it."""
    for result in Search(plan.workload, plan.path).worth_profiling(run.record["tasks"]):
        if result["reports"] or not plan.profilers:
            continue
        where = (result["index"], result["params"], plan.workload, plan.path, result["generation"])
        task = task_of(*where)
        directory = run.task_directory(task, fresh=False)
        context = Context(plan.workload, task, launcher, directory, progress.detail)
        run.add(profile(plan, context, store, result), directory)


def _collect(name: str, context: Context) -> Path:
    wanted = context.workload.collect
    if name == "nsys" and wanted.nsys:
        return collect_nsys(context, wanted.nsys)
    if name == "ncu" and wanted.ncu:
        return collect_ncu(context, wanted.ncu)
    if name == "torch" and wanted.torch:
        return collect_torch(context, wanted.torch)
    raise ValueError(name)


def _failed(error: PerfpipeError) -> dict[str, Any]:
    kind = error.kind if isinstance(error, ProgramFailed) else "profiler"
    return {"status": "failed", "failure": kind, "error": str(error)}


def ingest_files(
    files: Iterable[Path], store: Store, result: dict[str, Any]
) -> list[PerfpipeError]:
    """Ingest a task's files into its result's reports; returns what went wrong."""
    errors = []
    for outcome in ingest_many(files, store, jobs=default_jobs()):
        if isinstance(outcome, Failure):
            errors.append(outcome.error)
        else:
            result["reports"].append(outcome.report_id)
    result["reports"].sort()
    return errors


def _replay(plan: Plan, store: Store, progress: Progress) -> dict[str, Any]:
    recording = load_recording(plan.recording)
    run = Run.new(store, **_facts(plan))
    run.record["recording"] = {
        "gpu": recording.gpu,
        "captured_at": recording.captured_at,
        "tools": recording.tools,
    }
    with run.going():
        for task, recorded in recording.tasks_for(plan.tasks, plan.workload, plan.path):
            result = result_of(task)
            if recorded is None:
                error = "this configuration is not in the recording"
                result |= {"status": "failed", "failure": "not_recorded", "error": error}
            else:
                result |= {name: recorded[name] for name in EMPTY_RESULT if name in recorded}
                result |= {"files": [], "reports": []}
                files = [plan.recording / name for name in recorded["files"]]
                errors = ingest_files(files, store, result)
                result |= _failed(errors[0]) if errors else {}
            run.add(result)
            progress.step(_line(task, result, "replayed"))
    return run.record


def _line(task: Task, result: dict[str, Any], verb: str) -> str:
    if result["status"] != "done":
        return f"{task.label}: FAILED: {result['error']}"
    times = result["times_ms"]
    median = f", median {statistics.median(times):.4g} ms" if times else ""
    return f"{task.label}: {verb}{median}, {len(result['reports'])} reports"


def raise_for_status(record: dict[str, Any]) -> None:
    """Raise TaskFailed when a task of a run failed; in a search, when nothing succeeded."""
    tasks = record["tasks"]
    failed = [task for task in tasks if counts_as_failed(task)]
    if not failed and not any(task["status"] == "done" for task in tasks):
        failed = tasks
    if failed:
        raise TaskFailed(f"{len(failed)} of {len(tasks)} tasks failed: {failed[0]['error']}")
