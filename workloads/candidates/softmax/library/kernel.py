"""Softmax of rows with PyTorch's kernel."""

from __future__ import annotations

import torch


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """Write the softmax of each row of x to y."""
    torch.softmax(x, dim=1, out=y)
