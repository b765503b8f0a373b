"""Rows of a table by index, as in an embedding lookup: sequential, random or strided.

Work: none; 2 R D x element size bytes and 8 R of indices, if rows are at least one sector long.
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from harness import DTYPES, WRONG_RESULT, check, compiled, device, guarded, measure, parser


@triton.jit
def gather_kernel(table_ptr, index_ptr, out_ptr, width, BLOCK: tl.constexpr):
    """Copy one row of the result."""
    row = tl.program_id(0).to(tl.int64)
    source = tl.load(index_ptr + row)
    at = tl.arange(0, BLOCK)
    values = tl.load(table_ptr + source * width + at, mask=at < width)
    tl.store(out_ptr + row * width + at, values, mask=at < width)


def main() -> int:
    """Run one configuration and return the exit code."""
    made = parser("Gather of rows, checked and timed.")
    made.add_argument("--table", type=int, default=1 << 20, help="rows of the table (2^20)")
    made.add_argument("--rows", type=int, default=1 << 18, help="rows to gather (2^18)")
    made.add_argument("--width", type=int, default=128, help="elements per row (128)")
    made.add_argument("--dtype", choices=DTYPES, default="fp16")
    made.add_argument("--order", choices=("sequential", "random", "strided"), default="random")
    made.add_argument("--backend", choices=("triton", "torch"), default="triton")
    options = made.parse_args()
    where, dtype = device(options), DTYPES[options.dtype]
    table = torch.randn(options.table, options.width, device=where).to(dtype)
    index = torch.arange(options.rows, device=where) % options.table
    if options.order == "random":
        index = torch.randint(options.table, (options.rows,), device=where)
    elif options.order == "strided":
        # 521 is prime, so every row is read once before any is read again.
        index = index * 521 % options.table
    out = torch.empty(options.rows, options.width, device=where, dtype=dtype)
    block = triton.next_power_of_2(options.width)

    def step() -> torch.Tensor:
        if options.backend == "torch":
            return torch.index_select(table, 0, index, out=out)
        step.handle = gather_kernel[(options.rows,)](  # type: ignore[attr-defined]
            table, index, out, options.width, BLOCK=block
        )
        return out

    found = step()
    compiled(getattr(step, "handle", None))
    if not check(found, lambda: table.cpu()[index.cpu()], 0.0, 0.0):
        return WRONG_RESULT
    return measure(options, step)


if __name__ == "__main__":
    sys.exit(guarded(main))
