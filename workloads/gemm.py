"""Matrix product C = A B in PyTorch (cuBLAS) or Triton, checked against a float64 reference.

Work: 2 M N K floating-point operations; (M K + K N + M N) x element size bytes, each once.
fp8 (E4M3, PyTorch only) needs a GPU of compute capability 8.9 or newer; its result is bf16.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from harness import DTYPES, WRONG_RESULT, check, compiled, device, guarded, measure, parser

#: Columns of the product to check: a float64 reference of all of them would dominate.
CHECKED_COLUMNS = 64


def main() -> int:
    """Run one configuration and return the exit code."""
    options = _options()
    where = device(options)
    torch.backends.cuda.matmul.allow_tf32 = options.dtype == "tf32"
    a = torch.randn(options.m, options.k, device=where)
    b = torch.randn(options.k, options.n, device=where)
    if options.dtype == "fp8":
        # Column-major B, as fp8 tensor cores require.
        a, b = a.to(torch.float8_e4m3fn), b.T.contiguous().to(torch.float8_e4m3fn).T
    else:
        a, b = a.to(DTYPES[options.dtype]), b.to(DTYPES[options.dtype])
    step = _step(a, b, options)
    found = step()[:, :CHECKED_COLUMNS]

    def reference() -> torch.Tensor:
        return a.double() @ b[:, :CHECKED_COLUMNS].double()

    # Entries grow with sqrt(K), and so does their rounding error.
    if not check(found, reference, options.atol * options.k**0.5, options.rtol):
        return WRONG_RESULT
    return measure(options, step)


def _step(
    a: torch.Tensor, b: torch.Tensor, options: argparse.Namespace
) -> Callable[[], torch.Tensor]:
    if options.backend == "triton":
        from matmul_kernels import DEFAULT, matmul

        c = torch.empty(options.m, options.n, device=a.device, dtype=a.dtype)
        tf32 = options.dtype == "tf32"
        tiles = DEFAULT if a.element_size() < 4 else {**DEFAULT, "block_k": 32}
        compiled(matmul(a, b, c, tiles, tf32=tf32))

        def product() -> torch.Tensor:
            matmul(a, b, c, tiles, tf32=tf32)
            return c

        return product
    if options.dtype == "fp8":
        one = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False
        )
    return lambda: torch.matmul(a, b)


def _options() -> argparse.Namespace:
    made = parser("Matrix product, checked and timed.")
    for name in "mnk":
        made.add_argument(f"--{name}", type=int, default=1024, help="extent (1024)")
    made.add_argument("--dtype", choices=[*DTYPES, "fp8"], default="fp16")
    made.add_argument("--backend", choices=("torch", "triton"), default="torch")
    options = made.parse_args()
    if options.dtype == "fp8" and options.backend == "triton":
        made.error("fp8 is for the torch backend")
    return options


if __name__ == "__main__":
    sys.exit(guarded(main))
