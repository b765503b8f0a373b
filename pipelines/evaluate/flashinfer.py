"""FlashInfer-Trace: definitions, workloads and solutions as problems and candidates.

A definition has axes, inputs, outputs and a reference with a function `run`; a workload gives the
variable axes values; a solution is source text.  Schema: https://bench.flashinfer.ai and
https://github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer-trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from perfpipe.errors import InputError, StoreError
from perfpipe.jsonfile import json_lines, read_json
from perfpipe.pipelines.evaluate.block import FLOATS, INTEGERS, Evaluate
from perfpipe.pipelines.evaluate.problem import Problem

#: The file of a converted candidate, which calls the function of its solution.
ENTRY = "perfpipe_entry.py"

#: Most workloads of a definition that are judged.
_WORKLOADS = 16

#: Languages of solutions that need no build.
_LANGUAGES = ("python", "triton")

_CALLS = {
    True: "from {module} import {function} as run\n",
    False: """\
from {module} import {function} as _function


def run(*given):
    found = _function(*given[:{inputs}])
    found = found.values() if isinstance(found, dict) else found
    found = found if not hasattr(found, "dtype") else (found,)
    for output, one in zip(given[{inputs}:], found, strict=True):
        output.copy_(one)
""",
}


@dataclass(frozen=True)
class Definition:
    """A definition as a problem, with the workloads of its sizes."""

    problem: Problem
    workloads: tuple[Mapping[str, Any], ...]


def definition_of(path: Path, workloads: Path | None) -> Definition:
    """Return the problem of a definition file for the workloads of a JSON lines file.

    Raises InputError for an invalid definition, and for types and inputs that cannot be judged.
    """
    found = _json(path, "definition")
    try:
        name, axes = str(found["name"]), found["axes"]
        fixed = {key: one["value"] for key, one in axes.items() if one["type"] == "const"}
        free = [key for key, one in axes.items() if one["type"] == "var"]
        chosen = _workloads(workloads, name, free)
        scalars = _scalars(chosen, path)
        inputs = {k: _tensor(one, k, path, scalars) for k, one in found["inputs"].items()}
        outputs = {k: _tensor(one, k, path, {}) for k, one in found["outputs"].items()}
        reference = _function(str(found["reference"]), path)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a FlashInfer-Trace definition ({error!r})") from error
    sizes = [{**fixed, **{axis: int(one["axes"][axis]) for axis in free}} for one in chosen]
    types = [one["dtype"] for one in inputs.values() if one.get("dtype") in FLOATS]
    try:
        block = Evaluate.model_validate(
            {
                "reference": path.name, "module": ENTRY, "inputs": inputs, "outputs": outputs,
                "dtypes": types[:1] or ["float32"], "correctness": sizes, "timing": sizes,
                "special": [],
            }
        )  # fmt: skip
    except ValidationError as error:
        raise InputError(f"{path}: {error.errors()[0]['msg']}") from error
    problem = Problem(name, block, reference, path, widens=False)
    return Definition(problem, tuple(chosen))


def candidate_of(path: Path, problem: Problem, into: Path) -> Path:
    """Write the sources of a solution as a candidate's directory, and return it.

    Raises InputError for a solution of another definition, or one that needs a build.
    """
    found = _json(path, "solution")
    try:
        name, spec, sources = str(found["name"]), found["spec"], found["sources"]
        language, entry = str(spec["language"]), str(spec["entry_point"])
        files = {str(one["path"]): str(one["content"]) for one in sources}
        solves = found["definition"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a FlashInfer-Trace solution ({error!r})") from error
    if solves != problem.name:
        raise InputError(f"{path}: is a solution of {solves}, not of {problem.name}")
    if language not in _LANGUAGES:
        raise InputError(
            f"{path}: {language} needs a build; supported without one: {' and '.join(_LANGUAGES)}"
        )
    file, _, function = entry.partition("::")
    if file not in files or not function.isidentifier():
        raise InputError(f"{path}: no source for the entry point {entry}")
    module = ".".join(PurePosixPath(file).with_suffix("").parts)
    style = bool(spec.get("destination_passing_style", True))
    text = _CALLS[style].format(module=module, function=function, inputs=len(problem.block.inputs))
    return written({**files, ENTRY: text}, into / _file_name(name), path)


def baseline(definition: Definition, into: Path) -> Path:
    """Write the definition's own reference as a candidate, and return its directory."""
    text = _json(definition.problem.path, "definition")["reference"]
    inputs = len(definition.problem.block.inputs)
    call = _CALLS[False].format(module="reference_code", function="run", inputs=inputs)
    files = {"reference_code.py": text, ENTRY: call}
    return written(files, into / "reference", definition.problem.path)


def written(files: Mapping[str, str], into: Path, path: Path) -> Path:
    """Write texts below a directory, and return it; raises InputError for a name beyond it."""
    for name, text in files.items():
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise InputError(f"{path}: the source {name!r} is outside its directory")
        at = into / pure
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text, encoding="utf-8")
    return into


def _json(path: Path, what: str) -> dict[str, Any]:
    try:
        return read_json(path, what)
    except StoreError as error:
        raise InputError(str(error)) from error


def _file_name(name: str) -> str:
    return "".join(one if one.isalnum() or one in "-_." else "_" for one in name).strip(".") or "_"


def _workloads(path: Path | None, name: str, free: Sequence[str]) -> list[dict[str, Any]]:
    if path is None:
        if free:
            raise InputError(f"{name} has variable axes ({', '.join(free)}): pass --workloads")
        return [{"axes": {}, "inputs": {}, "uuid": name}]
    found = []
    for where, line in json_lines(path, "workload"):
        workload = line.get("workload", line)
        if line.get("definition", name) != name:
            continue
        if not isinstance(workload, dict) or {*free} - {*workload.get("axes", {})}:
            raise InputError(f"{where}: not a workload for {name} (axes: {', '.join(free)})")
        found.append(workload)
    if not found:
        raise InputError(f"{path}: no workload for {name}")
    return found[:_WORKLOADS]


def _scalars(workloads: Sequence[Mapping[str, Any]], path: Path) -> dict[str, Any]:
    """Return the numbers among the inputs; all workloads must have the same."""
    found: dict[str, Any] = {}
    for workload in workloads:
        for name, one in workload.get("inputs", {}).items():
            if one.get("type") == "safetensors":
                raise InputError(f"{path}: {name} comes from a tensor file, which is not supported")
            if one.get("type") == "scalar" and found.setdefault(name, one["value"]) != one["value"]:
                raise InputError(f"{path}: {name} differs between workloads: judge them separately")
    return found


def _tensor(
    one: Mapping[str, Any], name: str, path: Path, scalars: Mapping[str, Any]
) -> dict[str, Any]:
    if one["shape"] is None:
        if name not in scalars:
            raise InputError(f"{path}: {name} is a number without a value in the workloads")
        return {"scalar": scalars[name]}
    if one["dtype"] not in (*FLOATS, *INTEGERS):
        raise InputError(f"{path}: {name}: type {one['dtype']} is not supported")
    return {"shape": one["shape"], "dtype": one["dtype"]}


def _function(text: str, path: Path) -> Any:
    module = ModuleType(f"perfpipe_reference_{path.stem}")
    try:
        exec(compile(text, f"{path}: reference", "exec"), module.__dict__)  # noqa: S102
    except Exception as error:
        raise InputError(f"{path}: reference: {type(error).__name__}: {error}") from error
    if not callable(run := getattr(module, "run", None)):
        raise InputError(f"{path}: the reference does not define a function 'run'")
    return run
