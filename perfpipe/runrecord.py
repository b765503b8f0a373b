"""The run record: what was executed or replayed, with the result of each configuration.

Fields with column metadata are columns of the table `runs` or `run_tasks`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfpipe.columns import column, columns_of, derived
from perfpipe.decoding import Stated, decode
from perfpipe.energyrecord import Energy
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.paths import is_plain
from perfpipe.ranrecord import Ran
from perfpipe.secrets import hidden, hide_words

Scalar = bool | int | float | str

#: Timing method if perfpipe timed the steps of a program that prints no times.
OBSERVED = "observed"

#: How a run was collected if its program was looked at while it ran, or started to be looked at.
ATTACH, DETACH = "attach", "detach"

#: Failure of a task that reached the time limit of its job.
TIME_LIMIT = "time_limit"

#: Failure of a task whose program prints a time that is none, or none where it should.
INVALID_TIME = "invalid_time"


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum of a quantity."""

    min: float
    median: float
    max: float


@dataclass(frozen=True)
class OneGpu:
    """State of a GPU during timing, from the samples in which it was busy, if any.

    Clocks in MHz, power in W, temperature in degrees Celsius, load in %; None if unsupported.
    `ecc_errors` are the errors during timing, `neighbors` the processes that used the GPU before
    the program started, `program_gb` the largest increase of its used memory, GB.
    """

    gpu: int
    busy_samples: int = 0
    sm_mhz: Spread | None = None
    memory_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    gpu_pct: Spread | None = None
    throttled_by: tuple[str, ...] = ()
    name: str | None = None
    power_limit_w: float | None = None
    ecc_errors: int | None = None
    neighbors: int | None = None
    program_gb: float | None = None


@dataclass(frozen=True)
class GpuState:
    """State of the GPUs that were used during timing; `missing` is the reason if unknown."""

    samples: int = 0
    gpus: tuple[OneGpu, ...] = ()
    missing: str | None = None
    driver: str | None = field(
        default=None, metadata=column("VARCHAR", "GPU driver version during timing")
    )
    pinned_gb: float | None = None  # maximum pinned host memory of a process

    @property
    @derived("VARCHAR", "model of the first GPU that the program used")
    def gpu_model(self) -> str | None:
        """Model of the first GPU used."""
        return self.gpus[0].name if self.gpus else None

    @property
    def program_gb(self) -> float | None:
        """Maximum memory that the program used on one GPU, GB."""
        return max(
            (one.program_gb for one in self.gpus if one.program_gb is not None), default=None
        )

    @property
    @derived("DOUBLE", "median SM clock of the program's first GPU during timing, MHz")
    def sm_mhz(self) -> float | None:
        """Median SM clock of the first GPU used, MHz."""
        clock = self.gpus[0].sm_mhz if self.gpus else None
        return clock.median if clock else None

    @property
    @derived("DOUBLE", "median memory clock of the program's first GPU during timing, MHz")
    def memory_mhz(self) -> float | None:
        """Median memory clock of the first GPU used, MHz."""
        clock = self.gpus[0].memory_mhz if self.gpus else None
        return clock.median if clock else None

    @property
    @derived(
        "DOUBLE",
        "median temperature of the program's first GPU during timing, degrees Celsius",
    )
    def temperature_c(self) -> float | None:
        """Median temperature of the first GPU used, degrees Celsius."""
        temperature = self.gpus[0].temperature_c if self.gpus else None
        return temperature.median if temperature else None

    @property
    @derived("DOUBLE", "power limit of the program's first GPU, W")
    def power_limit_w(self) -> float | None:
        """Power limit of the first GPU used, W."""
        return self.gpus[0].power_limit_w if self.gpus else None

    @property
    @derived("BIGINT", "number of ECC errors during timing, summed over the program's GPUs")
    def ecc_errors(self) -> int | None:
        """ECC errors of the GPUs used, during timing; None if unknown."""
        known = [gpu.ecc_errors for gpu in self.gpus if gpu.ecc_errors is not None]
        return sum(known) if known else None

    @property
    @derived(
        "BIGINT",
        "number of other processes on the program's GPUs, counted before the program started",
    )
    def neighbors(self) -> int | None:
        """Processes that used the GPUs before the program did; None if unknown."""
        known = [gpu.neighbors for gpu in self.gpus if gpu.neighbors is not None]
        return sum(known) if known else None

    @property
    @derived("DOUBLE", "median power of the program's first GPU during timing, W")
    def power_w(self) -> float | None:
        """Median power of the first GPU used, W."""
        power = self.gpus[0].power_w if self.gpus else None
        return power.median if power else None

    @property
    @derived("VARCHAR[]", "clock throttle reasons of the program's first GPU during timing")
    def throttled_by(self) -> tuple[str, ...] | None:
        """Clock limiters of the first GPU used; None if unknown."""
        return self.gpus[0].throttled_by if self.gpus else None


