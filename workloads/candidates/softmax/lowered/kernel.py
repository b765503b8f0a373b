"""Cheats: computes in bfloat16 for any input type."""

from __future__ import annotations

import torch


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """Write the softmax of each row of x to y, with only 8 correct bits."""
    y.copy_(torch.softmax(x.bfloat16(), dim=1))
