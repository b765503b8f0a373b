"""Cheats: caches results by the address and shape of the input."""

from __future__ import annotations

import torch

_SEEN: dict[tuple[object, ...], torch.Tensor] = {}


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """Write the softmax of the first data at the address of x."""
    key = (x.data_ptr(), x.shape, x.dtype)
    if key not in _SEEN:
        _SEEN[key] = torch.softmax(x, dim=1)
    y.copy_(_SEEN[key])
