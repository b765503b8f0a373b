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
    """A problem with its declared work, its baselines by name, and where it comes from.

    `workloads` are those of FlashInfer-Trace that its sizes are of.
    """

    problem: Problem
    work: Work
    baselines: Mapping[str, Path]
    workloads: tuple[Mapping[str, Any], ...] = ()

    def candidate(self, path: Path, into: Path) -> Path:
        """Return the directory of a candidate; that of a solution is written below `into`.

        Raises InputError for what is neither.
        """
        if path.suffix == ".json" and path.is_file():
            return flashinfer.candidate_of(path, self.problem, into)
        if not path.is_dir():
            raise InputError(f"{path}: no such directory of a candidate")
        return path


def loaded(
    torch: Any, path: Path, device: str, into: Path, workloads: Path | None = None
) -> Loaded:
    """Return the problem of a file; what is made of it is written below `into`.

    Raises InputError with file and line.
    """
    if path.suffix == ".json":
        made = flashinfer.definition_of(path, workloads)
        own = {"reference": flashinfer.baseline(made, into)}
        return Loaded(made.problem, Work(), own, made.workloads)
    if workloads is not None:
        raise InputError("--workloads is for definitions of FlashInfer-Trace")
    if path.suffix == ".py":
        problem = kernelbench.problem_of_module(torch, path, device)
        return Loaded(problem, Work(), {"reference": kernelbench.baseline(problem, into)})
    workload = load_workload(path)
    block = workload.evaluate
    if block is None:
        raise InputError(f"{path}: has no 'evaluate', which says what a candidate computes")
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
