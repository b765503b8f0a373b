"""Judgements as FlashInfer-Trace: the definition, workloads, solutions, and their traces."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, StoreError, os_error_sentence
from perfpipe.pipelines.evaluate.problem import Case, Problem
from perfpipe.pipelines.evaluate.result import Judgement, Score, Status

#: Names of a status; the schema lacks some, which the log reports.
_STATUS = {
    Status.CRASH: "RUNTIME_ERROR",
    Status.TIMEOUT: "TIMEOUT",
    Status.RESOURCES: "RUNTIME_ERROR",
    Status.CHEATING: "RUNTIME_ERROR",
    Status.REFUSED: "RUNTIME_ERROR",
}
_WRONG = {"wrong shape": "INCORRECT_SHAPE", "wrong type": "INCORRECT_DTYPE"}


def export(
    into: Path,
    problem: Problem,
    made: Sequence[tuple[Judgement, Path]],
    workloads: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write judgements with their candidates' directories below a directory.

    Raises InputError for a problem that the schema cannot express, StoreError if writing fails.
    """
    name = problem.name
    told = [*workloads] or [_workload(problem, sizes) for sizes in problem.block.timing]
    texts = {f"definitions/{name}.json": _json(definition(problem))}
    texts[f"workloads/{name}.jsonl"] = _lines(
        {"definition": name, "workload": one, "solution": None, "evaluation": None} for one in told
    )
    for judgement, directory in made:
        solved = solution(problem, judgement, directory)
        texts[f"solutions/{name}/{judgement.candidate}.json"] = _json(solved)
    texts[f"traces/{name}.jsonl"] = _lines(
        trace for one, _ in made for trace in traces(problem, one, told)
    )
    try:
        for file, text in texts.items():
            (into / file).parent.mkdir(parents=True, exist_ok=True)
            (into / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot write")) from error


def definition(problem: Problem) -> dict[str, Any]:
    """Return a problem as a definition; raises InputError for extents that are not axes."""
    if problem.made is not None:
        raise InputError(f"{problem.name}: FlashInfer-Trace cannot express a task of GPU MODE")
    block = problem.block
    sizes = [*block.correctness, *block.timing]
    axes: dict[str, Any] = {}
    for name in sizes[0]:
        values = {one[name] for one in sizes}
        axes[name] = (
            {"type": "const", "value": values.pop()} if len(values) == 1 else {"type": "var"}
        )

    def shape(extents: Sequence[int | str]) -> list[str]:
        for extent in extents:
            if isinstance(extent, int):
                axes.setdefault(f"n{extent}", {"type": "const", "value": extent})
            elif extent not in axes:
                raise InputError(
                    f"{problem.path}: {extent} is not an axis; FlashInfer-Trace has no arithmetic"
                )
        return [f"n{one}" if isinstance(one, int) else one for one in extents]

    def tensor(one: Any) -> dict[str, Any]:
        return {"shape": shape(one.shape), "dtype": one.dtype or block.dtypes[0]}

    inputs = {
        name: {"shape": None, "dtype": "float32"} if one.scalar is not None else tensor(one)
        for name, one in block.inputs.items()
    }
    return {
        "name": problem.name,
        "op_type": problem.name,
        "axes": axes,
        "inputs": inputs,
        "outputs": {name: tensor(one) for name, one in block.outputs.items()},
        "reference": _reference(problem),
    }


def solution(problem: Problem, made: Judgement, directory: Path) -> dict[str, Any]:
    """Return a candidate as a solution, with its text files."""
    sources = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and not path.is_symlink():
            try:
                text = path.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue
            sources.append({"path": path.relative_to(directory).as_posix(), "content": text})
    triton = any("import triton" in one["content"] for one in sources)
    return {
        "name": made.candidate,
        "definition": problem.name,
        "author": "perfpipe",
        "spec": {
            "language": "triton" if triton else "python",
            "target_hardware": [_hardware(made)],
            "entry_point": f"{problem.block.module}::{problem.block.entry}",
            "destination_passing_style": problem.block.style == "destination",
        },
        "sources": sources,
    }


def traces(
    problem: Problem, made: Judgement, workloads: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield a trace for each workload; none for a correct candidate without times."""
    for sizes, workload in zip(problem.block.timing, workloads, strict=False):
        label = Case(problem.block.dtypes[0], sizes).label
        score = next((one for one in made.scores if one.case == label), None)
        if made.ok and score is None:
            continue
        yield {
            "definition": problem.name,
            "workload": dict(workload),
            "solution": made.candidate,
            "evaluation": _evaluation(made, score),
        }


def _evaluation(made: Judgement, score: Score | None) -> dict[str, Any]:
    kind = made.evidence[0].kind if made.evidence else ""
    status = "PASSED" if made.ok else _STATUS.get(made.status) or _WRONG.get(kind)
    numerical = status is None
    found: dict[str, Any] = {
        "status": status or "INCORRECT_NUMERICAL",
        "environment": {"hardware": _hardware(made), "libs": dict(made.software)},
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "log": made.output if made.ok else f"{made.status}: {made.reason}\n{made.output}".strip(),
        "correctness": None,
        "performance": None,
    }
    if made.ok or numerical:
        found["correctness"] = {
            "max_relative_error": _error(made.max_relative_error),
            "max_absolute_error": _error(made.max_abs_error),
        }
    if score is not None and made.ok:
        own, other = (statistics.median(ms) for ms in (score.candidate_ms, score.baseline_ms))
        found["performance"] = {
            "latency_ms": own,
            "reference_latency_ms": other,
            "speedup_factor": score.speedup,
        }
    return found


def _error(value: float | None) -> float | str:
    """Return an error in the form of the schema: an unknown one is NaN, as text."""
    return "NaN" if value is None else value


def _workload(problem: Problem, sizes: Mapping[str, int]) -> dict[str, Any]:
    inputs = {
        name: {"type": "random"} if one.scalar is None else {"type": "scalar", "value": one.scalar}
        for name, one in problem.block.inputs.items()
    }
    name = "-".join(f"{key}{value}" for key, value in sizes.items())
    return {"axes": dict(sizes), "inputs": inputs, "uuid": f"{problem.name}-{name}"}


def _reference(problem: Problem) -> str:
    """Return the source of the reference, with a function `run`."""
    if problem.path.suffix == ".json":
        found: str = json.loads(problem.path.read_text(encoding="utf-8"))["reference"]
        return found
    if problem.init is not None:
        raise InputError(f"{problem.path}: FlashInfer-Trace cannot define a model with weights")
    text = problem.path.read_text(encoding="utf-8")
    given = ", ".join(problem.block.inputs)
    return f"{text}\n\ndef run({given}):\n    return {problem.block.function}({given})\n"


def _hardware(made: Judgement) -> str:
    return made.device.replace(" ", "_")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _lines(values: Iterator[Any]) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
