"""An agent for perfpipe search that is a script: it tunes a softmax kernel by its feedback alone.

perfpipe runs it in the directory of each candidate.  It reads feedback.json, chooses parameters
that were not tried, and writes kernel.py and params.json.  A program that asks a model would do the
same with FEEDBACK.md in the place of these rules.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

Params = dict[str, int]

#: Parameters with their values, neighbors beside each other: whether all is one Triton kernel,
#: rows that a program computes, and its warps.
SPACE = {"fused": [0, 1], "rows": [1, 2, 4], "warps": [1, 2, 4, 8, 16]}

#: Where the variants of the first generation begin.
STARTS: list[Params] = [
    {"fused": 0, "rows": 1, "warps": 4},
    {"fused": 1, "rows": 1, "warps": 4},
    {"fused": 1, "rows": 1, "warps": 16},
    {"fused": 1, "rows": 4, "warps": 8},
]

KERNEL = '''\
"""Softmax of x / 8 + bias, as one Triton kernel or as operators of PyTorch."""

import torch
import triton
import triton.language as tl

FUSED, ROWS, WARPS = {fused}, {rows}, {warps}


@triton.jit
def softmax_kernel(x_ptr, bias_ptr, y_ptr, m, n, row_stride, column_stride, bias_stride,
                   ROWS: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * ROWS
    at = tl.arange(0, BLOCK)
    bias = tl.load(bias_ptr + at * bias_stride, mask=at < n, other=0.0).to(tl.float32)
    for number in range(ROWS):
        row = first + number
        if row < m:
            place = x_ptr + row * row_stride + at * column_stride
            x = tl.load(place, mask=at < n, other=-float("inf")).to(tl.float32) * 0.125 + bias
            e = tl.exp(x - tl.max(x, axis=0))
            y = (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty)
            tl.store(y_ptr + row * n + at, y, mask=at < n)


def run(x, bias, y):
    m, n = x.shape
    if not x.numel():
        return
    if not FUSED:
        wide = x.float() * 0.125 + bias
        e = torch.exp(wide - wide.amax(dim=1, keepdim=True))
        y.copy_(e / e.sum(dim=1, keepdim=True))
        return
    block = triton.next_power_of_2(n)
    grid = (triton.cdiv(m, ROWS),)
    softmax_kernel[grid](
        x, bias, y, m, n, x.stride(0), x.stride(1), bias.stride(0),
        ROWS=ROWS, BLOCK=block, num_warps=WARPS,
    )
'''


def proposal(feedback: dict[str, Any], variant: int, rng: random.Random) -> Params:
    """Return parameters that were not tried: near the best ones, by what limits them."""
    tried = [one for one in feedback["tried"] if one["params"]]
    known = [one["params"] for one in tried]
    timed = [one for one in tried if one["speedup"]["low"] is not None]
    if not timed:
        return next((one for one in STARTS[variant - 1 :] if one not in known), anywhere(rng))
    best = max(timed, key=lambda one: one["speedup"]["low"])["params"]
    near = neighbors(best)
    if not best["fused"]:
        # Each operator is a pass over memory: the fused kernel comes first.
        near.sort(key=lambda one: -one["fused"])
    else:
        rng.shuffle(near)
    free = [one for one in near if one not in known and one["fused"] >= best["fused"]]
    # Another variant of this generation takes the next one.
    return free[(variant - 1) % len(free)] if free else anywhere(rng)


def neighbors(params: Params) -> list[Params]:
    """Return the parameters that are one step away."""
    found = []
    for name, values in SPACE.items():
        at = values.index(params[name])
        found += [
            {**params, name: values[other]}
            for other in (at - 1, at + 1)
            if 0 <= other < len(values)
        ]
    return found


def anywhere(rng: random.Random) -> Params:
    """Return random parameters."""
    return {name: rng.choice(values) for name, values in SPACE.items()}


def main() -> None:
    """Write the candidate."""
    feedback = json.loads(Path("feedback.json").read_text(encoding="utf-8"))
    # The order of neighbors is that of the generation, so that its variants differ.
    rng = random.Random(int(os.environ["PERFPIPE_GENERATION"]))  # noqa: S311
    params = proposal(feedback, int(os.environ["PERFPIPE_VARIANT"]), rng)
    Path("kernel.py").write_text(KERNEL.format(**params), encoding="utf-8")
    Path("params.json").write_text(json.dumps(params), encoding="utf-8")
    print("proposed", params)


if __name__ == "__main__":
    main()
