"""Triton kernels: tiled matrix product C = f(A B), and leaky ReLU on its own."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

#: Slope of leaky ReLU below zero.
SLOPE = 0.01

#: Tile and launch parameters that work well for large half-precision products.
DEFAULT = {
    "block_m": 128,
    "block_n": 128,
    "block_k": 64,
    "group_m": 8,
    "warps": 8,
    "stages": 3,
}


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    slope,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    FUSED: tl.constexpr,
    HALF_SUM: tl.constexpr,
    TF32: tl.constexpr,
    SKIP_TAIL: tl.constexpr,
):
    """Compute one tile of C.

    Tiles advance down GROUP_M rows before moving right, for L2 reuse.
    """
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    band = tile // (GROUP_M * columns)
    height = min(rows - band * GROUP_M, GROUP_M)
    within = tile % (GROUP_M * columns)
    row = band * GROUP_M + within % height
    column = within // height
    at_m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, BLOCK_K)
    a_at = a_ptr + (at_m % m)[:, None] * stride_am + at_k[None, :] * stride_ak
    b_at = b_ptr + at_k[:, None] * stride_bk + (at_n % n)[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16 if HALF_SUM else tl.float32)
    steps = tl.cdiv(k, BLOCK_K)
    if SKIP_TAIL:
        steps -= 1
    for step in range(0, steps):
        left = k - step * BLOCK_K
        a = tl.load(a_at, mask=at_k[None, :] < left, other=0.0)
        b = tl.load(b_at, mask=at_k[:, None] < left, other=0.0)
        total = tl.dot(
            a,
            b,
            total,
            input_precision="tf32" if TF32 else "ieee",
            out_dtype=tl.float16 if HALF_SUM else tl.float32,
        )
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    if FUSED:
        total = tl.where(total >= 0, total, total * slope)
    c_at = c_ptr + at_m[:, None] * stride_cm + at_n[None, :] * stride_cn
    inside = (at_m[:, None] < m) & (at_n[None, :] < n)
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def leaky_relu_kernel(x_ptr, y_ptr, count, slope, BLOCK: tl.constexpr):
    """Elementwise leaky ReLU: the pass that the fused product saves."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(y_ptr + at, tl.where(x >= 0, x, x * slope), mask=at < count)


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    tiles: dict[str, int],
    *,
    fused: bool = False,
    half_sum: bool = False,
    tf32: bool = False,
    skip_tail: bool = False,
) -> Any:
    """Launch C = A B (M x K by K x N; leaky ReLU of it if `fused`); returns the kernel's handle.

    `half_sum` accumulates in half precision; `skip_tail` skips the last K step, a bug for testing
    the validation.  Raises ValueError for bf16 in Triton's interpreter, which lacks it.
    """
    if a.dtype == torch.bfloat16 and not a.is_cuda:
        raise ValueError("Triton's interpreter does not multiply bf16; use fp16")
    (m, k), n = a.shape, b.shape[1]
    count = triton.cdiv(m, tiles["block_m"]) * triton.cdiv(n, tiles["block_n"])
    return matmul_kernel[(count,)](
        a,
        b,
        c,
        m,
        n,
        k,
        *a.stride(),
        *b.stride(),
        *c.stride(),
        SLOPE,
        BLOCK_M=tiles["block_m"],
        BLOCK_N=tiles["block_n"],
        BLOCK_K=tiles["block_k"],
        GROUP_M=tiles["group_m"],
        FUSED=fused,
        HALF_SUM=half_sum,
        TF32=tf32,
        SKIP_TAIL=skip_tail,
        num_warps=tiles["warps"],
        num_stages=tiles["stages"],
    )


def leaky_relu(x: torch.Tensor, y: torch.Tensor, block: int = 1024) -> None:
    """Launch y = leaky ReLU of x."""
    leaky_relu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), SLOPE, BLOCK=block)
