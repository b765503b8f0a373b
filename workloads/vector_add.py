"""z = x + y in Triton or PyTorch: a test of memory bandwidth.

Work: N floating-point operations; 3 N x element size bytes.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
import triton.language as tl
from harness import DTYPES, WRONG_RESULT, check, compiled, device, guarded, measure, parser


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, count, BLOCK: tl.constexpr):
    """Add BLOCK elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    y = tl.load(y_ptr + at, mask=at < count)
    tl.store(z_ptr + at, x + y, mask=at < count)


def main() -> int:
    """Run one configuration and return the exit code."""
    made = parser("Vector addition, checked and timed.")
    made.add_argument("--n", type=int, default=1 << 24, help="elements (2^24)")
    made.add_argument("--dtype", choices=DTYPES, default="fp32")
    made.add_argument("--backend", choices=("triton", "torch"), default="triton")
    made.add_argument("--block", type=int, default=1024, help="elements per block (1024)")
    made.add_argument("--warps", type=int, default=4, help="warps per block (4)")
    options = made.parse_args()
    where, dtype = device(options), DTYPES[options.dtype]
    x = torch.randn(options.n, device=where).to(dtype)
    y = torch.randn(options.n, device=where).to(dtype)
    z = torch.empty_like(x)
    grid = (triton.cdiv(options.n, options.block),)

    def launch() -> Any:
        return add_kernel[grid](x, y, z, options.n, BLOCK=options.block, num_warps=options.warps)

    def step() -> torch.Tensor:
        if options.backend == "torch":
            return torch.add(x, y, out=z)
        launch()
        return z

    if options.backend == "triton":
        compiled(launch())
    if not check(step(), lambda: x.double() + y.double(), options.atol, options.rtol):
        return WRONG_RESULT
    return measure(options, step)


if __name__ == "__main__":
    sys.exit(guarded(main))
