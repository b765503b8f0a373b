"""Recordings: captured runs that are replayed where there is no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfpipe.errors import InputError
from pipelines.strict_yaml import line_of, load


class RecordedTask(BaseModel):
    """A configuration of the recorded run."""

    model_config = ConfigDict(extra="forbid")

    params: dict[str, int | float | str]
    times_ms: list[float] = []
    validation: dict[str, Any] | None = None
    files: list[str] = Field(min_length=1)


class Recording(BaseModel):
    """A recording: recording.yaml beside the report files that it names."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1]
    workload: str
    gpu: str
    captured_at: str
    tools: dict[str, str] = {}
    tasks: list[RecordedTask] = Field(min_length=1)


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
