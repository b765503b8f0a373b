"""Softmax of rows: in one Triton kernel with the row in registers, in PyTorch, or unfused.

Work: 5 M N floating-point operations (maximum, difference, exponential, sum, quotient); 2 M N x
element size bytes if each row is read and written once, 8 M N x if every step is a pass.
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from harness import DTYPES, WRONG_RESULT, check, compiled, device, guarded, measure, parser


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, stride, BLOCK: tl.constexpr):
    """Softmax of a row; BLOCK is its length rounded up to a power of two."""
    row = tl.program_id(0).to(tl.int64) * stride
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row + at, y.to(y_ptr.dtype.element_ty), mask=at < columns)


def main() -> int:
    """Run one configuration and return the exit code."""
    made = parser("Softmax of rows, checked and timed.")
    made.add_argument("--m", type=int, default=4096, help="rows (4096)")
    made.add_argument("--n", type=int, default=4096, help="columns (4096)")
    made.add_argument("--dtype", choices=DTYPES, default="fp16")
    made.add_argument("--backend", choices=("triton", "torch", "unfused"), default="triton")
    made.add_argument("--warps", type=int, default=8, help="warps per block (8)")
    options = made.parse_args()
    where, dtype = device(options), DTYPES[options.dtype]
    x = torch.randn(options.m, options.n, device=where).to(dtype)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(options.n)

    def unfused() -> torch.Tensor:
        e = torch.exp(x - x.amax(dim=1, keepdim=True))
        return e / e.sum(dim=1, keepdim=True)

    def step() -> torch.Tensor:
        if options.backend == "torch":
            return torch.softmax(x, dim=1)
        if options.backend == "unfused":
            return unfused()
        step.handle = softmax_kernel[(options.m,)](  # type: ignore[attr-defined]
            x, y, options.n, x.stride(0), BLOCK=block, num_warps=options.warps
        )
        return y

    found = step()
    compiled(getattr(step, "handle", None))
    if not check(found, lambda: torch.softmax(x.double(), dim=1), options.atol, options.rtol):
        return WRONG_RESULT
    return measure(options, step)


if __name__ == "__main__":
    sys.exit(guarded(main))
