"""Files of a batch: the request, its tasks, each call of sbatch, and the outcome.

A batch consists of runs whose configurations are jobs of a scheduler.  Results are stored in the
runs, as with `perfpipe run`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.runrecord import Recorded, Scalar
from perfpipe.secrets import hide_words


class Stage(StrEnum):
    """What a submission does: profile (and ingest), only ingest, or collect."""

    PROFILE = "profile"
    INGEST = "ingest"
    COLLECT = "collect"


class State(StrEnum):
    """State of a task.

    `lost`: there is no result, and the scheduler says that the job has ended or no longer knows it.
    `unknown`: there is no result, and the scheduler does not answer.  `stopped`: the job ended
    before it started the task.
    """

    UNSUBMITTED = "not submitted"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out of memory"
    CANCELLED = "cancelled"
    NODE_FAILURE = "node failure"
    PREEMPTED = "preempted"
    STOPPED = "stopped"
    LOST = "lost"
    UNKNOWN = "unknown"

    @property
    def in_flight(self) -> bool:
        """Whether it may still produce a result by itself."""
        return self in (State.WAITING, State.RUNNING, State.UNKNOWN)


@dataclass(frozen=True)
class BatchRun:
    """A run of a batch: its workload and workload file.

    `collector` is as in the run record, or `ingest` for existing reports.  `words` is the command
    line of a program without a workload file.
    """

    run_id: str
    workload: str
    file: str
    collector: str
    recording: Recorded | None = None
    words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", self.words and hide_words(self.words))

    @property
    def measures(self) -> bool:
        """Whether its programs are launched, instead of reading recordings or reports."""
        return self.collector not in ("replay", "ingest")

    @property
    def workload_file(self) -> str:
        """The name of its workload file, as in the run record; empty without a file."""
        return "" if self.words is not None else Path(self.file).name


@dataclass(frozen=True)
class BatchTask:
    """A task of a batch: `index` in the batch, `task_index` in its run.

    `input` is the report to ingest if nothing is launched.
    """

    index: int
    run_id: str
    workload: str
    task_index: int
    key: str
    label: str
    params: dict[str, Scalar] = field(default_factory=dict)
    input: str | None = None


@dataclass(frozen=True)
class Submission:
    """One call of sbatch: a job array whose element i runs the tasks `elements[i]` in sequence.

    `after` are the jobs that it waits for.  `reason` is the reason for the call.  `warn_s` is how
    long before its time limit the job gets a signal, s.
    """

    number: int
    stage: str
    elements: tuple[tuple[int, ...], ...]
    submitted_at: str
    after: tuple[str, ...] = ()
    reason: str = "submit"
    warn_s: int = 0


@dataclass(frozen=True)
class Attempt:
    """A start of a task: where and when; `element` is JOB_INDEX as Slurm writes it."""

    task: int
    number: int
    host: str
    started_at: str
    element: str = ""


@dataclass(frozen=True)
class TaskSummary:
    """Summary of the reports of a task, so that a batch does not read them again.

    Times in ms.  `step_ms` is the median steady step of the timeline, or if `steps` is None, the
    time that the program printed.  `bound` is the class of the timeline's verdict, else the class
    with the most profiled time; `share_pct` is its share.  `kernel_bound` is the bound of most of
    the kernel time, such as compute (tensor); None if too little kernel time was profiled.
    `sol_pct` is the fraction of that roof, `mfu_pct` the model FLOP/s utilization.  `headline` is
    the report's first sentence, `finding` the claim of its first finding, `page` its page (next to
    this file).  Unknown values are None.
    """

    step_ms: float | None = None
    step_p95_ms: float | None = None
    steps: int | None = None
    bound: str | None = None
    share_pct: float | None = None
    sol_pct: float | None = None
    mfu_pct: float | None = None
    headline: str | None = None
    finding: str | None = None
    page: str | None = None
    gpu: str | None = None
    kernel_bound: str | None = None

    def timed(self, own_ms: float | None) -> TaskSummary:
        """Return it with the time that the program printed, if no timeline has steps."""
        return replace(self, step_ms=own_ms) if self.step_ms is None else self


@dataclass(frozen=True)
class Batch:
    """A batch as it was submitted; it never changes.

    `command` is the command line, `store` the store's path on the nodes, `python` the interpreter
    that runs perfpipe there.  A task is submitted automatically at most `max_attempts` times.
    Configurations that differ only in the parameter `arms` are measured alternately.  `flags` are
    the Slurm options of the command line, which precede those of workload files; None if unknown.
    """

    batch_id: str
    created_at: str
    runs: tuple[BatchRun, ...]
    tasks: int
    store: str
    python: str
    directory: str
    command: tuple[str, ...] = ()
    max_attempts: int = 3
    pages: bool = True
    arms: str | None = None
    flags: dict[str, Scalar | tuple[str, ...]] | None = None
    provenance: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", hide_words(self.command))

    @property
    def measures(self) -> bool:
        """Whether programs of any run are launched."""
        return any(run.measures for run in self.runs)


class Usage(NamedTuple):
    """What a job used of what it had, %: CPU time, memory at its peak, GPU utilization.

    None is what Slurm did not record.
    """

    cpu_pct: float | None = None
    memory_pct: float | None = None
    gpu_pct: float | None = None


@dataclass(frozen=True)
class TaskState:
    """A task with its state and the reason, if known.

    `element` is the last job of the task (JOB_INDEX), `attempts` the number of starts, `node` the
    last node, `log` the output of that job.  `seconds` is the duration of the last attempt,
    `job_code` the exit code of its job, if the job left no result and was not killed.
    """

    task: BatchTask
    state: State
    reason: str | None = None
    attempts: int = 0
    element: str | None = None
    node: str | None = None
    log: str | None = None
    seconds: float | None = None
    ended_at: str | None = None
    job_code: int | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a collector: number of tasks by state, and whether all succeeded.

    `submission` is the number of the collector.  A collector that resubmitted tasks is not the
    last.
    """

    batch_id: str
    submission: int
    collected_at: str
    counts: dict[str, int]
    ok: bool
    exit_code: int
    resubmitted: int = 0


def write_record(path: Path, record: Any) -> None:
    """Write a record of this module as JSON, atomically."""
    write_json(path, {"schema_version": SCHEMA_VERSION, **vars(record)})


def read_record(kind: type[Any], path: Path, what: str) -> Any:
    """Read a record; raises StoreError if it is unreadable or of an unknown schema version."""
    content = read_versioned(path, what)
    try:
        return decode(kind, content)
    except ValueError as error:
        raise StoreError(f"{path}: not a complete {what} ({error})") from error
