"""Runs functions of problems that draw inputs: by a seed, and for their shapes only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError


@contextmanager
def seeded(torch: Any, seed: int, device: str) -> Iterator[None]:
    """Seed PyTorch's random numbers, those of the device too, and restore them afterwards."""
    with torch.random.fork_rng(devices=[] if device == "cpu" else [device]):
        torch.manual_seed(seed)
        yield


def shapes_of(
    torch: Any,
    draw: Callable[[str], Any],
    reference: Callable[[Any, str], Any],
    device: str,
    path: Path,
) -> tuple[Any, Any]:
    """Return inputs and outputs of a problem as tensors without memory.

    Where a function needs values, it runs.  Raises InputError if it fails.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            inputs = draw(device)
            return inputs, reference(inputs, device)
    except Exception:
        try:
            with torch.no_grad():
                inputs = draw(device)
                return inputs, reference(inputs, device)
        except Exception as error:
            raise InputError(f"{path}: {type(error).__name__}: {error}") from error


#: Functions that make an empty tensor, and those that return one as it was.
_MAKE = ("empty", "empty_like", "empty_strided", "new_empty")
_KEEP = ("contiguous", "to", "cuda")


class Buffers:
    """The tensors that a function makes empty and leaves empty: places for results."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._found: dict[int, Any] = {}

    def __contains__(self, tensor: Any) -> bool:
        return id(tensor) in self._found

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the functions in the block."""
        from torch.overrides import TorchFunctionMode

        self._found.clear()
        note = self._note

        class Watch(TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                made = function(*args, **(kwargs or {}))
                note(function, args, kwargs or {}, made)
                return made

        with Watch():
            yield

    def _note(self, function: Any, args: Any, kwargs: Any, made: Any) -> None:
        name = getattr(function, "__name__", "")
        first = args[0] if args else None
        if name in _MAKE or (name in _KEEP and first in self):
            self._found[id(made)] = made
        elif name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
            self._found.pop(id(first), None)
        self._found.pop(id(kwargs.get("out")), None)


@contextmanager
def on_cpu(torch: Any) -> Iterator[None]:
    """Let functions that name the device cuda use the CPU in the block."""
    from torch.overrides import TorchFunctionMode

    def moved(device: Any) -> Any:
        named = isinstance(device, (str, torch.device)) and str(device).startswith("cuda")
        return "cpu" if named else device

    class Moved(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function is torch.Tensor.cuda:
                return args[0]
            given = {name: moved(one) for name, one in (kwargs or {}).items()}
            return function(*map(moved, args), **given)

    class Generator(torch.Generator):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, "cpu")

    usual, torch.Generator = torch.Generator, Generator
    try:
        with Moved():
            yield
    finally:
        torch.Generator = usual
