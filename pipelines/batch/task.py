"""The program of a batch job: runs the tasks of its array element in sequence."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from perfpipe.batchrecord import Attempt, BatchTask, Stage, Submission, TaskSummary
from perfpipe.directories import storing
from perfpipe.errors import InputError, PerfpipeError
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.freezing import INGEST, task_again
from perfpipe.pipelines.batch.packing import in_turn
from perfpipe.pipelines.collectors.base import Context
from perfpipe.pipelines.console import say
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.measuring import (
    Measurement,
    discard_raw,
    failed,
    measure_in_turn,
    with_reports,
)
from perfpipe.pipelines.place import host_name, stopwatch
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.profilers import require_tools
from perfpipe.pipelines.recording import load_recording
from perfpipe.pipelines.runner import replayed
from perfpipe.pipelines.runs import RESULT, result_of
from perfpipe.pipelines.signals import Ended, launching
from perfpipe.pipelines.tasks import directory_of
from perfpipe.pipelines.workload import Execution
from perfpipe.provenance import utc_now
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import TIME_LIMIT, RunRecord, TaskResult

#: Results whose reports have not been read yet.
_PROFILED = "profiled.json"

#: The signal that Slurm sends before the time limit.
_WARNING = signal.SIGUSR1


def run_element(directory: BatchDirectory, number: int, at: int) -> bool:
    """Run the tasks of an array element; return whether all succeeded.

    A task that has a result is not run again.  When Slurm warns about the time limit, the running
    task is stopped, its result says so, and later tasks are not started.
    """
    submission = directory.read_submission(number)
    if not 0 <= at < len(submission.elements):
        raise InputError(
            f"{directory.batch.batch_id}: submission {number} does not have element {at}"
        )
    done = True
    tasks = [directory.tasks[index] for index in submission.elements[at]]
    with launching(), _warned() as warning:
        for group in in_turn(tasks, directory.batch.arms):
            running = []
            for task in group:
                known = directory.result(task)
                if known is None:
                    running.append(_Running(directory, task, submission))
                else:
                    say(f"[{task.index}] {task.workload} {task.label}: already has a result")
                    done &= known.done
            for own, result in zip(running, _results(running, warning), strict=True):
                task = own.task
                say(f"[{task.index}] {task.workload} {task.label}: {result.error or 'done'}")
                # A job that reads the reports follows only if this one exits with 0.
                done &= result.done or own.read_later
            if warning.received:
                return False
    return done


@dataclass
class _Warning:
    """Whether the job was warned; ignored while results are written."""

    received: bool = False
    writing: bool = False


@contextmanager
def _warned() -> Iterator[_Warning]:
    """Raise Ended in the block when the job is warned, once."""
    state = _Warning()

    def end(number: int, _: FrameType | None) -> None:
        first, state.received = not state.received, True
        if first and not state.writing:
            raise Ended(number)

    before = signal.signal(_WARNING, end)
    try:
        yield state
    finally:
        signal.signal(_WARNING, before)


def _results(running: Sequence[_Running], warning: _Warning) -> list[TaskResult]:
    """Return the results of tasks that are measured alternately; they are then on disk."""
    try:
        if len(running) > 1 and all(task.measured for task in running):
            results = _measured(running)
        else:
            results = [task.result() for task in running]
    except Ended as end:
        if end.number != _WARNING:
            raise
        results = [task.stopped() for task in running]
    except Exception as error:
        # Some libraries turn a signal into their own exception.
        if warning.received:
            results = [task.stopped() for task in running]
        elif isinstance(error, PerfpipeError):
            results = [failed(task.blank(), error) for task in running]
        else:
            raise
    warning.writing = True
    try:
        return _written(running, results)
    finally:
        warning.writing = False


def _written(running: Sequence[_Running], results: Sequence[TaskResult]) -> list[TaskResult]:
    return [task.write(result) for task, result in zip(running, results, strict=True)]


def _measured(running: Sequence[_Running]) -> list[TaskResult]:
    """Launch programs, alternating between several tasks.

    Raises ToolMissing before any launch if a profiler is missing.
    """
    first = running[0]
    cwd = directory_of(first.workload, Path(first.run.file))
    with Launcher(first.workload.execution, cwd) as launcher:
        tasks = [task.measurement(launcher) for task in running]
        require_tools(tasks[0].plan.profilers, launcher)
        return measure_in_turn(tasks, first.store)


class _Running:
    """A running task; its partial result is kept if it must end early."""

    def __init__(self, directory: BatchDirectory, task: BatchTask, submission: Submission) -> None:
        self.directory, self.task, self.submission = directory, task, submission
        self.store = directory.store
        self.run = directory.run_of(task)
        self.workload = directory.workload(task.run_id)
        self.attempt = directory.begin(Attempt(task.index, 1, host_name(), utc_now(), _element()))
        self.ran = stopwatch(Launcher(Execution(), Path.cwd()), self.workload.env)
        self.partial: TaskResult | None = None
        self.files: Sequence[Path] = ()

    @property
    def read_later(self) -> bool:
        """Whether another job reads the reports of this one."""
        slurm = self.workload.slurm
        separate = slurm is not None and slurm.ingest == "separate"
        return separate and self.submission.stage == Stage.PROFILE

    @property
    def measured(self) -> bool:
        """Whether its program is launched here."""
        return self.run.measures and self.submission.stage == Stage.PROFILE

    def result(self) -> TaskResult:
        """Return its result; it is not on disk yet."""
        if self.measured:
            (result,) = _measured([self])
            return result
        if self.submission.stage == Stage.INGEST:
            return self._read_profiled()
        return self._read_input() if self.run.collector == INGEST else self._replay()

    def measurement(self, launcher: Launcher) -> Measurement:
        """Return the task to measure, with its own directory."""
        path = Path(self.run.file)
        task = task_again(self.task, self.workload, path)
        kind = self.run.collector
        plan = Plan(self.workload, path, [task], kind, read_later=self.read_later)
        into = self.directory.task_directory(self.task) / f"attempt-{self.attempt.number}"
        with storing(into):
            into.mkdir(parents=True, exist_ok=True)
        return Measurement(plan, Context(self.workload, task, launcher, into, say), self._keep)

    def _keep(self, result: TaskResult, files: Sequence[Path]) -> None:
        self.partial, self.files = result, tuple(files)

    def stopped(self) -> TaskResult:
        """Return the partial result of a task that reached the time limit of its job."""
        result = with_reports(self.partial or self.blank(), self.files, self.store)
        error = (
            "stopped shortly before the job's time limit (raise --time, or use --tasks-per-job 1)"
        )
        return replace(result, status="failed", failure=TIME_LIMIT, error=error)

    def _replay(self) -> TaskResult:
        path = Path(self.run.file)
        if self.workload.recording is None:
            raise InputError(f"{path}: the workload does not have a recording")
        folder = path.parent / self.workload.recording
        task = task_again(self.task, self.workload, path)
        recording = load_recording(folder)
        (pair,) = recording.tasks_for([task], self.workload, path)
        return replayed(*pair, folder, self.store)

    def _read_input(self) -> TaskResult:
        return with_reports(self.blank(), [Path(self.task.input or "")], self.store)

    def _read_profiled(self) -> TaskResult:
        """Read the reports of another job; raises StoreError if it did not record them."""
        profiled = TaskResult.read(self.directory.task_directory(self.task) / _PROFILED)
        if not profiled.files:
            return profiled
        files = [self.store.runs_dir.resolve() / name for name in profiled.files]
        read = with_reports(profiled, files, self.store)
        discard_raw(self.workload, read, files)
        return read if profiled.done else replace(read, status="failed", error=profiled.error)

    def blank(self) -> TaskResult:
        """Return the initial result of the task."""
        if self.run.collector == INGEST:
            own = self.task
            return TaskResult(own.task_index, own.label, dict(own.params), key=own.key)
        path = Path(self.run.file)
        return result_of(task_again(self.task, self.workload, path))

    def write(self, result: TaskResult) -> TaskResult:
        """Write the result, with its node, time and task number."""
        own: Ran = result.ran or self.ran()
        ran = replace(own, job=_element() or None, attempt=self.attempt.number)
        notes = result.notes
        if result.key != self.task.key:
            notes += ("the program's files changed after the batch was submitted",)
        result = replace(
            result, ran=ran, key=self.task.key, index=self.task.task_index, notes=notes
        )
        folder = self.directory.task_directory(self.task)
        with storing(folder / RESULT):
            folder.mkdir(parents=True, exist_ok=True)
            if self.read_later:
                result.write(folder / _PROFILED)
                return result
        # Before the result, so that a reader of the result also finds the summary.
        self.directory.write_summary(self.task, self._summary(result))
        with storing(folder / RESULT):
            result.write(folder / RESULT)
        return result

    def _summary(self, result: TaskResult) -> TaskSummary:
        """Return the summary of the reports, and write their page; ignore failures of either."""
        if not result.reports:
            return TaskSummary().timed(result.median_ms)
        # The modules that read reports take longer to import than all others of a task.
        from perfpipe.analysis.batch.summary import summary_of
        from perfpipe.pipelines.reporting import output, report_with_summary

        record = RunRecord(
            run_id=self.run.run_id,
            workload=self.run.workload,
            collector=self.run.collector,
            started_at=self.directory.batch.created_at,
            status="done" if result.done else "failed",
            reports=result.reports,
            tasks=(result,),
            workload_file=self.run.workload_file,
            words=self.run.words,
            recording=self.run.recording,
            provenance=self.directory.batch.provenance,
        )
        try:
            if not self.directory.batch.pages:
                return summary_of(self.store, result.reports, record)
            report, summary = report_with_summary(self.store, record)
            page = self.directory.task_directory(self.task) / "report.html"
            output(report, html=str(page))
            return replace(summary, page=page.name)
        except PerfpipeError as error:
            say(f"cannot summarize {self.task.label}: {error}")
            return TaskSummary()


def _element() -> str:
    """Return the job and index of this array element; empty outside of Slurm."""
    job, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{job}_{index}" if job and index else os.environ.get("SLURM_JOB_ID", "")
