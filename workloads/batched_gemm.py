"""Many matrix products of one size, C[i] = A[i] B[i]: one call (torch.bmm) or one per product.

Work: 2 B M N K floating-point operations; B (M K + K N + M N) x element size bytes.
"""

from __future__ import annotations

import sys

import torch
from harness import DTYPES, WRONG_RESULT, check, device, guarded, measure, parser


def main() -> int:
    """Run one configuration and return the exit code."""
    made = parser("Batched matrix product, checked and timed.")
    made.add_argument("--batch", type=int, default=64, help="products (64)")
    for name in "mnk":
        made.add_argument(f"--{name}", type=int, default=256, help="extent (256)")
    made.add_argument("--dtype", choices=DTYPES, default="fp16")
    made.add_argument("--mode", choices=("batched", "loop"), default="batched")
    options = made.parse_args()
    where = device(options)
    torch.backends.cuda.matmul.allow_tf32 = options.dtype == "tf32"
    dtype = DTYPES[options.dtype]
    a = torch.randn(options.batch, options.m, options.k, device=where).to(dtype)
    b = torch.randn(options.batch, options.k, options.n, device=where).to(dtype)
    c = torch.empty(options.batch, options.m, options.n, device=where, dtype=dtype)

    def step() -> torch.Tensor:
        if options.mode == "batched":
            return torch.bmm(a, b, out=c)
        for one, other, product in zip(a, b, c, strict=True):
            torch.mm(one, other, out=product)
        return c

    few = slice(0, 4)

    def reference() -> torch.Tensor:
        return torch.bmm(a[few].double(), b[few].double())

    if not check(step()[few], reference, options.atol * options.k**0.5, options.rtol):
        return WRONG_RESULT
    return measure(options, step)


if __name__ == "__main__":
    sys.exit(guarded(main))
