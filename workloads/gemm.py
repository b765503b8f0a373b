"""Matrix product C = A B in PyTorch, checked against a float64 reference and timed.

The program prints JSON lines that perfpipe reads (each has the key "perfpipe"):
{"perfpipe": "validation", "ok": ..., "max_abs_error": ..., "max_rel_error": ...} and
{"perfpipe": "time", "ms": [one entry for each timed iteration]}.
A wrong result ends it with exit code 3 before anything is timed or profiled.

Work: 2 M N K floating-point operations; (M K + K N + M N) x element size bytes, each once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "fp32": torch.float32,
}

#: Exit code of a wrong result.
WRONG_RESULT = 3

#: Columns of the product that are checked: a float64 reference of all of them would dominate.
CHECKED_COLUMNS = 64


def main() -> int:
    """Run one configuration; returns the exit code."""
    options = _options()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = options.dtype == "tf32"
    dtype = DTYPES[options.dtype]
    a = torch.randn(options.m, options.k, device=device).to(dtype)
    b = torch.randn(options.k, options.n, device=device).to(dtype)
    if not validate(a, b, options.atol, options.rtol):
        return WRONG_RESULT
    for _ in range(options.warmup):
        torch.matmul(a, b)
    times = time_iterations(a, b, options.iterations)
    emit("time", ms=times, device=device)
    print(
        f"gemm {options.m}x{options.n}x{options.k} {options.dtype} on {device}: "
        f"median {statistics.median(times):.4f} ms"
    )
    return 0


def validate(a: torch.Tensor, b: torch.Tensor, atol: float, rtol: float) -> bool:
    """Compare some columns of the product with a float64 reference.

    Errors are relative to sqrt(K), by which the size of the entries grows.
    """
    columns = b[:, :CHECKED_COLUMNS]
    expected = a.double() @ columns.double()
    found = torch.matmul(a, b)[:, :CHECKED_COLUMNS].double()
    error = (found - expected).abs()
    scale = a.shape[1] ** 0.5
    ok = bool((error <= atol * scale + rtol * expected.abs()).all())
    emit(
        "validation",
        ok=ok,
        max_abs_error=float(error.max()),
        max_rel_error=float(error.max() / expected.abs().max()),
        atol=atol * scale,
        rtol=rtol,
    )
    return ok


def time_iterations(a: torch.Tensor, b: torch.Tensor, iterations: int) -> list[float]:
    """Return the time of each iteration in ms: CUDA events, or the wall clock on a CPU."""
    with profiled():
        if a.device.type == "cpu":
            return [_wall_ms(a, b) for _ in range(iterations)]
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(iterations)
        ]
        for index, (start, end) in enumerate(events):
            with torch.cuda.nvtx.range(f"iteration {index}"):
                start.record()
                torch.matmul(a, b)
                end.record()
        torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def _wall_ms(a: torch.Tensor, b: torch.Tensor) -> float:
    start = time.perf_counter_ns()
    torch.matmul(a, b)
    return (time.perf_counter_ns() - start) / 1e6


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    """Mark what a profiler that was started with --capture-range=cudaProfilerApi records."""
    if not torch.cuda.is_available():
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    yield
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def emit(kind: str, **values: Any) -> None:
    """Print a line for perfpipe."""
    print(json.dumps({"perfpipe": kind, **values}), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Matrix product, checked and timed.")
    for name in "mnk":
        parser.add_argument(f"--{name}", type=int, default=1024, help="extent (default 1024)")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16")
    parser.add_argument("--warmup", type=int, default=10, help="iterations before timing")
    parser.add_argument("--iterations", type=int, default=20, help="timed iterations")
    parser.add_argument("--atol", type=float, default=1e-2, help="absolute tolerance x sqrt(K)")
    parser.add_argument("--rtol", type=float, default=1e-2, help="relative tolerance")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
