"""Runs a workload: launches or replays every configuration, ingests, and records what was done."""

from __future__ import annotations

import statistics
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, PerfpipeError, TaskFailed, ToolMissing
from perfpipe.provenance import provenance, utc_now
from perfpipe.store import Store, storing
from pipelines.collectors import collect_ncu, collect_nsys, time_task
from pipelines.console import Progress
from pipelines.ingesting import Failure, default_jobs, ingest_many
from pipelines.recording import load_recording
from pipelines.tools import find_tool, gpus
from pipelines.workload import Task, Workload

COLLECTORS = ("auto", "replay", "nsys", "ncu", "all")


@dataclass(frozen=True)
class Plan:
    """A workload, where it lies, its configurations, and how they are collected."""

    workload: Workload
    path: Path
    tasks: list[Task]
    collector: str

    @property
    def recording(self) -> Path:
        """The directory of the recording."""
        if self.workload.recording is None:
            raise InputError(f"{self.path}: there is no GPU here, and the file names no recording")
        return self.path.parent / self.workload.recording


def choose_collector(asked: str) -> tuple[str, str]:
    """Return the collector for `asked`, and a sentence that says why."""
    if asked != "auto":
        return asked, f"collector {asked}, as asked"
    if not gpus():
        return "replay", "no GPU here: replaying a recorded capture, nothing is measured"
    match [name for name in ("nsys", "ncu") if find_tool(name)]:
        case []:
            return "replay", "a GPU is here but neither nsys nor ncu: replaying a recorded capture"
        case [only]:
            reason = f"measuring on {gpus()[0]} with {only} alone, the other is not installed"
            return only, reason
        case _:
            return "all", f"measuring on {gpus()[0]}"


def execute(plan: Plan, store: Store, progress: Progress) -> dict[str, Any]:
    """Run every configuration and return the run record, which is in the store then."""
    started = utc_now()
    stamp = started.replace("-", "").replace(":", "").lower()
    record: dict[str, Any] = {
        "run_id": f"{plan.workload.name}-{stamp}-{uuid.uuid4().hex[:4]}",
        "workload": plan.workload.name,
        "workload_file": plan.path.name,
        "collector": plan.collector,
        "started_at": started,
        "status": "running",
        "reports": [],
        "tasks": [],
        "recording": None,
        "provenance": provenance(),
    }
    if plan.collector == "replay":
        _replay(plan, store, record, progress)
    else:
        _measure(plan, store, record, progress)
    record["status"] = "failed" if _failed(record) else "done"
    record["ended_at"] = utc_now()
    store.write_run(record)
    return record


def _replay(plan: Plan, store: Store, record: dict[str, Any], progress: Progress) -> None:
    recording = load_recording(plan.recording)
    record["recording"] = {
        "gpu": recording.gpu,
        "captured_at": recording.captured_at,
        "tools": recording.tools,
    }
    by_params = {_frozen(task.params): task for task in recording.tasks}
    for task in plan.tasks:
        entry = _entry(task)
        recorded = by_params.get(_frozen(task.params))
        if recorded is None:
            entry |= {"status": "failed", "error": "this configuration is not in the recording"}
        else:
            entry |= {"times_ms": recorded.times_ms, "validation": recorded.validation}
            files = [plan.recording / name for name in recorded.files]
            _ingest(files, store, entry, record)
        record["tasks"].append(entry)
        progress.step(_line(task, entry, "replayed"))


def _measure(plan: Plan, store: Store, record: dict[str, Any], progress: Progress) -> None:
    # Profilers run in the workload's directory, where a relative path would mean another place.
    directory = store.runs_dir.resolve() / record["run_id"] / "tasks"
    for task in plan.tasks:
        into = directory / f"{task.index:03d}"
        with storing(into):
            into.mkdir(parents=True)
        entry = _entry(task)
        try:
            _measure_task(plan, task, into, entry, store, record)
        except ToolMissing:
            raise
        except PerfpipeError as error:
            entry |= {"status": "failed", "error": str(error)}
        record["tasks"].append(entry)
        store.write_run(record)
        progress.step(_line(task, entry, "measured"))


def _measure_task(
    plan: Plan, task: Task, into: Path, entry: dict[str, Any], store: Store, record: dict[str, Any]
) -> None:
    workload, cwd = plan.workload, plan.path.resolve().parent
    collected = time_task(workload, task, cwd, into)
    entry |= {"times_ms": collected.times_ms, "validation": collected.validation}
    wanted = workload.collect
    if wanted.nsys and plan.collector in ("all", "nsys"):
        collected.files.append(collect_nsys(wanted.nsys, workload, task, cwd, into))
    if wanted.ncu and plan.collector in ("all", "ncu"):
        collected.files.append(collect_ncu(wanted.ncu, workload, task, cwd, into))
    entry["files"] = [str(path.relative_to(store.runs_dir.resolve())) for path in collected.files]
    _ingest(collected.files, store, entry, record)


def _entry(task: Task) -> dict[str, Any]:
    return {
        "index": task.index,
        "label": task.label,
        "params": dict(task.params),
        "key": task.key,
        "status": "done",
        "error": None,
        "flops": task.flops,
        "bytes": task.bytes,
        "dtype": task.dtype,
        "times_ms": [],
        "validation": None,
        "reports": [],
        "files": [],
    }


def _ingest(files: list[Path], store: Store, entry: dict[str, Any], record: dict[str, Any]) -> None:
    for result in ingest_many(files, store, jobs=default_jobs()):
        if isinstance(result, Failure):
            entry |= {"status": "failed", "error": str(result.error)}
            continue
        entry["reports"].append(result.report_id)
        if result.report_id not in record["reports"]:
            record["reports"].append(result.report_id)
    entry["reports"].sort()
    record["reports"].sort()


def _line(task: Task, entry: dict[str, Any], verb: str) -> str:
    if entry["status"] != "done":
        return f"{task.label}: FAILED: {entry['error']}"
    times = entry["times_ms"]
    median = f", median {statistics.median(times):.4g} ms" if times else ""
    return f"{task.label}: {verb}{median}, {len(entry['reports'])} reports"


def _frozen(params: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


def _failed(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [task for task in record["tasks"] if task["status"] != "done"]


def raise_for_status(record: dict[str, Any]) -> None:
    """Raise TaskFailed when a task of a run failed."""
    failed = _failed(record)
    if failed:
        total = len(record["tasks"])
        raise TaskFailed(f"{len(failed)} of {total} tasks failed: {failed[0]['error']}")
