"""Long kernels with too few blocks for the SMs of the GPU."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Tiny

from perfpipe.analysis.short_names import LONGEST

US = 1_000
FOUND = "SELECT longest, blocks, threads, kernels, kernel_ns, share_pct, gain_pct FROM few_blocks_findings"


def _timeline(
    *kernels: tuple[str, int, int, int], block: tuple[int, int] = (8, 4), **more: Any
) -> Tiny:
    """Kernels (name, from, to, blocks) on a GPU with 100 SMs; times in us."""
    db = Tiny()
    db.add("nsys_gpus", {"gpu": 0, "name": "G", "sm_count": 100})
    for name, start, end, blocks in kernels:
        spans = {"pid": 1, "device": 0, "start_ns": start * US, "end_ns": end * US, **more}
        db.add("launches", {**spans, "kind": "kernel", "name": name})
        grid = {"grid_x": 1, "grid_y": blocks, "grid_z": 1, "dur_ns": (end - start) * US}
        size = {"block_x": block[0], "block_y": block[1], "block_z": 1}
        db.add("nsys_kernels", {**spans, **grid, **size, "name": name})
    return db


def test_kernels_with_few_blocks_take_their_share() -> None:
    """One of 400 us with 1 block and one of 200 us with 40 blocks, of 1 ms."""
    db = _timeline(("a", 0, 400, 1), ("b", 400, 600, 40), ("c", 600, 1000, 100))
    assert db.rows(FOUND) == [
        ("a", 1, 32, 2, 600 * US, 60, pytest.approx(40 * 0.99 + 20 * 0.6)),
    ]
    found = db.rows("SELECT claim, technique, floor, bound_pct FROM findings")
    assert found == [("few_blocks", "fill_sms", "all_sms", pytest.approx(51.6))]


def test_a_single_thread_leaves_lanes_idle_as_well() -> None:
    """One block of one thread: one of 32 lanes on one of 100 SMs."""
    db = _timeline(("a", 0, 1000, 1), block=(1, 1))
    ((lanes, gain),) = db.rows("SELECT lanes, gain_pct FROM few_blocks_findings")
    assert lanes == "31 of 32 lanes"
    assert gain == pytest.approx(100 * (1 - 1 / 3200))
    assert db.rows("SELECT claim FROM findings") == [("few_blocks",)]


def test_a_long_name_is_short() -> None:
    name = "Cijk_Ailk_Bljk_" + "SBH_MT64x64x32_" * 20
    ((longest,),) = _timeline((name, 0, 400, 1)).rows("SELECT longest FROM few_blocks_findings")
    assert longest.startswith("Cijk_Ailk") and len(longest) <= LONGEST


@pytest.mark.parametrize(
    "kernels",
    [
        [("a", 0, 400, 50)],  # half of the SMs
        [("a", 0, 99, 1), ("b", 99, 150, 200)],  # short
        [("ncclDevKernel_AllReduce", 0, 400, 1)],
        [("a", 0, 400, 1), ("b", 10, 400, 200)],  # beside another kernel
        [("b", 0, 400, 200), ("a", 10, 300, 1)],
        [("a", 0, 100, 1), ("b", 100, 2000, 200)],  # little of the time
    ],
)
def test_other_kernels_are_no_finding(kernels: list[tuple[str, int, int, int]]) -> None:
    assert _timeline(*kernels).rows(FOUND) == []


def test_a_copy_beside_the_kernel_does_not_fill_the_sms() -> None:
    db = _timeline(("a", 0, 400, 1))
    db.add(
        "launches",
        {"kind": "memcpy", "name": "[CUDA memcpy Host-to-Device]", "pid": 1, "device": 0,
         "start_ns": 10 * US, "end_ns": 20 * US},
    )  # fmt: skip
    assert len(db.rows(FOUND)) == 1


def test_without_the_number_of_sms_there_is_no_verdict() -> None:
    db = Tiny()
    db.add("reports", {"report_id": "x", "kind": "nsys"})
    spans = {"report_id": "x", "pid": 1, "device": 0, "start_ns": 0, "end_ns": 400 * US}
    db.add("launches", {**spans, "kind": "kernel", "name": "a"})
    grid = {"grid_x": 1, "grid_y": 1, "grid_z": 1, "dur_ns": 400 * US, "name": "a"}
    db.add("nsys_kernels", {**spans, **grid})
    assert db.rows(FOUND) == []
