"""How much memory a problem needs, and whether a device has it: before anything is allocated."""

from __future__ import annotations

from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.arena import laid_out
from perfpipe.pipelines.evaluate.memory import free
from perfpipe.pipelines.evaluate.problem import Case, Problem
from perfpipe.pipelines.evaluate.timing import batch_of

#: Bytes that temporary tensors of a comparison take, and CUDA contexts of candidates.
_TEMPORARY = 512 << 20

#: Share of the free memory that a batch may take beyond its budget.
_BEYOND = 0.25

_PAGE = 4096


def needed_bytes(torch: Any, problem: Problem, device: str, budget: int, *, timed: bool) -> int:
    """Return the bytes that the calls of a batch take, or the largest single call.

    A batch has the calls that fit into `budget`; a few more where memory is plenty; at least one.
    Raises InputError if a call and its check do not fit into the memory of the device.
    """
    there = free(torch, device)
    found = _PAGE
    for case in problem.cases(0, timed=timed):
        spreads = (0, 1, 2) if case.special == "noncontiguous" else (0,)
        made = problem.inputs(case), problem.outputs(case)
        one = max(laid_out(*made, 0, spread).end for spread in spreads)
        # Inputs as they were drawn, results, and what the candidate returns.
        check = problem.bytes(case) + sum(output.bytes() for output in made[1])
        if one + check + _TEMPORARY > there:
            raise InputError(_too_large(problem, case, device, one, check, there))
        found = max(found, one)
    for sizes in problem.block.timing if timed else ():
        case = Case(problem.block.dtypes[0], sizes)
        one = laid_out(problem.inputs(case), problem.outputs(case), 0).end
        found = max(found, one * batch_of(one, budget, int(_BEYOND * there)))
    return -(-found // _PAGE) * _PAGE


def _too_large(problem: Problem, case: Case, device: str, one: int, check: int, there: int) -> str:
    where = "the CPU" if device == "cpu" else "the GPU"
    return (
        f"{problem.name} does not fit: inputs and outputs of {case.label} take {one / 2**30:.1f} "
        f"GiB, checking them {check / 2**30:.1f} GiB more; {there / 2**30:.1f} GiB are available "
        f"on {where}"
    )
