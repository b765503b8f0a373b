"""The files of a batch in the store, and how they are read and written.

Every file appears by a rename.  Files that several processes might write at once have distinct
names, so nodes that share the store do not need locks.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from perfpipe.batchrecord import (
    Attempt,
    Batch,
    BatchRun,
    BatchTask,
    Outcome,
    Stage,
    Submission,
    TaskSummary,
    read_record,
    write_record,
)
from perfpipe.decoding import decode
from perfpipe.directories import storing
from perfpipe.errors import InputError, StoreError
from perfpipe.files import replacing, text_of
from perfpipe.jsonfile import json_lines, read_json, write_json
from perfpipe.owner import own_name
from perfpipe.paths import is_plain
from perfpipe.pipelines.runs import RESULT, task_folder
from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.pipelines.workload import Workload
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

_NUMBERED = re.compile(r"\d{4}")
_ATTEMPT = re.compile(r"(\d+)-(\d+)\.json")


@dataclass(frozen=True)
class Submitted:
    """A submission with the job that it became; None if sbatch has not answered, or refused."""

    what: Submission
    job: str | None
    answered: bool


class BatchDirectory:
    """A batch in a store."""

    def __init__(self, store: Store, batch: Batch) -> None:
        self.store, self.batch = store, batch
        self.path: Path = store.batches_dir.resolve() / batch.batch_id

    @classmethod
    def read(cls, store: Store, batch_id: str) -> BatchDirectory:
        """Read a batch; raises StoreError if it is damaged or of another version."""
        path = store.batches_dir / batch_id / "batch.json"
        batch: Batch = read_record(Batch, path, "batch")
        for name in (batch.batch_id, *(run.run_id for run in batch.runs)):
            if not is_plain(name):
                raise StoreError(f"{path}: {name!r} is not a plain file name")
        if batch.batch_id != batch_id:
            raise StoreError(f"{path}: this is the record of another batch, {batch.batch_id}")
        return cls(store, batch)

    @classmethod
    def every(cls, store: Store) -> list[BatchDirectory]:
        """Return the batches of a store, newest first; damaged ones are skipped with a warning."""
        found = []
        for batch_id in store.batch_ids():
            try:
                found.append(cls.read(store, batch_id))
            except StoreError as error:
                store.warn(f"batch {batch_id} is skipped: {error}")
        return sorted(
            found, key=lambda own: (own.batch.created_at, own.batch.batch_id), reverse=True
        )

    @classmethod
    def find(cls, store: Store, name: str | None) -> BatchDirectory:
        """Return the batch with this id or prefix; without a name, the newest.

        Raises InputError if there is none, or several.
        """
        ids = store.batch_ids()
        found = [one for one in ids if one == name] or [
            one for one in ids if one.startswith(name or "")
        ]
        if not ids:
            raise InputError(f"{store.root}: no batch here; 'perfpipe batch submit' creates one")
        if name is None:
            if not (every := cls.every(store)):
                raise StoreError(f"{store.root}: none of the batches here can be read")
            # One that Slurm refused has nothing to ask about.
            return next((one for one in every if one.submitted), every[0])
        if len(found) != 1:
            problem = "is ambiguous" if found else "is not a batch of this store"
            raise InputError(f"{name}: {problem}{': ' + ', '.join(found) if found else ''}")
        return cls.read(store, found[0])

    @classmethod
    def create(
        cls,
        store: Store,
        batch: Batch,
        tasks: Iterable[BatchTask],
        workloads: Mapping[str, Workload],
    ) -> BatchDirectory:
        """Write a batch; it appears whole."""
        made = cls(store, batch)
        writing = made.path.with_name(own_name(".tmp"))
        with storing(made.path):
            for folder in ("workloads", "submissions", "attempts"):
                (writing / folder).mkdir(parents=True)
            _make_logs(writing / "logs", batch, workloads.values())
            write_record(writing / "batch.json", batch)
            lines = (json.dumps(asdict(task), ensure_ascii=False) + "\n" for task in tasks)
            (writing / "tasks.jsonl").write_text("".join(lines), encoding="utf-8")
            for run_id, workload in workloads.items():
                write_json(writing / "workloads" / f"{run_id}.json", _content(workload))
            writing.rename(made.path)
        return made

    @cached_property
    def tasks(self) -> tuple[BatchTask, ...]:
        """The tasks, by index."""
        path = self.path / "tasks.jsonl"
        found = []
        for place, value in json_lines(path, "task of a batch"):
            try:
                found.append(decode(BatchTask, value))
            except ValueError as error:
                raise StoreError(f"{place}: incomplete or invalid task ({error})") from error
        if [task.index for task in found] != list(range(self.batch.tasks)):
            raise StoreError(f"{path}: does not list the {self.batch.tasks} tasks of the batch")
        runs = {run.run_id for run in self.batch.runs}
        for task in found:
            if task.run_id not in runs or not is_plain(task_folder(task.task_index, task.key)):
                raise StoreError(f"{path}: task {task.index} does not belong to a run of the batch")
        return tuple(found)

    def run_of(self, task: BatchTask) -> BatchRun:
        """Return the run that a task is part of."""
        return next(run for run in self.batch.runs if run.run_id == task.run_id)

    def workload(self, run_id: str) -> Workload:
        """Return a run's workload as it was submitted."""
        path = self.path / "workloads" / f"{run_id}.json"
        try:
            return Workload.model_validate(read_json(path, "workload of a batch"))
        except ValueError as error:
            raise StoreError(
                f"{path}: this version of perfpipe cannot read the workload"
            ) from error

    def write_workload(self, run_id: str, workload: Workload) -> None:
        """Replace a run's workload; whoever does it has claimed the batch."""
        path = self.path / "workloads" / f"{run_id}.json"
        with storing(path):
            write_json(path, _content(workload))

    def flags(self) -> tuple[Slurm | None, float | None]:
        """Return the Slurm options, and the timeout in s, of the command lines so far.

        Both are None if unknown.
        """
        path = self.path / "flags.json"
        if not path.exists():
            stated = self.batch.flags
            return None if stated is None else Slurm.model_validate(dict(stated)), None
        try:
            found = read_json(path, "options of a batch")
            return Slurm.model_validate(found["slurm"]), found["timeout"]
        except (ValueError, LookupError, TypeError) as error:
            raise StoreError(f"{path}: this version of perfpipe cannot read the file") from error

    def write_flags(self, flags: Slurm, timeout: float | None) -> None:
        """Keep the options of the command lines so far."""
        path = self.path / "flags.json"
        stated = flags.model_dump(mode="json", exclude_unset=True)
        with storing(path):
            write_json(path, {"slurm": stated, "timeout": timeout})

    def slurm(self, run_id: str) -> Slurm:
        """Return the Slurm options of a run."""
        return self.workload(run_id).slurm or Slurm()

    # Submissions

    def submissions(self) -> list[Submitted]:
        """Return the submissions, oldest first."""
        folder = self.path / "submissions"
        found = []
        for name in sorted(name for name in _names(folder) if _NUMBERED.fullmatch(name)):
            try:
                what = read_record(Submission, folder / name / "plan.json", "submission")
            except StoreError:
                # The writer has not written it yet, or ended before it called sbatch.
                if (folder / name / "plan.json").exists():
                    raise
                continue
            text = None
            with contextlib.suppress(FileNotFoundError):
                text = text_of(folder / name / "job", "ascii")
            found.append(Submitted(what, (text or "").strip() or None, text is not None))
        return found

    @property
    def submitted(self) -> bool:
        """Whether Slurm took a job of the batch, or may have."""
        return any(own.job or not own.answered for own in self.submissions())

    def next_submission(self) -> int:
        """Return the number of a new submission; whoever submits has claimed the batch."""
        folder = self.path / "submissions"
        taken = [int(name) for name in _names(folder) if _NUMBERED.fullmatch(name)]
        number = max(taken, default=0) + 1
        with storing(folder):
            self.submission_directory(number).mkdir()
        return number

    def submission_directory(self, number: int) -> Path:
        """Return the directory of a submission."""
        return self.path / "submissions" / f"{number:04d}"

    def write_submission(self, what: Submission, script: str) -> Path:
        """Write a submission, and return the script's path."""
        directory = self.submission_directory(what.number)
        with storing(directory):
            with replacing(directory / "script.sh") as temporary:
                temporary.write_text(script, encoding="utf-8")
            write_record(directory / "plan.json", what)
        return directory / "script.sh"

    def write_job(self, number: int, job: str) -> None:
        """Keep the job id of a submission; empty if it did not become a job."""
        directory = self.submission_directory(number)
        with storing(directory), replacing(directory / "job") as temporary:
            temporary.write_text(f"{job}\n", encoding="ascii")

    def read_submission(self, number: int) -> Submission:
        """Return a submission."""
        path = self.submission_directory(number) / "plan.json"
        found: Submission = read_record(Submission, path, "submission")
        return found

    # Files of tasks

    def task_directory(self, task: BatchTask) -> Path:
        """Return the directory of a task in its run."""
        folder = task_folder(task.task_index, task.key)
        return self.store.runs_dir.resolve() / task.run_id / "tasks" / folder

    def result_path(self, task: BatchTask) -> Path:
        """Return the path of the result of a task."""
        return self.task_directory(task) / RESULT

    def result(self, task: BatchTask) -> TaskResult | None:
        """Return the result of a task; None if it is missing or damaged."""
        path = self.result_path(task)
        try:
            return TaskResult.read(path) if path.exists() else None
        except StoreError:
            return None

    def results(self, without: Collection[int] = ()) -> dict[int, TaskResult]:
        """Return the existing results by task index, optionally of some tasks only."""
        # Listing a directory refreshes a network file system; opening a file may not.
        for run in self.batch.runs:
            with contextlib.suppress(FileNotFoundError):
                _names(self.store.runs_dir / run.run_id / "tasks")
        wanted = (task for task in self.tasks if task.index not in without)
        found = ((task.index, self.result(task)) for task in wanted)
        return {index: result for index, result in found if result is not None}

    def summary(self, task: BatchTask) -> TaskSummary | None:
        """Return the summary of a task's reports; None if unknown."""
        path = self.task_directory(task) / "summary.json"
        try:
            return read_record(TaskSummary, path, "summary") if path.exists() else None
        except StoreError:
            return None

    def write_summary(self, task: BatchTask, summary: TaskSummary) -> None:
        """Keep the summary of a task's reports."""
        directory = self.task_directory(task)
        with storing(directory):
            write_record(directory / "summary.json", summary)

    def set_aside(self, task: BatchTask, attempt: int) -> None:
        """Rename the result of a failed attempt, so that the task has no result."""
        path = self.result_path(task)
        with storing(path), contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(f"result-attempt-{attempt}.json"))

    def put_back(self, task: BatchTask, attempt: int) -> None:
        """Let the result of a failed attempt be that of the task again."""
        path = self.result_path(task)
        with storing(path), contextlib.suppress(FileNotFoundError):
            path.with_name(f"result-attempt-{attempt}.json").rename(path)

    # Attempts

    def attempts(self) -> dict[int, int]:
        """Return how often each started task was started."""
        found: dict[int, int] = defaultdict(int)
        for name in _names(self.path / "attempts"):
            if match := _ATTEMPT.fullmatch(name):
                task, number = map(int, match.groups())
                found[task] = max(found[task], number)
        return found

    def begin(self, attempt: Attempt) -> Attempt:
        """Record the start of a task under the next free number."""
        while True:
            path = self._attempt_path(attempt.task, attempt.number)
            try:
                with storing(path), path.open("x", encoding="utf-8") as file:
                    json.dump({"schema_version": 1, **asdict(attempt)}, file)
            except StoreError:
                if not path.exists():
                    raise
                attempt = replace(attempt, number=attempt.number + 1)
                continue
            return attempt

    def attempt(self, task: int, number: int) -> Attempt | None:
        """Return an attempt; None if it cannot be read."""
        try:
            found: Attempt = read_record(Attempt, self._attempt_path(task, number), "attempt")
        except StoreError:
            return None
        return found

    # How elements ended: Slurm forgets it after some minutes, and of canceled ones at once

    def ended(self) -> dict[str, str]:
        """Return how array elements ended, by JOB_INDEX, as states of Slurm jobs."""
        found: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError):
            for path in sorted((self.path / "ended").glob("*.json")):
                with contextlib.suppress(StoreError):
                    content = read_json(path, "ends of jobs")
                    if isinstance(content, dict):
                        found |= content
        return found

    def write_ended(self, states: Mapping[str, str]) -> None:
        """Record how elements ended, or will: canceled ones that had not started."""
        folder = self.path / "ended"
        with storing(folder):
            folder.mkdir(exist_ok=True)
            write_json(folder / f"{uuid.uuid4().hex}.json", dict(states))

    def _attempt_path(self, task: int, number: int) -> Path:
        return self.path / "attempts" / f"{task}-{number}.json"

    # The outcome

    def outcome(self) -> Outcome | None:
        """Return the outcome of the last collector; None if no collector has ended."""
        path = self.path / "outcome.json"
        if not path.exists():
            return None
        found: Outcome = read_record(Outcome, path, "outcome of a batch")
        return found

    def write_outcome(self, outcome: Outcome) -> None:
        """Keep the outcome of the collector."""
        with storing(self.path):
            write_record(self.path / "outcome.json", outcome)

    def log_of(self, element: str | None) -> Path | None:
        """Return the log of an array element; None if it does not exist yet."""
        path = self.path / "logs" / f"{element}.out"
        return path if is_plain(element) and path.exists() else None


def _make_logs(path: Path, batch: Batch, workloads: Iterable[Workload]) -> None:
    """Make the directory of the logs; a link if they go elsewhere."""
    stated = [own.slurm.log_dir for own in workloads if own.slurm and own.slurm.log_dir]
    if not stated:
        path.mkdir()
        return
    there = Path(batch.directory, Path(stated[0]).expanduser(), batch.batch_id)
    there.mkdir(parents=True, exist_ok=True)
    path.symlink_to(there)


def _content(workload: Workload) -> dict[str, Any]:
    return workload.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def elements_of(submissions: Sequence[Submitted], stage: Stage) -> dict[int, list[Submitted]]:
    """Return the submissions of a stage that contain each task, oldest first."""
    found: dict[int, list[Submitted]] = defaultdict(list)
    for submitted in submissions:
        if submitted.what.stage == stage:
            for element in submitted.what.elements:
                for task in element:
                    found[task].append(submitted)
    return found