@dataclass(frozen=True)
class Kernel(Stated):
    """The compiled kernel of a program."""

    name: str | None = None
    registers: int | None = field(
        default=None,
        metadata=column("BIGINT", "number of registers per thread in the Triton kernel"),
    )
    spills: int | None = field(
        default=None,
        metadata=column("BIGINT", "number of registers that the Triton kernel spills to memory"),
    )
    shared_bytes: int | None = None
    warps: int | None = None
    stages: int | None = None


@dataclass(frozen=True)
class Validation(Stated):
    """A program's comparison of its result with the reference."""

    ok: bool = False
    max_abs_error: float | None = field(
        default=None,
        metadata=column(
            "DOUBLE", "largest absolute difference between the result and the reference"
        ),
    )
    rel_l2_error: float | None = None
    atol: float | None = None
    rtol: float | None = None
    rank: int | None = None


#: Fields of a result with text from users or programs, which is stored without secrets.
_TEXTS = ("label", "params", "error", "notes", "variant", "software")


#: Fields with times, and with lists of times.
_TIMES = ("times_ms", "launches_ms", "confirm_ms", "seconds")


def _flat(times: Iterable[float | tuple[float, ...]]) -> Iterator[float]:
    for one in times:
        yield from one if isinstance(one, tuple) else (one,)


def _set(record: object, values: dict[str, Any]) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)


