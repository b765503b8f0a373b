"""Problems from workload files, and from FlashInfer-Trace, KernelBench and GPU MODE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate import flashinfer, gpumode, kernelbench
from perfpipe.pipelines.evaluate.problem import Problem, reference_of
from perfpipe.pipelines.workload import Work, load_workload


@dataclass(frozen=True)
class Loaded:
    """A problem with its declared work, its baselines by name, and its source.

    `workloads` are the FlashInfer-Trace workloads of its sizes.
    """

    problem: Problem
    work: Work
    baselines: Mapping[str, Path]
    workloads: tuple[Mapping[str, Any], ...] = ()

    def candidate(self, path: Path, into: Path) -> Path:
        """Return the directory of a candidate; that of a file is written below `into`.

        Raises InputError for anything else.
        """
        if path.suffix == ".json" and path.is_file():
            return flashinfer.candidate_of(path, self.problem, into)
        if self.problem.given:
            return gpumode.candidate_of(path, self.problem, into)
        if path.suffix == ".py" and path.is_file():
            return _alone(path, self.problem, into)
        if not path.is_dir():
            raise InputError(f"{path}: no such candidate directory")
        return path


def loaded(
    torch: Any, path: Path, device: str, into: Path, workloads: Path | None = None
) -> Loaded:
    """Return the problem of a file; generated files are written below `into`.

    Raises InputError with file and line.
    """
    if path.suffix == ".json":
        made = flashinfer.definition_of(path, workloads)
        own = {"reference": flashinfer.baseline(made, into)}
        return Loaded(made.problem, Work(), own, made.workloads)
    if workloads is not None:
        raise InputError("--workloads applies to FlashInfer-Trace definitions only")
    if path.suffix == ".py":
        problem = kernelbench.problem_of_module(torch, path, device)
        return Loaded(problem, Work(), {"reference": kernelbench.baseline(problem, into)})
    if path.suffix in (".yml", ".yaml") and gpumode.is_task(path):
        problem = gpumode.problem_of_task(torch, path, device, into)
        return Loaded(problem, Work(), gpumode.baseline(problem, into))
    workload = load_workload(path)
    block = workload.evaluate
    if block is None:
        raise InputError(f"{path}: no 'evaluate' block, which defines what a candidate computes")
    folder = path.resolve().parent
    reference = folder / block.reference
    problem = Problem(
        workload.name,
        block,
        reference_of(reference, block.function),
        reference,
        forbidden=frozenset(block.forbidden),
    )
    baselines = {name: folder / at for name, at in block.baselines.items()}
    return Loaded(problem, workload.work, baselines)


def _alone(path: Path, problem: Problem, into: Path) -> Path:
    """Write a candidate of a single file as a directory, and return it."""
    at = into / path.stem
    at.mkdir(parents=True, exist_ok=True)
    (at / problem.block.module).write_bytes(path.read_bytes())
    return at
