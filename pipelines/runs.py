"""A run on disk: run.json, and a directory with a result.json for each task."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_json, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.provenance import provenance, utc_now
from perfpipe.store import Store, storing
from pipelines.tasks import Task

#: What a result holds where its collectors gave nothing.
EMPTY_RESULT: dict[str, Any] = {
    "status": "done",
    "failure": None,
    "error": None,
    "times_ms": [],
    "launches_ms": [],
    "timing_method": None,
    "seconds": [],
    "validation": None,
    "kernel": None,
    "software": None,
    "gpu_state": None,
    "profilers": [],
    "reports": [],
    "files": [],
}

_RESULT = "result.json"


class Run:
    """A run of a workload; results are on disk as soon as they are known."""

    def __init__(self, store: Store, record: dict[str, Any]) -> None:
        self.store, self.record = store, record
        # Programs run in the workload's directory, where a relative path would mean another place.
        self.directory: Path = store.runs_dir.resolve() / str(record["run_id"])

    @classmethod
    def new(cls, store: Store, **facts: Any) -> Run:
        """Begin a run; `facts` are workload, workload_file and collector."""
        started = utc_now()
        stamp = started.replace("-", "").replace(":", "").lower()
        return cls(
            store,
            {
                "run_id": f"{facts['workload']}-{stamp}-{uuid.uuid4().hex[:4]}",
                **facts,
                "started_at": started,
                "status": "running",
                "reports": [],
                "tasks": [],
                "recording": None,
                "provenance": provenance(),
            },
        )

    @classmethod
    def unfinished(cls, store: Store, workload: str) -> Run | None:
        """Return the newest run of a workload that was measured, to be gone on with."""
        runs = [run for run in store.runs() if run["workload"] == workload]
        measured = [run for run in runs if run["collector"] != "replay"]
        return cls(store, measured[-1]) if measured else None

    def results(self) -> dict[str, dict[str, Any]]:
        """Return what tasks of this run gave already, by key; half a result does not count."""
        found = {}
        for path in sorted((self.directory / "tasks").glob(f"*/{_RESULT}")):
            with contextlib.suppress(StoreError):
                result = read_json(path, "result of a task")
                if result.get("schema_version") == SCHEMA_VERSION:
                    del result["schema_version"]
                    found[str(result["key"])] = result
        return found

    def task_directory(self, task: Task, *, fresh: bool = True) -> Path:
        """Return a directory for what a task prints and records, empty if it is to be `fresh`."""
        directory = self.directory / "tasks" / f"{task.index:03d}-{task.key[:8]}"
        with storing(directory):
            if fresh:
                shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True, exist_ok=True)
        return directory

    def add(self, result: dict[str, Any], directory: Path | None = None) -> None:
        """Keep a task's result, in its directory first."""
        if directory is not None:
            with storing(directory):
                write_json(directory / _RESULT, {"schema_version": SCHEMA_VERSION, **result})
        others = [task for task in self.record["tasks"] if task["index"] != result["index"]]
        self.record["tasks"] = [*others, result]
        self.record["tasks"].sort(key=lambda task: task["index"])
        known = {report for task in self.record["tasks"] for report in task["reports"]}
        self.record["reports"] = sorted(known)
        self.write()

    def write(self) -> None:
        """Write run.json."""
        self.store.write_run(self.record)

    @contextlib.contextmanager
    def going(self) -> Iterator[None]:
        """Mark the run as running, and in the end by how it went."""
        self.record |= {"status": "running", "ended_at": None, "tasks": [], "reports": []}
        self.write()
        try:
            yield
        except BaseException:
            self.record |= {"status": "interrupted", "ended_at": utc_now()}
            with contextlib.suppress(StoreError):
                self.write()
            raise
        failed = any(counts_as_failed(task) for task in self.record["tasks"])
        nothing = not any(task["status"] == "done" for task in self.record["tasks"])
        self.record |= {"status": "failed" if failed or nothing else "done"}
        self.record |= {"ended_at": utc_now()}
        self.write()


def result_of(task: Task) -> dict[str, Any]:
    """Return the beginnings of a task's result."""
    return {
        "index": task.index,
        "label": task.label,
        "params": dict(task.params),
        "key": task.key,
        "generation": task.generation,
        "command": list(task.command),
        "flops": task.flops,
        "bytes": task.bytes,
        "dtype": task.dtype,
        **EMPTY_RESULT,
    }


def counts_as_failed(result: dict[str, Any]) -> bool:
    """Say whether a task's failure is one of the run: in a search, failures are data."""
    searched = result.get("generation") is not None and result.get("failure") != "profiler"
    return result["status"] != "done" and not searched
