"""Problems of KernelBench: a module with Model, get_inputs and get_init_inputs.

A candidate's kernel.py has the class ModelNew, which is constructed with the same arguments and
seed, so both have the same weights.  get_inputs() draws the inputs for a seed, on the device.  See
https://github.com/ScalingIntelligence/KernelBench.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.block import FLOATS, Evaluate, Input, Output, Tolerance
from perfpipe.pipelines.evaluate.drawing import seeded, shapes_of
from perfpipe.pipelines.evaluate.problem import Case, Problem, module_of

#: Seed of the weights, and tolerances by type, as in KernelBench's evaluation.
_SEED, _TOLERANCES = 42, {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}

_NEEDED = ("Model", "get_inputs", "get_init_inputs")


def problem_of_module(torch: Any, path: Path, device: str) -> Problem:
    """Return the problem of a module; raises InputError if it is not a KernelBench problem.

    Shapes come from tensors without memory: nothing of the size of the inputs is allocated.
    """
    module = module_of(path)
    if missing := [name for name in _NEEDED if not hasattr(module, name)]:
        raise InputError(
            f"{path}: not a KernelBench problem: it does not define {', '.join(missing)}"
        )
    init = list(_called(module.get_init_inputs, path))
    if not _is_plain(init):
        raise InputError(f"{path}: get_init_inputs may return only numbers, strings and lists")
    draw = _draw(module, path)
    model = _Model(torch, module, init, path, device)
    drawn, found = shapes_of(
        torch,
        lambda at: draw(torch, Case("float32", {}), _SEED, at),
        lambda inputs, at: _on(torch, at, lambda: module.Model(*init))(*inputs),
        device,
        path,
    )
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    types = [_dtype(one) for one in drawn if isinstance(one, torch.Tensor)]
    dtype = next((name for name in types if name in FLOATS), "float32")
    block = Evaluate(
        reference=path.name,
        entry="ModelNew",
        style="return",
        inputs={f"input_{n}": _input(torch, one) for n, one in enumerate(drawn)},
        outputs={
            f"output_{n}": Output(
                shape=[*one.shape], dtype=dtype if one.is_floating_point() else _dtype(one)
            )
            for n, one in enumerate(outputs)
        },
        dtypes=[dtype],
        tolerance={n: Tolerance(atol=one, rtol=one) for n, one in _TOLERANCES.items()},
        correctness=[{}],
        timing=[{}],
        seeds=5,
        special=[],
    )
    return Problem(path.stem, block, model, path, make=draw, init=init, init_seed=_SEED)


def _on(torch: Any, device: str, make: Callable[[], Any]) -> Any:
    with torch.device(device):
        return make()


class _Model:
    """The problem's model, in the type of its inputs; made when it is first called."""

    def __init__(
        self, torch: Any, module: SimpleNamespace, init: list[Any], path: Path, device: str
    ) -> None:
        self._torch, self._module, self._init = torch, module, init
        self._path, self._device = path, device
        self._made: Any = None

    def __call__(self, *inputs: Any) -> Any:
        torch = self._torch
        if self._made is None:
            # Weights are drawn on the host, as those of candidates.
            with seeded(torch, _SEED, "cpu"):
                self._made = _called(lambda: self._module.Model(*self._init), self._path)
            self._made = self._made.to(self._device)
        floats = [one.dtype for one in inputs if _is_float(torch, one)]
        return self._made.to(floats[0] if floats else torch.float64)(*inputs)


def baseline(problem: Problem, into: Path) -> Path:
    """Write the problem's own model as a candidate, and return its directory."""
    at = into / "reference"
    at.mkdir(parents=True)
    text = problem.path.read_text(encoding="utf-8")
    (at / problem.block.module).write_text(f"{text}\n\nModelNew = Model\n", encoding="utf-8")
    return at


def _draw(module: SimpleNamespace, path: Path) -> Callable[[Any, Case, int, str], list[Any]]:
    """Return how inputs are drawn: on the device, unless the problem names another one."""

    def draw(torch: Any, _: Case, seed: int, device: str) -> list[Any]:
        with seeded(torch, seed, device), torch.device(device):
            found = _called(module.get_inputs, path)
        return [one.to(device) if isinstance(one, torch.Tensor) else one for one in found]

    return draw


def _is_float(torch: Any, one: Any) -> bool:
    return isinstance(one, torch.Tensor) and bool(one.is_floating_point())


def _called(function: Callable[[], Any], path: Path) -> Any:
    try:
        return function()
    except Exception as error:
        raise InputError(f"{path}: {type(error).__name__}: {error}") from error


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _input(torch: Any, one: Any) -> Input:
    if isinstance(one, torch.Tensor):
        return Input.model_validate({"shape": [*one.shape], "dtype": _dtype(one)})
    if isinstance(one, (int, float)):
        return Input(scalar=one)
    raise InputError(
        f"get_inputs returns a {type(one).__name__}: only tensors and numbers are supported"
    )


def _dtype(tensor: Any) -> Any:
    return str(tensor.dtype).removeprefix("torch.")
