"""leaky_relu(A B) in Triton: in one kernel (fused) or as a product and a second pass (unfused).

Work: 2 M N K floating-point operations.  Fused: (M K + K N + M N) x element size bytes; unfused:
2 M N more elements, since the product is read and written again.
"""

from __future__ import annotations

import argparse
import sys

import torch
from harness import DTYPES, WRONG_RESULT, check, compiled, device, guarded, measure, parser
from matmul_kernels import DEFAULT, SLOPE, leaky_relu, matmul

#: Columns of the product to check: a float64 reference of all of them would dominate.
CHECKED_COLUMNS = 64


def main() -> int:
    """Run one configuration and return the exit code."""
    options = _options()
    where, dtype = device(options), DTYPES[options.dtype]
    a = torch.randn(options.m, options.k, device=where).to(dtype)
    b = torch.randn(options.k, options.n, device=where).to(dtype)
    c = torch.empty(options.m, options.n, device=where, dtype=dtype)
    tiles = {name: getattr(options, name) for name in DEFAULT}
    fused = options.mode == "fused"
    ways = {
        "half_sum": options.sum == "fp16",
        "tf32": options.dtype == "tf32",
        "skip_tail": options.skip_tail,
    }

    def step() -> torch.Tensor:
        handle = matmul(a, b, c, tiles, fused=fused, **ways)
        if not fused:
            leaky_relu(c, c)
        step.handle = handle  # type: ignore[attr-defined]
        return c

    found = step()[:, :CHECKED_COLUMNS]
    compiled(step.handle)  # type: ignore[attr-defined]

    def reference() -> torch.Tensor:
        product = a.double() @ b[:, :CHECKED_COLUMNS].double()
        return torch.nn.functional.leaky_relu(product, SLOPE)

    # Entries grow with sqrt(K), and so does their rounding error.
    if not check(found, reference, options.atol * options.k**0.5, options.rtol):
        return WRONG_RESULT
    return measure(options, step)


def _options() -> argparse.Namespace:
    made = parser("Matrix product with leaky ReLU, checked and timed.")
    for name in "mnk":
        made.add_argument(f"--{name}", type=int, default=4096, help="extent (4096)")
    made.add_argument("--dtype", choices=DTYPES, default="fp16")
    made.add_argument("--mode", choices=("fused", "unfused"), default="fused")
    for name, value in DEFAULT.items():
        option = f"--{name.replace('_', '-')}"
        made.add_argument(option, type=int, default=value, help=f"({value})")
    made.add_argument("--sum", choices=("fp32", "fp16"), default="fp32", help="accumulator")
    made.add_argument(
        "--skip-tail", action="store_true", help="skip the last K step, which gives a wrong result"
    )
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(guarded(main))
