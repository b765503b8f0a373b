"""Recordings: captured runs that are replayed where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from perfpipe.errors import InputError
from pipelines.strict_yaml import line_of, load
from pipelines.tasks import Task, task_of
from pipelines.workload import Params, Scalar, Workload

#: What a recording keeps of a result, beside its parameters and files.
KEPT = (
    "generation",
    "status",
    "failure",
    "error",
    "times_ms",
    "launches_ms",
    "timing_method",
    "validation",
    "kernel",
    "gpu_state",
)


class RecordedTask(BaseModel):
    """A configuration of the recorded run: its parameters, its result, its report files."""

    model_config = ConfigDict(extra="forbid")

    params: dict[str, Scalar]
    generation: int | None = None
    status: Literal["done", "failed"] = "done"
    failure: str | None = None
    error: str | None = None
    times_ms: list[float] = []
    launches_ms: list[list[float]] = []
    timing_method: str | None = None
    validation: dict[str, Any] | None = None
    kernel: dict[str, Any] | None = None
    gpu_state: dict[str, Any] | None = None
    files: list[str] = []


class Recording(BaseModel):
    """A recording: recording.yaml beside the report files that it names."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1]
    workload: str
    gpu: str
    captured_at: str
    tools: dict[str, str] = {}
    tasks: list[RecordedTask] = Field(min_length=1)

    def tasks_for(
        self, planned: list[Task], workload: Workload, path: Path
    ) -> Iterator[tuple[Task, dict[str, Any] | None]]:
        """Yield each planned task with what was recorded of it; a search as it was recorded."""
        if workload.tune is not None:
            for index, recorded in enumerate(self.tasks):
                task = task_of(index, recorded.params, workload, path, recorded.generation)
                yield task, recorded.model_dump()
            return
        by_params = {_frozen(task.params): task for task in self.tasks}
        for task in planned:
            found = by_params.get(_frozen(dict(task.params)))
            yield task, found.model_dump() if found else None

    @model_validator(mode="after")
    def _fill(self) -> Recording:
        for task in self.tasks:
            task.launches_ms = task.launches_ms or ([task.times_ms] if task.times_ms else [])
        return self


def _frozen(params: Params) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted(params.items()))


def load_recording(directory: Path) -> Recording:
    """Read a recording; InputError when it is missing, faulty or lacks one of its files."""
    path = directory / "recording.yaml"
    if not path.is_file():
        raise InputError(f"{directory}: no recording here (recording.yaml is missing)")
    value, node = load(path)
    try:
        recording = Recording.model_validate(value)
    except ValidationError as error:
        fault = error.errors()[0]
        raise InputError(f"{path}:{line_of(node, fault['loc'])}: {fault['msg']}") from error
    for task in recording.tasks:
        for name in task.files:
            if not (directory / name).is_file():
                raise InputError(f"{path}: the file {name} is missing")
    return recording
