"""PyTorch, and the device that candidates run on."""

from __future__ import annotations

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
