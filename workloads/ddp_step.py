"""Data-parallel training steps of a small transformer over NCCL (gloo without GPUs).

Start it with torchrun, one process per GPU: python -m torch.distributed.run --nproc-per-node 2
ddp_step.py.  `--slow-rank R` makes rank R a straggler, with extra work in every step.

Before timing, the gradients are compared with the mean of the local gradients of all ranks.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys

import torch
import torch.distributed as dist
from harness import WRONG_RESULT, check, guarded, measure, nvtx, parser
from model import Transformer, loss_of, tokens_of
from torch.nn.parallel import DistributedDataParallel


def main() -> int:
    """Run one rank and return the exit code."""
    options = _options()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available()
    where = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(where)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        return _train(options, where)
    finally:
        dist.destroy_process_group()


def _train(options: argparse.Namespace, where: torch.device) -> int:
    rank = dist.get_rank()
    torch.manual_seed(options.seed)
    model = Transformer(
        options.vocabulary, options.width, options.heads, options.layers, options.length
    ).to(where)
    alone = copy.deepcopy(model)
    parallel = DistributedDataParallel(
        model,
        device_ids=[where.index] if where.type == "cuda" else None,
        bucket_cap_mb=options.bucket_mb,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    size = (options.batch, options.length, options.vocabulary)
    tokens = tokens_of(*size, seed=options.seed + rank).to(where)
    busy = torch.randn(2048, 2048, device=where)
    steps = 0

    def gradients(net: torch.nn.Module) -> None:
        kind = where.type
        with torch.autocast(kind, dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            loss_of(net, tokens).backward()

    def step() -> None:
        nonlocal steps
        with nvtx(f"step {steps}"):
            steps += 1
            optimizer.zero_grad(set_to_none=True)
            if rank == options.slow_rank:
                for _ in range(options.slow_products):
                    busy @ busy
            with nvtx("forward and backward"):
                gradients(parallel)
            with nvtx("optimizer"):
                optimizer.step()

    gradients(alone)
    mean = torch.cat([p.grad.flatten() for p in alone.parameters() if p.grad is not None])
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    gradients(parallel)
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    if not check(
        found, lambda: mean, options.atol * float(mean.abs().max()), options.rtol, rank=rank
    ):
        return WRONG_RESULT
    return measure(options, step, queued=False, together=_barrier)


def _barrier() -> None:
    dist.barrier()
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _options() -> argparse.Namespace:
    made = parser("Data-parallel training step, checked and timed.")
    sizes = {"batch": 8, "length": 512, "width": 512, "heads": 8, "layers": 4}
    for name, value in {**sizes, "vocabulary": 8192}.items():
        made.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    made.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    made.add_argument("--bucket-mb", type=float, default=25, help="gradient bucket size (25)")
    made.add_argument("--slow-rank", type=int, default=-1, help="rank to slow down (none)")
    made.add_argument("--slow-products", type=int, default=8, help="extra products it runs (8)")
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(guarded(main))
