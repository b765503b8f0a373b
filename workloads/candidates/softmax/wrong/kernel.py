"""Wrong: without the maximum, exponentials of large values overflow."""

from __future__ import annotations

import torch


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """Write the softmax of each row of x, correct only for small x."""
    e = torch.exp(x.float())
    y.copy_(e / e.sum(dim=1, keepdim=True))
