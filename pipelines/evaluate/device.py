"""PyTorch, and the device that candidates run on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfpipe.errors import ToolMissing


def pytorch() -> Any:
    """Return PyTorch; raises ToolMissing."""
    try:
        import torch
    except ImportError as error:
        raise ToolMissing(
            "PyTorch is not installed in perfpipe's environment: pip install torch"
        ) from error
    return torch


def device_of(torch: Any, asked: str) -> str:
    """Return the device for `auto`, `cpu` or `cuda`; raises ToolMissing without a GPU."""
    there = torch.cuda.is_available()
    if asked == "cuda" and not there:
        raise ToolMissing("PyTorch cannot use a GPU on this machine")
    return "cuda:0" if there and asked != "cpu" else "cpu"


@contextmanager
def idle_threads(torch: Any) -> Iterator[None]:
    """Let PyTorch use only idle processors in the block.

    Where all are busy, threads that wait for each other take many times as long as one.
    """
    before = torch.get_num_threads()
    idle = int((os.cpu_count() or 1) - os.getloadavg()[0])
    torch.set_num_threads(max(1, min(before, idle)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def device_name(torch: Any, device: str) -> str:
    """Return the model of a device."""
    if device == "cpu":
        return f"CPU ({platform.machine()})"
    return str(torch.cuda.get_device_name(device))