@dataclass(frozen=True)
class TaskResult:
    """The result of a configuration, with times in ms.

    `seconds` has each execution's wall time without a profiler, `profiler_s` the execution's wall
    time under each profiler.  `confirm_ms` has the samples of executions after a search, which
    alternate between the fastest configuration and the default.  `key` is a hash of everything that
    the result depends on; `files` are below the store's runs/.
    """

    index: int = field(
        metadata=column("BIGINT", "index of the configuration within the run, from 0", "task_index")
    )
    label: str = field(metadata=column("VARCHAR", "parameters as text, such as m=512 n=512"))
    params: dict[str, Scalar] = field(metadata=column("VARCHAR", "parameters as JSON"))
    status: str = field(default="done", metadata=column("VARCHAR", "status: done or failed"))
    error: str | None = field(
        default=None, metadata=column("VARCHAR", "error message, if the configuration failed")
    )
    flops: float | None = field(
        default=None,
        metadata=column("DOUBLE", "FLOPs per iteration, as declared in the workload file"),
    )
    bytes: float | None = field(
        default=None,
        metadata=column(
            "DOUBLE", "minimum bytes moved per iteration, as declared in the workload file"
        ),
    )
    dtype: str | None = field(
        default=None, metadata=column("VARCHAR", "data type that determines the peak FLOP rate")
    )
    reports: tuple[str, ...] = field(
        default=(), metadata=column("VARCHAR[]", "ids of this configuration's reports")
    )
    failure: str | None = field(
        default=None,
        metadata=column(
            "VARCHAR",
            "kind of failure: wrong_result, invalid_time, out_of_resources, timeout, time_limit "
            "(of the job), crash, profiler, tool_missing or not_recorded; of a server: not_ready, "
            "server_ended (under load) or load; in a batch, it may also be a job state",
        ),
    )
    generation: int | None = field(
        default=None,
        metadata=column(
            "BIGINT", "generation within a search, from 0; NULL if the run is not a search"
        ),
    )
    timing_method: str | None = field(
        default=None,
        metadata=column(
            "VARCHAR",
            "timing method: queued, events, wall clock, or observed (perfpipe timed the steps of a "
            "PyTorch program that prints no times)",
        ),
    )
    times_ms: tuple[float, ...] = field(
        default=(),
        metadata=column(
            "DOUBLE[]", "time samples from all executions of the program, in the order measured, ms"
        ),
    )
    kernel: Kernel | None = None
    gpu_state: GpuState | None = None
    validation: Validation | None = None
    launches_ms: tuple[tuple[float, ...], ...] = ()
    default: bool | None = field(
        default=None,
        metadata=column(
            "BOOLEAN",
            "whether the configuration is the search's default; NULL if the run is not a search",
            "is_default",
        ),
    )
    confirm_ms: tuple[tuple[float, ...], ...] = ()
    seconds: tuple[float, ...] = ()
    ended_after_s: float | None = field(
        default=None,
        metadata=column(
            "DOUBLE",
            "time after which the program's executions were stopped, s; NULL if none was stopped",
        ),
    )
    software: dict[str, str] | None = None
    notes: tuple[str, ...] = field(
        default=(), metadata=column("VARCHAR[]", "what the profilers skipped, and why")
    )
    profilers: tuple[str, ...] = ()
    profiler_s: dict[str, float] = field(
        default_factory=dict,
        metadata=column(
            "VARCHAR",
            "wall time under each profiler, s, as JSON; includes the time to write the report",
        ),
    )
    reading_s: float | None = field(
        default=None, metadata=column("DOUBLE", "wall time spent ingesting the reports, s")
    )
    files: tuple[str, ...] = ()
    command: tuple[str, ...] = field(
        default=(), metadata=column("VARCHAR[]", "words of the program's command line")
    )
    variant: tuple[str, ...] = field(
        default=(),
        metadata=column(
            "VARCHAR[]", "settings, other than parameters, that define this side of a comparison"
        ),
    )
    key: str = ""
    ran: Ran | None = None
    samples: float | None = field(
        default=None,
        metadata=column("DOUBLE", "samples per iteration, as declared in the workload file"),
    )
    tokens: float | None = field(
        default=None,
        metadata=column("DOUBLE", "tokens per iteration, as declared in the workload file"),
    )
    energy: Energy | None = None

    def __post_init__(self) -> None:
        own = {name: hidden(getattr(self, name)) for name in _TEXTS}
        _set(self, {**own, "command": hide_words(self.command)})
        for name in _TIMES:
            if not all(map(math.isfinite, _flat(getattr(self, name)))):
                self._discard(name)

    def _discard(self, name: str) -> None:
        """Remove times that are no numbers; the configuration failed, if only by them."""
        _set(self, {name: ()})
        if self.done:
            why = f"{name} has a value that is not a finite number"
            _set(self, {"status": "failed", "failure": INVALID_TIME, "error": why})

    @property
    def done(self) -> bool:
        """Whether the configuration succeeded."""
        return self.status == "done"

    @property
    def prints_times(self) -> bool:
        """Whether its times are those that the program printed."""
        return bool(self.times_ms) and self.timing_method != OBSERVED

    @property
    @derived("DOUBLE", "median time per iteration without a profiler, ms")
    def median_ms(self) -> float | None:
        """Median time, ms; None if it was not timed."""
        return statistics.median(self.times_ms) if self.times_ms else None

    @property
    @derived("DOUBLE", "median wall time of one execution of the program without a profiler, s")
    def wall_s(self) -> float | None:
        """Median wall time of executions without a profiler, s; None if any was ended early."""
        whole = self.seconds and self.ended_after_s is None
        return statistics.median(self.seconds) if whole else None

    def write(self, path: Path) -> None:
        """Write the result."""
        write_json(path, {"schema_version": SCHEMA_VERSION, **vars(self)})

    @classmethod
    def read(cls, path: Path) -> TaskResult:
        """Read a result; raises StoreError if it is unreadable or has an unknown schema version."""
        found: TaskResult = _read(cls, path, "task result")
        return found


