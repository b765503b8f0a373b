"""Layer normalization of rows with weight and bias, in Triton or PyTorch.

Work: 8 M N floating-point operations; 2 M N x element size bytes, and 2 N of weight and bias.
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from harness import DTYPES, WRONG_RESULT, check, compiled, device, guarded, measure, parser

EPSILON = 1e-5


@triton.jit
def layernorm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, columns, epsilon, BLOCK: tl.constexpr):
    """Normalize a row; BLOCK is its length rounded up to a power of two."""
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    w = tl.load(w_ptr + at, mask=inside).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside).to(tl.float32)
    y = centred * scale * w + b
    tl.store(y_ptr + row + at, y.to(y_ptr.dtype.element_ty), mask=inside)


def main() -> int:
    """Run one configuration and return the exit code."""
    made = parser("Layer normalisation, checked and timed.")
    made.add_argument("--m", type=int, default=8192, help="rows (8192)")
    made.add_argument("--n", type=int, default=4096, help="columns (4096)")
    made.add_argument("--dtype", choices=DTYPES, default="fp16")
    made.add_argument("--backend", choices=("triton", "torch"), default="triton")
    made.add_argument("--warps", type=int, default=8, help="warps per block (8)")
    options = made.parse_args()
    where, dtype = device(options), DTYPES[options.dtype]
    x = torch.randn(options.m, options.n, device=where).to(dtype)
    w = torch.randn(options.n, device=where).to(dtype)
    b = torch.randn(options.n, device=where).to(dtype)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(options.n)

    def step() -> torch.Tensor:
        if options.backend == "torch":
            return torch.nn.functional.layer_norm(x, (options.n,), w, b, EPSILON)
        step.handle = layernorm_kernel[(options.m,)](  # type: ignore[attr-defined]
            x, w, b, y, options.n, EPSILON, BLOCK=block, num_warps=options.warps
        )
        return y

    found = step()
    compiled(getattr(step, "handle", None))
    exact = (x.double(), (options.n,), w.double(), b.double(), EPSILON)

    def reference() -> torch.Tensor:
        return torch.nn.functional.layer_norm(*exact)

    if not check(found, reference, options.atol, options.rtol):
        return WRONG_RESULT
    return measure(options, step)


if __name__ == "__main__":
    sys.exit(guarded(main))
