"""Profiles a matrix product in PyTorch by size; without a GPU, replays a recording of an H200."""

from __future__ import annotations

from collections.abc import Callable

import perfpipe


@perfpipe.profiled(
    {"size": [512, 2048, 8192], "dtype": ["fp16"]},
    work={"flops": "2*size**3", "bytes": "3*size**2 * dtype_bytes", "dtype": "{dtype}"},
    recording="../../workloads/recordings/gemm-h200",
)
def gemm(size: int, dtype: str) -> Callable[[], object]:
    """Matrix product in PyTorch (cuBLAS)."""
    import torch

    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    a = torch.randn(size, size, device="cuda").to(kind)
    b = torch.randn(size, size, device="cuda").to(kind)
    return lambda: a @ b


if __name__ == "__main__":
    result = gemm.profile()
    print(result.verdict)
    print(result.frame(metrics=["median_ms", "mfu_pct", "bound"]))
    result.plot("size", "model_flop_per_s", path="gemm.png")