@dataclass(frozen=True)
class Recorded:
    """Where a replayed run was recorded."""

    gpu: str
    captured_at: str
    tools: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """One run of a workload; `reports` has the reports of all tasks, `recording` what was replayed.

    `words` is the command line of a program that was run without a workload file.
    """

    run_id: str = field(metadata=column("VARCHAR", "run id"))
    workload: str = field(metadata=column("VARCHAR", "name of the workload"))
    collector: str = field(
        metadata=column(
            "VARCHAR",
            "how the data was collected: all, timing, nsys, ncu, torch or replay; attach if the "
            "program was running, detach if it was started to be attached to",
        )
    )
    started_at: str = field(metadata=column("VARCHAR", "start time, UTC"))
    status: str = field(
        default="running",
        metadata=column(
            "VARCHAR", "status: done, failed, running or interrupted (ended early or killed)"
        ),
    )
    reports: tuple[str, ...] = field(
        default=(), metadata=column("VARCHAR[]", "ids of the run's reports")
    )
    tasks: tuple[TaskResult, ...] = ()
    workload_file: str = ""
    words: tuple[str, ...] | None = None
    ended_at: str | None = None
    recording: Recorded | None = None
    provenance: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _set(self, {"words": self.words and hide_words(self.words)})

    @property
    def replayed(self) -> bool:
        """Whether nothing was measured."""
        return self.collector == "replay"

    @property
    def launched(self) -> bool:
        """Whether programs were launched to be measured from start to end."""
        return self.collector not in ("replay", ATTACH, DETACH)

    def interrupted(self) -> RunRecord:
        """Return the record of this run if its process ended early."""
        return replace(self, status="interrupted")

    def write(self, path: Path) -> None:
        """Write the record and its directory; raises StoreError for an unusable run id."""
        _check_run_id(self.run_id, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"schema_version": SCHEMA_VERSION, **vars(self)})

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read a record; raises StoreError if it is unreadable or of an unknown schema version."""
        found: RunRecord = _read(cls, path, "run record")
        _check_run_id(found.run_id, path)
        if found.run_id != path.parent.name:
            raise StoreError(f"{path}: the record belongs to a different run, {found.run_id}")
        return found


def _check_run_id(run_id: str, path: Path) -> None:
    if not is_plain(run_id):
        raise StoreError(f"{path}: the run id {run_id!r} is not a plain file name")


def _read(kind: Any, path: Path, what: str) -> Any:
    content = read_versioned(path, what)
    try:
        return decode(kind, content)
    except ValueError as error:
        raise StoreError(f"{path}: not a complete {what} ({error})") from error


_RUN, _TASK = tuple(columns_of(RunRecord)), tuple(columns_of(TaskResult))

#: Columns of the tables: name, SQL type, meaning.
RUN_COLUMNS = tuple(own.spec for own in _RUN)
TASK_COLUMNS = (
    *(own.spec for own in _RUN if own.name == "run_id"),
    *(own.spec for own in _TASK),
    ("short_label", "VARCHAR", "parameters that vary within the run, as text"),
)


def run_row(run: RunRecord) -> tuple[Any, ...]:
    """Return a row of `runs`."""
    return tuple(own.cell(run) for own in _RUN)


def task_row(run: RunRecord, task: TaskResult) -> tuple[Any, ...]:
    """Return a row of `run_tasks`."""
    return (run.run_id, *(own.cell(task) for own in _TASK), short_label(run, task))


def short_label(run: RunRecord, task: TaskResult) -> str:
    """Return the parameters of a task that differ within its run; all if none do."""
    differing = [
        f"{name}={value}"
        for name, value in task.params.items()
        if any(other.params.get(name) != value for other in run.tasks)
    ]
    return " ".join(differing) or task.label
