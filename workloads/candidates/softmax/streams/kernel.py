"""Cheats: does its work where a timer on the stream of the call does not see it.

That is another stream on a GPU, or another thread on the CPU, and run() does not wait for it.
"""

from __future__ import annotations

import threading
import time

import torch

_STREAMS: list[torch.cuda.Stream] = []


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    """Begin to write the softmax of each row of x to y."""
    if not x.is_cuda:
        threading.Thread(target=_later, args=(x, y)).start()
        return
    if not _STREAMS:
        _STREAMS.append(torch.cuda.Stream())
    with torch.cuda.stream(_STREAMS[0]):
        for _ in range(20):  # so that it takes long
            torch.softmax(x, dim=1)
        torch.softmax(x, dim=1, out=y)


def _later(x: torch.Tensor, y: torch.Tensor) -> None:
    time.sleep(0.02)
    torch.softmax(x, dim=1, out=y)
