"""A training step of a small transformer: eager, as a CUDA graph, with syncs, or with copies.

    eager   every kernel is launched by the host
    graph   the whole step is captured once and replayed with one launch
    sync    eager, and the loss is read after every step (loss.item())
    copies  eager, and each step copies its tokens from pageable host memory

Work of a step (forward and backward): 6 x parameters without embeddings x tokens, and
12 x layers x length x width x tokens of attention, halved because it is causal.
"""

from __future__ import annotations

import argparse
import copy
import sys

import torch
from harness import WRONG_RESULT, check, device, guarded, measure, nvtx, parser
from model import Transformer, loss_of, tokens_of

#: The loss after this many steps, with updated weights, is compared with the CPU.
CHECKED_STEPS = 4

MODES = ("eager", "graph", "sync", "copies")


class Training:
    """A model, its optimizer, and one training step on tokens that are on the device."""

    def __init__(self, model: Transformer, tokens: torch.Tensor, options: argparse.Namespace):
        self.model, self.tokens, self.options = model, tokens, options
        self.on_gpu = tokens.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-4, fused=self.on_gpu, capturable=self.on_gpu
        )
        self.loss = torch.zeros((), device=tokens.device)

    def forward(self) -> torch.Tensor:
        """Return the loss; in bf16 on a GPU."""
        if self.on_gpu and self.options.dtype == "bf16":
            # With the cache, a replayed graph would keep using weights cast at capture.
            with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
                return loss_of(self.model, self.tokens)
        return loss_of(self.model, self.tokens)

    def step(self) -> None:
        """Forward, backward, optimizer."""
        self.optimizer.zero_grad(set_to_none=True)
        with nvtx("forward"):
            self.loss = self.forward()
        with nvtx("backward"):
            self.loss.backward()
        with nvtx("optimizer"):
            self.optimizer.step()


class Captured(Training):
    """A training step as a CUDA graph, after `eager` eager steps."""

    def __init__(
        self, model: Transformer, tokens: torch.Tensor, options: argparse.Namespace, eager: int
    ) -> None:
        super().__init__(model, tokens, options)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(eager):
                super().step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            super().step()

    def step(self) -> None:
        """Replay the captured step, on the same tokens."""
        self.graph.replay()


def main() -> int:
    """Run one configuration and return the exit code."""
    options = _options()
    where = device(options)
    model = Transformer(
        options.vocabulary, options.width, options.heads, options.layers, options.length
    )
    tokens = tokens_of(options.batch, options.length, options.vocabulary, options.seed)
    untrained = copy.deepcopy(model)
    moved = (model.to(where), tokens.to(where), options)
    training: Training
    if options.mode == "graph" and where.type == "cuda":
        training = Captured(*moved, eager=CHECKED_STEPS - 1)
        training.step()
    else:
        training = Training(*moved)
        for _ in range(CHECKED_STEPS):
            training.step()

    def reference() -> torch.Tensor:
        return _reference(untrained, tokens, options)

    if not check(training.loss.reshape(1), reference, options.atol, options.rtol):
        return WRONG_RESULT

    def step() -> None:
        if options.mode == "copies":
            with nvtx("copy"):
                training.tokens = tokens.to(where)
        training.step()
        if options.mode == "sync":
            training.loss.item()

    return measure(options, step, queued=options.mode == "graph")


def _reference(
    model: Transformer, tokens: torch.Tensor, options: argparse.Namespace
) -> torch.Tensor:
    """Return the last loss of CHECKED_STEPS steps on the CPU, in float32."""
    training = Training(model, tokens, options)
    for _ in range(CHECKED_STEPS):
        training.step()
    return training.loss.detach().reshape(1)


def _options() -> argparse.Namespace:
    made = parser("Training step of a transformer, checked and timed.")
    made.add_argument("--mode", choices=MODES, default="eager")
    sizes = {"batch": 8, "length": 512, "width": 512, "heads": 8, "layers": 4}
    for name, value in {**sizes, "vocabulary": 8192}.items():
        made.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    made.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(guarded(main))
