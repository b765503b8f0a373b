"""Launch overhead: what a program can do depends on who launches its kernels, and on what repeats."""

from __future__ import annotations

import pytest
from conftest import Tiny

OWN, TORCH = "step_kernel(float *)", "void at::native::vectorized_elementwise_kernel<4>(int)"
STEP, KERNELS = 10_000_000, 40


def _launch_bound(kernel: str, marked: bool) -> Tiny:
    """Twelve steps of short kernels, between which the GPU waits for launches."""
    db = Tiny()
    db.add_report("x", {})
    for number in range(12 * KERNELS):
        step, part = divmod(number, KERNELS)
        at = STEP * step + STEP // KERNELS * part
        names = {"name": kernel.partition("(")[0].partition("<")[0], "demangled": kernel}
        row = {"report_id": "x", "device": 0, "pid": 1, "stream": 7, "correlation_id": number,
               "start_ns": at, "end_ns": at + 2000, **names}  # fmt: skip
        db.add("launches", {
            **row, "kind": "kernel", "tid": 1, "call_id": number, "api_name": "cudaLaunchKernel",
            "api_start_ns": at - 9000, "api_end_ns": at - 3000,
        })  # fmt: skip
        db.add("nsys_kernels", {**row, "dur_ns": 2000})
        if marked and part == 0:
            db.add("nsys_nvtx_ranges", {
                "report_id": "x", "pid": 1, "tid": 1, "name": f"step {step}", "range_id": step,
                "style": "PushPop", "first_call": number, "calls": KERNELS,
                "start_ns": at - 10_000, "end_ns": at + STEP - 100_000,
            })  # fmt: skip
    return db


@pytest.mark.parametrize(
    ("kernel", "marked", "technique"),
    [
        (OWN, True, "graph_of_native"),
        (OWN, False, "graph_of_repeats"),
        (TORCH, True, "cuda_graphs"),
        (TORCH, False, "cuda_graphs"),
    ],
)
def test_only_a_framework_can_compile_the_step(kernel: str, marked: bool, technique: str) -> None:
    rows = _launch_bound(kernel, marked).rows(
        "SELECT technique FROM timeline_findings WHERE bound = 'launch_overhead' ORDER BY rank"
    )
    assert rows[0] == (technique,)
