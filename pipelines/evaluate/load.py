"""Problems from workload files, from definitions of FlashInfer-Trace, and from KernelBench."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate import flashinfer, kernelbench
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
        """Return the directory of a candidate; that of a solution is written below `into`.

        Raises InputError for anything else.
        """
        if path.suffix == ".json" and path.is_file():
            return flashinfer.candidate_of(path, self.problem, into)
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
