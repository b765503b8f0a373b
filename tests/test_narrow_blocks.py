"""Kernels whose blocks are not whole warps, on a timeline."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Tiny

US = 1_000
FOUND = "SELECT longest, blocks, lanes, kernels, kernel_ns, share_pct, gain_pct FROM narrow_blocks_findings"


def _timeline(*kernels: tuple[str, int, int, tuple[int, int], int], gpu: str = "G") -> Tiny:
    """Kernels (name, from, to, block, blocks) on a GPU with 100 SMs; times in us."""
    db = Tiny()
    db.add("nsys_gpus", {"gpu": 0, "name": gpu, "sm_count": 100})
    for name, start, end, (x, y), blocks in kernels:
        spans = {"pid": 1, "device": 0, "start_ns": start * US, "end_ns": end * US, "name": name}
        db.add("launches", {**spans, "kind": "kernel"})
        size: dict[str, Any] = {"grid_x": 1, "grid_y": blocks, "grid_z": 1}
        size |= {"block_x": x, "block_y": y, "block_z": 1}
        db.add("nsys_kernels", {**spans, **size, "dur_ns": (end - start) * US})
    return db


def test_kernels_with_narrow_blocks_take_their_share() -> None:
    """Two of 4x4 threads and one of 48, for 600 of 1000 us."""
    db = _timeline(
        ("a", 0, 200, (4, 4), 400),
        ("a", 200, 400, (4, 4), 400),
        ("b", 400, 600, (16, 3), 400),
        ("c", 600, 1000, (16, 16), 400),
    )
    assert db.rows(FOUND) == [
        (
            "a",
            "blocks of 16 threads",
            "16 of 32 lanes",
            3,
            600 * US,
            60,
            pytest.approx(40 / 2 + 20 / 4),
        ),
    ]
    found = db.rows("SELECT claim, technique, floor, bound_pct, confidence FROM findings")
    assert found == [
        ("narrow_blocks", "whole_warps", "full_warps", pytest.approx(25), "medium"),
    ]
    assert ("whole_warps", pytest.approx(25)) in db.rows(
        "SELECT technique, gain_pct FROM recommendations"
    )


def test_kernels_at_the_same_time_have_no_bound() -> None:
    db = _timeline(("a", 0, 400, (4, 4), 400), ("b", 100, 500, (8, 2), 400))
    assert [row[-2:] for row in db.rows(FOUND)] == [(100, None)]


@pytest.mark.parametrize(
    "kernel",
    [
        ("a", 0, 400, (8, 4), 400),
        ("a", 0, 400, (1000, 1), 400),  # 24 of 1024 lanes
        ("a", 0, 400, (1, 1), 99),  # fewer blocks than SMs
        ("a", 0, 4, (1, 1), 400),  # short
        ("a", 0, 50, (1, 1), 400),  # little of the time
        ("cutlass_80_tensorop_s1688gemm_128x128", 0, 400, (4, 4), 400),  # closed
    ],
)
def test_other_kernels_are_no_finding(kernel: tuple[str, int, int, tuple[int, int], int]) -> None:
    db = _timeline(kernel, ("b", 400, 1000, (256, 1), 400))
    assert db.rows(FOUND) == []


def test_warps_of_other_widths_are_no_finding() -> None:
    kernel = ("a", 0, 400, (4, 4), 400)
    assert len(_timeline(kernel).rows(FOUND)) == 1
    assert _timeline(kernel, gpu="AMD Instinct MI300X").rows(FOUND) == []
