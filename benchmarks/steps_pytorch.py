"""Trains a small network in PyTorch until it is ended, and prints the time of each step."""

from __future__ import annotations

import json
import time
from itertools import chain

import torch

LAYERS, BATCH = 12, 64


def main() -> None:
    """Train, on a GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width = 512 if device == "cuda" else 32
    pairs = ((torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(LAYERS))
    model = torch.nn.Sequential(*chain.from_iterable(pairs)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(2, BATCH, width, device=device)
    while True:
        began = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        ms = 1e3 * (time.perf_counter() - began)
        print(json.dumps({"perfpipe": "time", "ms": ms}), flush=True)


if __name__ == "__main__":
    main()
