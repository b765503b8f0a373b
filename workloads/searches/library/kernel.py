"""Softmax of scaled scores with a bias, with PyTorch's kernels: an addition and a softmax."""

from __future__ import annotations

import torch


def run(x: torch.Tensor, bias: torch.Tensor, y: torch.Tensor) -> None:
    """Write the softmax of each row of x / 8 + bias to y."""
    torch.softmax(torch.add(bias, x, alpha=0.125), dim=1, out=y)
