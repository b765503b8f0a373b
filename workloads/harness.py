"""Shared code of the workload programs: options, validation, timing, ranges, lines for perfpipe.

A program checks its result against a reference before timing, and exits with code 3 if it is
wrong.  It prints JSON lines that perfpipe reads, each with the key "perfpipe":

{"perfpipe": "validation", "ok": true, "max_abs_error": 0.01, ...}
{"perfpipe": "kernel", "registers": 128, "spills": 0, "shared_bytes": 98304}    (Triton kernels)
{"perfpipe": "about", "torch": "2.11.0"}
{"perfpipe": "time", "ms": [0.5, 0.4], "method": "queued"}                (one entry per sample, ms)

Under a profiler (named by $PERFPIPE_COLLECTOR), nothing is timed: iterations run between
cudaProfilerStart and cudaProfilerStop, in NVTX ranges "iteration N".
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Step = Callable[[], object]

DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp64": torch.float64,
}

#: Exit codes: a wrong result, and a configuration that does not fit the hardware.
WRONG_RESULT = 3
OUT_OF_RESOURCES = 4

#: Minimum length of a sample, ms: events resolve 0.5 us and have some overhead.
SAMPLE_MS = 0.2

#: Maximum iterations per sample, so that their launches fit into the queue of a stream.
LARGEST_BATCH = 200

#: Bytes to write between iterations to flush the L2 cache.
FLUSH_BYTES = 256 << 20

_CYCLES_PER_MS = 2_000_000


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options common to all programs."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--warmup", type=int, default=10, help="iterations before timing (10)")
    made.add_argument("--iterations", type=int, default=20, help="timed samples (20)")
    made.add_argument("--atol", type=float, default=1e-2, help="absolute tolerance (0.01)")
    made.add_argument("--rtol", type=float, default=1e-2, help="relative tolerance (0.01)")
    made.add_argument("--seed", type=int, default=0, help="seed of the inputs (0)")
    made.add_argument(
        "--cold", action="store_true", help="flush the L2 cache before every iteration"
    )
    return made


def device(options: argparse.Namespace) -> torch.device:
    """Return the device of this process, and seed the inputs."""
    torch.manual_seed(options.seed)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def emit(kind: str, **values: Any) -> None:
    """Print a line for perfpipe."""
    # A single write, so that lines of different ranks do not interleave.
    sys.stdout.write(json.dumps({"perfpipe": kind, **values}) + "\n")
    sys.stdout.flush()


def profiling() -> bool:
    """Return whether this launch is profiled; then its result was checked in another launch."""
    return os.environ.get("PERFPIPE_COLLECTOR", "plain") not in ("", "plain")


def check(
    found: torch.Tensor,
    reference: Callable[[], torch.Tensor],
    atol: float,
    rtol: float,
    **more: Any,
) -> bool:
    """Return whether |found - expected| <= atol + rtol |expected| everywhere; prints the errors.

    `rel_l2_error` is the L2 norm of the difference divided by that of the expected values.  Under a
    profiler, nothing is checked.
    """
    if profiling():
        return True
    found = found.detach().double()
    expected = reference().detach().double().to(found.device)
    difference = (found - expected).abs()
    ok = found.shape == expected.shape and bool(
        (difference <= atol + rtol * expected.abs()).all()
    )  # false for NaN
    norm = float(expected.norm())
    emit(
        "validation",
        ok=ok,
        max_abs_error=_finite(difference.max()),
        rel_l2_error=_finite(difference.norm() / norm) if norm else None,
        atol=atol,
        rtol=rtol,
        **more,
    )
    return ok


def _finite(value: torch.Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def measure(
    options: argparse.Namespace,
    step: Step,
    *,
    queued: bool = True,
    together: Step | None = None,
) -> int:
    """Warm up, then time `step` or run it for the profiler; returns the exit code.

    `together` is a barrier across ranks, so that no rank starts or stops a profiler too early.

    With `queued`, the GPU is kept busy during the launches, so that only GPU work is timed; a step
    that synchronizes with the GPU cannot be queued.
    """
    if os.environ.get("RANK", "0") == "0":
        emit("about", torch=torch.__version__, cuda=torch.version.cuda, triton=_triton_version())
    flush = _flusher() if options.cold and torch.cuda.is_available() else None
    for _ in range(max(1, options.warmup)):
        step()
    if profiling():
        together = together or _alone
        together()
        once = os.environ["PERFPIPE_COLLECTOR"] == "ncu"
        _for_profiler(step, 1 if once else options.iterations, flush, together)
        return 0
    if not torch.cuda.is_available():
        method, times = "wall clock", [_wall_ms(step) for _ in range(options.iterations)]
    elif queued:
        method, times = "queued", _queued_ms(step, options.iterations, flush)
    else:
        method, times = "events", _events_ms(step, options.iterations)
    if os.environ.get("RANK", "0") == "0":
        emit("time", ms=times, method=method, cold=flush is not None)
        print(f"median {statistics.median(times):.4f} ms of {len(times)} ({method})")
    return 0


def _triton_version() -> str | None:
    triton = sys.modules.get("triton")
    return getattr(triton, "__version__", None)


def _alone() -> None:
    """Do nothing: there are no other ranks."""


def _for_profiler(step: Step, iterations: int, flush: Step | None, together: Step) -> None:
    with profiled(together):
        for index in range(iterations):
            if flush is not None:
                flush()
            with nvtx(f"iteration {index}"):
                step()


@contextlib.contextmanager
def profiled(together: Step) -> Iterator[None]:
    """Record this block in a profiler started with --capture-range=cudaProfilerApi."""
    if not torch.cuda.is_available():
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    yield
    torch.cuda.synchronize()
    together()
    torch.cuda.profiler.stop()


@contextlib.contextmanager
def nvtx(name: str) -> Iterator[None]:
    """Push an NVTX range; does nothing without a GPU."""
    if not torch.cuda.is_available():
        yield
        return
    with torch.cuda.nvtx.range(name):
        yield


def _flusher() -> Step:
    buffer = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    return lambda: buffer.zero_()


def _wall_ms(step: Step) -> float:
    start = time.perf_counter_ns()
    step()
    return (time.perf_counter_ns() - start) / 1e6


def _events_ms(step: Step, samples: int) -> list[float]:
    """Return the time between events around each iteration, launch overhead included, ms."""
    events = [_events() for _ in range(samples)]
    torch.cuda.synchronize()
    for start, end in events:
        start.record()
        step()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def _queued_ms(step: Step, samples: int, flush: Step | None) -> list[float]:
    """Return the GPU time of an iteration for each sample, ms.

    A spinning kernel holds the stream until the launches of a sample are queued.  Short iterations
    are repeated within a sample, so that events and gaps between kernels hardly matter.
    """
    torch.cuda.synchronize()
    started = time.perf_counter_ns()
    for _ in range(5):
        step()
    host_ms = (time.perf_counter_ns() - started) / 5e6
    torch.cuda.synchronize()
    gpu_ms = max(1e-4, min(_events_ms(step, 5)))
    batch = 1 if flush else min(LARGEST_BATCH, math.ceil(SAMPLE_MS / gpu_ms))
    hold = int((0.1 + 2 * host_ms * batch) * _CYCLES_PER_MS)
    times = []
    for _ in range(samples):
        start, end = _events()
        if flush is not None:
            flush()
        torch.cuda._sleep(hold)
        start.record()
        for _ in range(batch):
            step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / batch)
    return times


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def compiled(handle: Any) -> None:
    """Print the resources of a launched Triton kernel; nothing in the interpreter."""
    if handle is None or not hasattr(handle, "n_regs"):
        return
    emit(
        "kernel",
        name=handle.metadata.name,
        registers=handle.n_regs,
        spills=handle.n_spills,
        shared_bytes=handle.metadata.shared,
        warps=handle.metadata.num_warps,
        stages=handle.metadata.num_stages,
    )


def guarded(main: Callable[[], int]) -> int:
    """Run a program; if it does not fit the hardware, print a line and return OUT_OF_RESOURCES."""
    try:
        return main()
    except torch.cuda.OutOfMemoryError as error:
        reason = str(error).splitlines()[0]
    except Exception as error:
        if type(error).__name__ not in ("OutOfResources", "PTXASError"):
            raise
        reason = str(error).splitlines()[0]
    emit("out_of_resources", reason=reason)
    print(reason, file=sys.stderr)
    return OUT_OF_RESOURCES
