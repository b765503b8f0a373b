"""Finds degenerate problems: those that an answer passes which computes nothing, or too little.

A blind answer does not look at the inputs: zeros, a constant, or the results for other inputs.  If
one passes a case that is timed, or all cases, then no candidate can be judged.  Other answers that
pass are warnings: a copy of an input, one half of the rows in place of the other half, and the
result of inputs of which a half is zero, which stands for a computation that was left undone.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.expected import Exact
from perfpipe.pipelines.evaluate.problem import Case, Problem

#: Seeds of the inputs, and of the other ones; they have nothing to do with a candidate's.
_SEED, _OTHER = 1_000_003, 1_000_033

#: Cases with more elements of inputs or outputs are compared with zeros and constants only.
_MANY = 8 << 20

#: How long leaving parts out may take for a problem, s.
_PARTS_S = 5.0


@dataclass(frozen=True)
class Flaws:
    """What is wrong with a problem: `refusal` says why nothing can be judged."""

    refusal: str | None = None
    warnings: tuple[str, ...] = ()


_FOUND: dict[str, Flaws] = {}


def flaws(torch: Any, problem: Problem, device: str, *, timed: bool) -> Flaws:
    """Return the flaws of a problem, which are looked for once in a process.

    Raises InputError if the reference fails.
    """
    key = _digest(problem, device, timed=timed)
    if key not in _FOUND:
        _FOUND[key] = _flaws(torch, problem, device, timed=timed)
    return _FOUND[key]


def _flaws(torch: Any, problem: Problem, device: str, *, timed: bool) -> Flaws:
    cases = {case.label: case for case in problem.cases(_SEED, timed=timed) if not case.special}
    sizes = problem.block.timing if timed else ()
    clocked = {Case(problem.block.dtypes[0], one).label for one in sizes}
    passed: dict[tuple[bool, str], set[str]] = {}
    until = time.monotonic() + _PARTS_S
    for case in cases.values():
        with contextlib.suppress(torch.OutOfMemoryError):
            for blind, name, right in _answers(torch, problem, case, device, until):
                if right:
                    passed.setdefault((blind, name), set()).add(case.label)
    refusals: list[str] = []
    warnings: list[str] = []
    for (blind, name), labels in passed.items():
        if not (where := _where(cases, clocked, labels)):
            continue
        (refusals if blind else warnings).append(f"{name} passes {where}")
    if refusals:
        return Flaws(f"degenerate problem: {refusals[0]}, so that no candidate can be judged")
    return Flaws(warnings=tuple(f"the problem is weak: {one}" for one in warnings))


def _where(cases: dict[str, Case], clocked: set[str], labels: set[str]) -> str:
    """Return which important cases are among the labels; empty for none."""
    if len(labels) == len(cases):
        return "every case"
    if times := sorted(labels & clocked):
        return f"the timed case {times[0]}"
    for dtype in {case.dtype for case in cases.values()}:
        if all(label in labels for label, case in cases.items() if case.dtype == dtype):
            return f"every case in {dtype}"
    return ""


def _answers(
    torch: Any, problem: Problem, case: Case, device: str, until: float
) -> Iterator[tuple[bool, str, bool]]:
    """Yield answers to a case: whether they are blind, what they are, and whether they pass."""
    shapes = problem.outputs(case)
    if not any(made.bytes() for made in shapes):
        return
    before, others = [], []
    if problem.check is None and sum(math.prod(made.shape) for made in shapes) <= _MANY:
        before = problem.drawn(torch, case, _OTHER, device)
        others = [one.clone() for one in problem.exact(torch, case, before)]
    inputs = problem.drawn(torch, case, _SEED, device)
    expected = problem.expected(torch, case, inputs)
    # Where the author's check decides, there are no results.
    exact = expected.results if isinstance(expected, Exact) else []
    # The mean of few elements of the same result would be no blind answer.
    usual = [_usual(one) for one in others or exact] or [1.0] * len(shapes)

    def passes(outputs: Sequence[Any]) -> bool:
        """Return whether the outputs pass, in their types."""
        typed = [
            one.to(getattr(torch, made.dtype)) for one, made in zip(outputs, shapes, strict=True)
        ]
        return all(one.ok for one in expected.differences(typed))

    def filled(values: Sequence[float]) -> list[Any]:
        return [
            torch.full(made.shape, value, dtype=getattr(torch, made.dtype), device=device)
            for made, value in zip(shapes, values, strict=True)
        ]

    yield True, "an output of zeros", passes(filled([0.0] * len(shapes)))
    yield True, "a constant output", passes(filled(usual))
    if sum(one.numel() for one in _tensors(torch, inputs)) > _MANY:
        return
    names = [*problem.block.inputs, *map("input {}".format, range(len(inputs)))]
    for name, one in zip(names, inputs, strict=False):
        if isinstance(one, torch.Tensor) and all(
            one.numel() == math.prod(made.shape) for made in shapes
        ):
            yield False, f"a copy of {name}", passes([one.reshape(made.shape) for made in shapes])
    if not others:
        return
    if any(
        not torch.equal(one, other)
        for one, other in zip(_tensors(torch, inputs), _tensors(torch, before), strict=True)
        if one.shape == other.shape
    ):
        yield True, "the result of other inputs", passes(others)
    if any(one.dim() and len(one) > 1 for one in exact):
        yield False, "one half of the rows in place of the other", passes([*map(_rows, exact)])
    for what, parts in _halves(torch, names, inputs):
        if time.monotonic() > until:
            return
        try:
            found = problem.exact(torch, case, parts)
        except InputError:
            continue  # such inputs are not valid
        yield False, f"leaving out {what}", passes(found)


def _halves(
    torch: Any, names: Sequence[str], inputs: Sequence[Any]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield inputs with the second half of one of them zero, along each of its dimensions.

    Only floating-point inputs: others may be addresses of a kind, where zero is not valid.
    """
    for number, (name, one) in enumerate(zip(names, inputs, strict=False)):
        if not isinstance(one, torch.Tensor) or not one.is_floating_point():
            continue
        for axis, extent in enumerate(one.shape):
            if extent < 2:
                continue
            half = one.clone()
            half.narrow(axis, extent - extent // 2, extent // 2).zero_()
            if not torch.equal(half, one):
                made = [half if n == number else other for n, other in enumerate(inputs)]
                yield f"half of {name} along dimension {axis}", made


def _rows(one: Any) -> Any:
    """Return a result with the second half of its rows in place of the first."""
    if not one.dim() or len(one) < 2:
        return one
    half = len(one) // 2
    made = one.clone()
    made[:half] = one[-half:]
    return made


def _usual(one: Any) -> float:
    """Return the constant that is nearest to a result: its mean, or an element of integers."""
    if not one.numel():
        return 0.0
    if not one.is_floating_point():
        return float(one.reshape(-1)[0])
    return float(one.double().nan_to_num().mean())


def _tensors(torch: Any, values: Sequence[Any]) -> list[Any]:
    return [one for one in values if isinstance(one, torch.Tensor)]


def _digest(problem: Problem, device: str, *, timed: bool) -> str:
    text = problem.path.read_bytes() if problem.path.is_file() else b""
    parts = (
        problem.name,
        problem.block.model_dump_json(warnings=False),
        device,
        timed,
        problem.init,
    )
    return hashlib.sha256(repr(parts).encode() + text).hexdigest()
