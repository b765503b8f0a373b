"""Attention softmax(Q K^T / sqrt(D)) V: fused in Triton, in PyTorch, or unfused.

Work: 4 B H L^2 D floating-point operations (half of that if causal); 4 B H L D x element size
bytes if the scores are never stored, 4 B H L^2 x more if they are.
"""

from __future__ import annotations

import argparse
import math
import sys

import torch
import triton
import triton.language as tl
from harness import DTYPES, WRONG_RESULT, check, compiled, device, guarded, measure, parser


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    length,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """BLOCK_M queries of one head against all keys, with a running maximum and sum."""
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * length * D
    at_m, at_d = start + tl.arange(0, BLOCK_M), tl.arange(0, D)
    rows = at_m[:, None] < length
    q = tl.load(q_ptr + head + at_m[:, None] * D + at_d[None, :], mask=rows, other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, D), tl.float32)
    end = length
    if CAUSAL:
        end = min(length, start + BLOCK_M)
    for first in range(0, end, BLOCK_N):
        at_n = first + tl.arange(0, BLOCK_N)
        columns = at_n[:, None] < length
        k = tl.load(k_ptr + head + at_n[:, None] * D + at_d[None, :], mask=columns, other=0.0)
        v = tl.load(v_ptr + head + at_n[:, None] * D + at_d[None, :], mask=columns, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = at_n[None, :] < length
        if CAUSAL:
            seen = seen & (at_n[None, :] <= at_m[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        now = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp(scores - now[:, None])
        shrink = tl.exp(largest - now)
        weight = weight * shrink + tl.sum(p, axis=1)
        total = total * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        largest = now
    out = total / weight[:, None]
    tl.store(
        o_ptr + head + at_m[:, None] * D + at_d[None, :],
        out.to(o_ptr.dtype.element_ty),
        mask=rows,
    )


def main() -> int:
    """Run one configuration and return the exit code."""
    options = _options()
    where, dtype = device(options), DTYPES[options.dtype]
    shape = (options.batch, options.heads, options.length, options.dim)
    q, k, v = (torch.randn(shape, device=where).to(dtype) for _ in range(3))
    scale = 1 / math.sqrt(options.dim)

    def unfused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) * scale
        if options.causal:
            ones = torch.ones(options.length, options.length, device=where, dtype=torch.bool)
            scores = scores.masked_fill(ones.triu(1), -math.inf)
        return torch.softmax(scores, dim=-1) @ v

    out = torch.empty_like(q)
    grid = (triton.cdiv(options.length, options.block_m), options.batch * options.heads)

    def step() -> torch.Tensor:
        if options.backend == "unfused":
            return unfused(q, k, v)
        if options.backend == "torch":
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=options.causal
            )
        step.handle = attention_kernel[grid](  # type: ignore[attr-defined]
            q, k, v, out, options.length, scale,
            D=options.dim, BLOCK_M=options.block_m, BLOCK_N=options.block_n,
            CAUSAL=options.causal, num_warps=options.warps, num_stages=options.stages,
        )  # fmt: skip
        return out

    found = step()
    compiled(getattr(step, "handle", None))

    def reference() -> torch.Tensor:
        # One batch entry is enough in float64.
        return unfused(q[:1].double(), k[:1].double(), v[:1].double())

    if not check(found[:1], reference, options.atol, options.rtol):
        return WRONG_RESULT
    return measure(options, step)


def _options() -> argparse.Namespace:
    made = parser("Attention, checked and timed.")
    made.add_argument("--batch", type=int, default=4, help="batch entries (4)")
    made.add_argument("--heads", type=int, default=16, help="heads (16)")
    made.add_argument("--length", type=int, default=2048, help="queries and keys (2048)")
    made.add_argument("--dim", type=int, default=64, help="head dimension, a power of two (64)")
    made.add_argument("--causal", action="store_true", help="mask later keys")
    made.add_argument("--dtype", choices=DTYPES, default="fp16")
    made.add_argument("--backend", choices=("triton", "torch", "unfused"), default="triton")
    for name, value in {"block-m": 128, "block-n": 64, "warps": 8, "stages": 3}.items():
        made.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(guarded(main))
