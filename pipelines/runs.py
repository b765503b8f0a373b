"""A run on disk: run.json, and a directory with a result.json for each task."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfpipe.directories import storing
from perfpipe.errors import StoreError
from perfpipe.pipelines.claim import claimed
from perfpipe.pipelines.signals import Ended
from perfpipe.pipelines.tasks import Task
from perfpipe.provenance import provenance, utc_now
from perfpipe.runrecord import Recorded, RunRecord, TaskResult
from perfpipe.secrets import hide_words
from perfpipe.store import Store

#: Name of the file with a task's result.
RESULT = "result.json"


def task_folder(index: int, key: str) -> str:
    """Return the name of a task's directory in its run."""
    return f"{index:03d}-{key[:8]}"


def new_id(name: str, at: str) -> str:
    """Return a unique id that begins with a name and a time.

    >>> new_id("gemm", "2026-11-22T14:43:38Z")[:-4]
    'gemm-20261122t144338z-'
    """
    stamp = at.replace("-", "").replace(":", "").lower()
    return f"{name}-{stamp}-{uuid.uuid4().hex[:4]}"


class Run:
    """A run of a workload; results are written as soon as they are known."""

    def __init__(self, store: Store, record: RunRecord) -> None:
        self.store, self.record = store, record
        # Programs run in the workload's directory, so a relative path would be wrong there.
        self.directory: Path = store.runs_dir.resolve() / record.run_id
        #: Whether the store says that it is running.
        self._open = False

    @classmethod
    def new(
        cls,
        store: Store,
        workload: str,
        workload_file: str,
        collector: str,
        recording: Recorded | None = None,
        words: tuple[str, ...] | None = None,
    ) -> Run:
        """Begin a run."""
        started = utc_now()
        record = RunRecord(
            run_id=new_id(workload, started),
            workload=workload,
            workload_file=workload_file,
            words=words,
            collector=collector,
            started_at=started,
            recording=recording,
            provenance=provenance(),
        )
        return cls(store, record)

    @classmethod
    def latest_measured(
        cls, store: Store, workload: str, words: tuple[str, ...] | None = None
    ) -> Run | None:
        """Return the latest measured run of a workload, finished or not."""
        runs = cls.measured(store, workload, words)
        return cls(store, runs[-1]) if runs else None

    @staticmethod
    def measured(
        store: Store, workload: str, words: tuple[str, ...] | None = None
    ) -> list[RunRecord]:
        """Return the measured runs of a workload, in the order of their start.

        For a program without a workload file, these are the runs with the same command line.
        """
        # Records have the words without secrets.
        words = words and hide_words(words)
        named = [run for run in store.runs() if run.workload == workload and run.words == words]
        return [run for run in named if run.launched]

    def results(self) -> dict[str, TaskResult]:
        """Return the complete results of this run, by task key."""
        found = {}
        for path in sorted((self.directory / "tasks").glob(f"*/{RESULT}")):
            with contextlib.suppress(StoreError):
                result = TaskResult.read(path)
                found[result.key] = result
        return found

    def task_directory(self, task: Task, *, fresh: bool = True) -> Path:
        """Return the directory for a task's output and reports, emptied if `fresh`."""
        directory = self.directory / "tasks" / task_folder(task.index, task.key)
        with storing(directory):
            if fresh:
                shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True, exist_ok=True)
        return directory

    def add(self, result: TaskResult, directory: Path | None = None) -> None:
        """Store a task's result, in its directory first."""
        if directory is not None:
            with storing(directory):
                result.write(directory / RESULT)
        others = [task for task in self.record.tasks if task.index != result.index]
        tasks = tuple(sorted((*others, result), key=lambda task: task.index))
        reports = tuple(sorted({report for task in tasks for report in task.reports}))
        self.record = replace(self.record, tasks=tasks, reports=reports)
        self.write()

    def keep(self, result: TaskResult, files: Sequence[Path]) -> None:
        """Add a result that has reports to the record, in case its task is interrupted.

        Only the record has it: a resumed run measures the task again.
        """
        if not {*result.reports} <= {*self.record.reports}:
            self.add(result)

    def write(self) -> None:
        """Write run.json."""
        self.store.write_run(self.record)

    @contextlib.contextmanager
    def track_status(self) -> Iterator[None]:
        """Mark the run as running, and at the end with its outcome.

        Raises InputError if another process runs it.
        """
        with claimed(self.directory, lambda: self._open):
            yield from self._tracked()

    def _tracked(self) -> Iterator[None]:
        self._open = True
        self.record = replace(self.record, status="running", ended_at=None, tasks=(), reports=())
        try:
            self.write()
        except StoreError:
            self._open = False
            raise
        try:
            yield
            failed = any(counts_as_failed(task) for task in self.record.tasks)
            nothing = not any(task.done for task in self.record.tasks)
            self._end("failed" if failed or nothing else "done")
        except BaseException as error:
            if isinstance(error, Ended) and self.record.reports:
                words = ("perfpipe report", self.record.run_id, self.store.option)
                error.advice = f"; to show what was measured: {' '.join(filter(None, words))}"
            with contextlib.suppress(StoreError):
                self._end("interrupted")
            raise

    def _end(self, status: str) -> None:
        """Record how the run ended."""
        self.record = replace(self.record, status=status, ended_at=utc_now())
        self.write()
        self._open = False


def result_of(task: Task) -> TaskResult:
    """Return an empty result of a task."""
    return TaskResult(
        index=task.index,
        label=task.label,
        params=dict(task.params),
        key=task.key,
        generation=task.generation,
        default=task.default,
        command=task.command,
        flops=task.flops,
        samples=task.samples,
        tokens=task.tokens,
        bytes=task.bytes,
        dtype=task.dtype,
    )


def counts_as_failed(result: TaskResult) -> bool:
    """Return whether a task's failure fails the run; in a search, failures are data."""
    searched = result.generation is not None and result.failure != "profiler"
    return not result.done and not searched


def failure_of(result: TaskResult, where: str = "") -> str:
    """Return which configuration failed and why; `where` names the arm, if there are two."""
    # A configuration without parameters has no name of its own.
    label = "" if result.label == "-" else result.label
    what = ", ".join(part for part in (where, label) if part)
    why = (result.error or f"not measured ({result.status})").rstrip(".")
    return f"{what}: {why}" if what else why
