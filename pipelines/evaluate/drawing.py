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
