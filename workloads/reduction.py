"""Sum of a vector: with one atomic per block, in two passes, or in PyTorch.

Work: N floating-point operations; N x element size bytes.
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from harness import DTYPES, WRONG_RESULT, check, device, guarded, measure, parser


@triton.jit
def sum_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    """Sum BLOCK elements, into the result (atomic) or as a partial sum."""
    block = tl.program_id(0)
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    if ATOMIC:
        tl.atomic_add(out_ptr, tl.sum(x, axis=0))
    else:
        tl.store(out_ptr + block, tl.sum(x, axis=0))


def main() -> int:
    """Run one configuration and return the exit code."""
    made = parser("Sum of a vector, checked and timed.")
    made.add_argument("--n", type=int, default=1 << 24, help="elements (2^24)")
    made.add_argument("--dtype", choices=DTYPES, default="fp32")
    made.add_argument("--mode", choices=("two_pass", "atomic", "torch"), default="two_pass")
    made.add_argument("--block", type=int, default=4096, help="elements per block (4096)")
    options = made.parse_args()
    where, dtype = device(options), DTYPES[options.dtype]
    x = torch.rand(options.n, device=where).to(dtype)
    blocks = triton.cdiv(options.n, options.block)
    partial = torch.empty(blocks, device=where, dtype=torch.float32)
    total = torch.zeros(1, device=where, dtype=torch.float32)
    last = triton.next_power_of_2(blocks)

    def step() -> torch.Tensor:
        if options.mode == "torch":
            return torch.sum(x, dtype=torch.float32).reshape(1)
        if options.mode == "atomic":
            total.zero_()
            sum_kernel[(blocks,)](x, total, options.n, BLOCK=options.block, ATOMIC=True)
            return total
        sum_kernel[(blocks,)](x, partial, options.n, BLOCK=options.block, ATOMIC=False)
        sum_kernel[(1,)](partial, total, blocks, BLOCK=last, ATOMIC=False)
        return total

    if not check(step(), lambda: x.double().sum().reshape(1), options.atol, options.rtol):
        return WRONG_RESULT
    return measure(options, step)


if __name__ == "__main__":
    sys.exit(guarded(main))
