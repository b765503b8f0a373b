"""Workload files: what to launch, over which parameters, and what to collect."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfpipe.errors import InputError, did_you_mean
from pipelines.expression import evaluate
from pipelines.strict_yaml import line_of, load

Scalar = int | float | str
Params = dict[str, Scalar]

#: Bytes of an element, by type name.
DTYPE_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}

#: Names the interpreter that {python} stands for.
PYTHON_VARIABLE = "PERFPIPE_PYTHON"

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Work(_Model):
    """Work of one iteration, for MFU and roofline: arithmetic over the parameters."""

    flops: str | int | float | None = Field(
        None, description="floating-point operations, such as 2*m*n*k"
    )
    bytes: str | int | float | None = Field(None, description="bytes that must move at least")
    dtype: str | None = Field(None, description="type whose peak counts, such as fp16")


class Validation(_Model):
    """Tolerances that the program is given as {atol} and {rtol}."""

    atol: float = Field(1e-2, ge=0, description="absolute tolerance")
    rtol: float = Field(1e-2, ge=0, description="relative tolerance")


class CollectNsys(_Model):
    """What nsys traces."""

    trace: list[str] = Field(["cuda", "nvtx"], description="as nsys --trace")
    cuda_graph_trace: Literal["graph", "node"] = Field("node", description="as nsys")
    capture_range: Literal["none", "cudaProfilerApi"] = Field(
        "none",
        description="what of the program is recorded: all, or between cudaProfilerStart/Stop",
    )


class CollectNcu(_Model):
    """What ncu collects."""

    set: str = Field("basic", description="as ncu --set")
    sections: list[str] = Field([], description="further sections, as ncu --section")
    kernels: str | None = Field(None, description="regular expression of kernel names to profile")
    launch_count: int | None = Field(None, ge=1, description="launches to profile")
    launch_skip: int = Field(0, ge=0, description="launches to skip before the first")
    clock_control: Literal["base", "none"] = Field("base", description="as ncu")
    capture_range: Literal["none", "cudaProfilerApi"] = Field("none", description="as for nsys")


class Collect(_Model):
    """Profilers to run; each is a launch of its own, so that none distorts another."""

    nsys: CollectNsys | None = None
    ncu: CollectNcu | None = None


class Workload(_Model):
    """A workload file."""

    version: Literal[1] = Field(description="version of this format")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="name of the workload")
    command: list[str] = Field(min_length=1, description="program and arguments; never a shell")
    sizes: list[Params] = Field([], description="parameter sets whose values belong together")
    matrix: dict[str, list[Scalar]] = Field({}, description="parameters to combine freely")
    exclude: list[Params] = Field([], description="combinations to leave out")
    env: dict[str, str] = Field({}, description="environment variables of the program")
    work: Work = Field(Work(), description="work of one iteration")
    validate_: Validation = Field(Validation(), alias="validate", description="tolerances")
    warmup: int = Field(10, ge=0, description="iterations before timing, as {warmup}")
    repeats: int = Field(5, ge=1, description="timed iterations, as {repeats}")
    timeout: float = Field(600, gt=0, description="seconds that one launch may take")
    collect: Collect = Field(Collect(), description="profilers")
    recording: str | None = Field(None, description="directory to replay where there is no GPU")


@dataclass(frozen=True)
class Task:
    """One configuration: `flops` and `bytes` of an iteration; None where the file gives none."""

    index: int
    params: Mapping[str, Scalar]
    command: tuple[str, ...]
    flops: float | None
    bytes: float | None
    dtype: str | None

    @property
    def label(self) -> str:
        """The parameters as text: m=512 n=512."""
        return " ".join(f"{k}={v}" for k, v in self.params.items()) or "-"

    @property
    def key(self) -> str:
        """A hash of what the task does, for resuming."""
        content = json.dumps([list(self.command), dict(self.params)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def load_workload(path: Path, overrides: Mapping[str, list[Scalar]] | None = None) -> Workload:
    """Read a workload file; `overrides` replace matrix parameters (--set).

    Raises InputError that names file and line of every fault.
    """
    value, node = load(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a workload (a mapping with version, name, command, ...)")
    if overrides:
        value = _override(value, overrides)
    try:
        return Workload.model_validate(value)
    except ValidationError as error:
        faults = [
            f"{path}:{line_of(node, fault['loc'])}: {_explain(fault)}" for fault in error.errors()
        ]
        raise InputError("\n".join(faults)) from error


def tasks(workload: Workload, path: Path) -> list[Task]:
    """Return the configurations of a workload: every size with every matrix combination."""
    names = list(workload.matrix)
    combinations = [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*workload.matrix.values())
    ]
    found: list[Task] = []
    for size, combination in itertools.product(workload.sizes or [{}], combinations):
        params = {**size, **combination}
        if not any(rule.items() <= params.items() for rule in workload.exclude):
            found.append(_task(len(found), params, workload, path))
    if not found:
        raise InputError(f"{path}: no configuration is left (see matrix, sizes and exclude)")
    return found


def _task(index: int, params: Params, workload: Workload, path: Path) -> Task:
    known: dict[str, Scalar] = {
        **params,
        "warmup": workload.warmup,
        "repeats": workload.repeats,
        "atol": workload.validate_.atol,
        "rtol": workload.validate_.rtol,
    }
    dtype = _substitute(workload.work.dtype, known, path) if workload.work.dtype else None
    numbers = dict(known)
    if dtype in DTYPE_BYTES:
        numbers["dtype_bytes"] = DTYPE_BYTES[dtype]
    values: dict[str, float | None] = {}
    for name in ("flops", "bytes"):
        expression = getattr(workload.work, name)
        try:
            values[name] = None if expression is None else evaluate(str(expression), numbers)
        except ValueError as error:
            raise InputError(f"{path}: work.{name}: {error}") from error
    known["python"] = os.environ.get(PYTHON_VARIABLE) or sys.executable
    command = tuple(_substitute(word, known, path) for word in workload.command)
    return Task(index, params, command, values["flops"], values["bytes"], dtype)


def _substitute(text: str, known: Mapping[str, Scalar], path: Path) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise InputError(
                f"{path}: unknown parameter {match[0]} (known: {', '.join(sorted(known))})"
                + did_you_mean(match[1], known)
            )
        return str(known[match[1]])

    return _PLACEHOLDER.sub(replace, text)


def _override(value: dict[str, Any], overrides: Mapping[str, list[Scalar]]) -> dict[str, Any]:
    """Set matrix parameters, and take them out of `sizes`, whose values they replace."""
    matrix = {**(value.get("matrix") or {}), **overrides}
    sizes = [
        {k: v for k, v in size.items() if k not in overrides} for size in value.get("sizes") or []
    ]
    unique = [size for i, size in enumerate(sizes) if size and size not in sizes[:i]]
    return {**value, "matrix": matrix, "sizes": unique}


def _explain(fault: Any) -> str:
    location = ".".join(str(step) for step in fault["loc"])
    if fault["type"] == "extra_forbidden":
        known = _known_keys(fault["loc"][:-1])
        return f"unknown key '{fault['loc'][-1]}'" + did_you_mean(str(fault["loc"][-1]), known)
    return f"{location}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    model: Any = Workload
    for step in location:
        fields = {f.alias or name: f for name, f in model.model_fields.items()}
        annotation = fields[str(step)].annotation
        options = [
            a for a in getattr(annotation, "__args__", (annotation,)) if hasattr(a, "model_fields")
        ]
        if not options:
            return []
        model = options[0]
    return [f.alias or name for name, f in model.model_fields.items()]
