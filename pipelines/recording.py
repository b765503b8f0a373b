"""Recordings: captured runs that replay without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PlainValidator,
    ValidationError,
    model_validator,
)

from perfpipe.decoding import decode
from perfpipe.energyrecord import Energy
from perfpipe.errors import InputError, brief
from perfpipe.paths import is_plain
from perfpipe.pipelines.runs import result_of
from perfpipe.pipelines.strict_yaml import line_of, load
from perfpipe.pipelines.tasks import Task, task_of
from perfpipe.pipelines.workload import Params, Scalar, Workload
from perfpipe.runrecord import GpuState, Kernel, TaskResult, Validation


def _read_as(kind: Any) -> PlainValidator:
    """Check a field as in a run record, which it becomes part of."""
    return PlainValidator(lambda value: decode(kind, value))


class RecordedTask(BaseModel):
    """A configuration of the recorded run: parameters, result, report files."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    params: dict[str, Scalar]
    generation: int | None = None
    status: Literal["done", "failed"] = "done"
    failure: str | None = None
    error: str | None = None
    times_ms: tuple[FiniteFloat, ...] = ()
    launches_ms: tuple[tuple[FiniteFloat, ...], ...] = ()
    confirm_ms: tuple[tuple[FiniteFloat, ...], ...] = ()
    timing_method: str | None = None
    seconds: tuple[FiniteFloat, ...] = ()
    profiler_s: dict[str, float] = {}
    validation: Annotated[Validation | None, _read_as(Validation | None)] = None
    kernel: Annotated[Kernel | None, _read_as(Kernel | None)] = None
    gpu_state: Annotated[GpuState | None, _read_as(GpuState | None)] = None
    energy: Annotated[Energy | None, _read_as(Energy | None)] = None
    files: list[str] = []

    def result(self, task: Task) -> TaskResult:
        """Return the recorded result of a task, without reports."""
        return replace(result_of(task), **{name: getattr(self, name) for name in KEPT})


#: Fields of a result that a recording keeps, besides parameters and files.
KEPT = tuple(name for name in RecordedTask.model_fields if name not in ("params", "files"))


class Recording(BaseModel):
    """A recording: recording.yaml and the report files next to it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    version: Literal[1]
    workload: str
    gpu: str
    captured_at: str
    tools: dict[str, str] = {}
    tasks: list[RecordedTask] = Field(min_length=1)

    def tasks_for(
        self, planned: list[Task], workload: Workload, path: Path
    ) -> Iterator[tuple[Task, RecordedTask | None]]:
        """Yield each planned task with its recorded result; for a search, the recorded tasks."""
        if workload.tune is not None:
            for index, recorded in enumerate(self.tasks):
                task = task_of(index, recorded.params, workload, path, recorded.generation)
                yield task, recorded
            return
        by_params = {_frozen(task.params): task for task in self.tasks}
        for task in planned:
            yield task, by_params.get(_frozen(dict(task.params)))

    @model_validator(mode="after")
    def _fill(self) -> Recording:
        for task in self.tasks:
            task.launches_ms = task.launches_ms or ((task.times_ms,) if task.times_ms else ())
        return self


def _frozen(params: Params) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted(params.items()))


def load_recording(directory: Path) -> Recording:
    """Read a recording; raises InputError if it is missing, invalid or lacks a file."""
    path = directory / "recording.yaml"
    if not path.is_file():
        raise InputError(f"{directory}: no recording (recording.yaml is missing)")
    value, node = load(path)
    try:
        recording = Recording.model_validate(value)
    except ValidationError as error:
        fault = error.errors()[0]
        raise InputError(f"{path}:{line_of(node, fault['loc'])}: {fault['msg']}") from error
    for task in recording.tasks:
        for name in task.files:
            _check_file(path, name)
    return recording


def _check_file(path: Path, name: str) -> None:
    """Raise InputError for a file that is missing, or outside the recording.

    A recording may come from somebody else, so links out of it are refused too.
    """
    inside = path.parent.resolve()
    try:
        file = (inside / name).resolve()
        own = is_plain(name) and not (inside / name).is_symlink() and file.is_relative_to(inside)
        there = file.is_file()
    except (OSError, ValueError, RuntimeError) as error:
        # Too long, invalid bytes, or a link cycle.
        raise InputError(f"{path}: {brief(name)} is not a valid file name") from error
    if not own:
        raise InputError(f"{path}: the file {brief(name)} is not in the recording")
    if not there:
        raise InputError(f"{path}: the file {brief(name)} is missing")
