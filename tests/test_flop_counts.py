"""FLOPs that counters do not show: moves that look like work, and tensor operations left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from perfpipe.templates.roofline_figure import roofline_figure
from perfpipe.viewmodel import Column, Source, Table

Ingested = Callable[[str], str]

HFMA = "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum"
HADD = "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum"
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
TIME = {"gpu__time_duration.sum": 1e6}
TENSOR_PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
FMA_PIPE = "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed"
TENSOR_OPS = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
COLLECT_TENSOR = (
    "tensor operations not collected; use ncu "
    "--section SpeedOfLight_HierarchicalTensorRooflineChart"
)

MOVES = [
    "HFMA2.MMA R5, -RZ, RZ, 0, 0",
    "HFMA2 R11, -RZ, RZ, 1.875, 5.0008296966552734375e-05",
    "@!P0 HFMA2.MMA R9, -RZ, RZ, 0, 0",
]
WORK = [
    "HFMA2.MMA R2, R3, R4, R5",
    "HFMA2 R2, -R3, R4, RZ",
    "HFMA2.BF16_V2 R2, R3.H0_H0, RZ, R5",
    "FFMA R1, -RZ, RZ, R2",
    "MOV R2, RZ",
]


def _fp16(db: Tiny) -> list[tuple[Any, ...]]:
    return db.rows(
        "SELECT flop, flop_per_s, reason FROM kernel_flops WHERE precision = 'fp16' "
        "ORDER BY launch_id"
    )


Listing = list[tuple[str, int, bool]]
_listing = st.lists(
    st.tuples(st.sampled_from(MOVES + WORK), st.integers(1, 10**6), st.booleans()), max_size=6
)


@settings(max_examples=6)
@given(st.lists(_listing, min_size=8, max_size=8))
def test_moves_are_taken_off(launches: list[Listing]) -> None:
    """Threads that are not predicated off count, where both are known."""
    packed = [
        sum(threads for sass, threads, _ in listing if "HFMA2" in sass) for listing in launches
    ]
    db = Tiny(metrics={at: TIME | {HFMA: float(count)} for at, count in enumerate(packed)})
    for launch, listing in enumerate(launches):
        for at, (sass, threads, predicated) in enumerate(listing):
            counted = 2 * threads if predicated else threads
            row = {"launch_id": launch, "pc": 16 * at, "address": 16 * at, "sass": sass}
            db.add("ncu_source", row | {"thread_executions": counted, "executions": counted})
            if predicated:
                row = {"launch_id": launch, "metric": "thread_inst_executed_true", "instance": at}
                db.add("ncu_instances", row | {"key_int": 16 * at, "value": float(threads)})
    for listing, count, found in zip(launches, packed, _fp16(db), strict=True):
        _check_moves(listing, count, found)


def _check_moves(listing: Listing, packed: int, row: tuple[Any, ...]) -> None:
    flop, rate, reason = row
    work = 4.0 * sum(threads for sass, threads, _ in listing if "HFMA2" in sass and sass in WORK)
    if work < 0.01 * 4 * packed or not packed:
        assert flop == rate == 0
    else:
        assert flop == pytest.approx(work)
        assert rate == pytest.approx(work / 1e-3)
    doubted = "may be register moves (HFMA2 R, -RZ, RZ, ...); use ncu --section SourceCounters"
    assert reason == (None if listing or not packed else doubted)


def test_without_the_instructions_the_fp16_rate_is_in_doubt() -> None:
    db = Tiny(
        metrics={
            0: TIME | {HFMA: 1e9, FFMA: 1e6},
            1: TIME | {HADD: 1e9, HFMA: 0.0},
            2: TIME | {FFMA: 1e6},
        }
    )
    assert db.rows(
        "SELECT launch_id, precision, reason IS NOT NULL FROM kernel_flops "
        "WHERE precision IN ('fp16', 'fp32') ORDER BY ALL"
    ) == [(0, "fp16", True), (0, "fp32", False), (1, "fp16", False), (2, "fp32", False)]
    # The precision that is not in doubt is the kernel's.
    assert db.rows("SELECT precision, reason FROM kernel_summary ORDER BY launch_id") == [
        ("fp32", None), ("fp16", None), ("fp32", None)
    ]  # fmt: skip


def test_real_kernels_have_no_fp16_work(opened: Opened) -> None:
    """None of them computes in FP16; ncu counts up to 10.8 GFLOP of it in seven."""
    with opened("ncu/visible.ncu-rep") as con:
        counted = con.execute(
            "SELECT count(DISTINCT launch_id) FROM ncu_metrics WHERE value > 0 AND "
            "metric = 'smsp__sass_thread_inst_executed_op_hfma_pred_on.sum.per_cycle_elapsed'"
        ).fetchone()
        left = con.execute(
            "SELECT launch_id FROM kernel_flops WHERE precision = 'fp16' AND (flop > 0 OR flop_per_s > 0)"
        ).fetchall()
        precisions = dict(
            con.execute("SELECT kernel_name, precision FROM kernel_summary").fetchall()
        )
    assert counted == (7,)
    assert left == []
    assert set(precisions.values()) <= {"fp32", "fp64", None}
    assert precisions["fp32_fma"] == "fp32"
    assert precisions["fp64_fma"] == "fp64"


@pytest.mark.parametrize(
    ("metrics", "unknown"),
    [
        ({TENSOR_PIPE: 60.0, FMA_PIPE: 2.0}, True),
        ({TENSOR_PIPE: 25.0, FMA_PIPE: 50.0}, True),
        ({TENSOR_PIPE: 3.0, FMA_PIPE: 1.0}, True),
        ({TENSOR_PIPE: 5.0, FMA_PIPE: 95.0}, False),
        ({TENSOR_PIPE: 0.5, FMA_PIPE: 0.1}, False),
        ({TENSOR_PIPE: 60.0, FMA_PIPE: 2.0, TENSOR_OPS: 1e9}, False),
        ({FMA_PIPE: 2.0}, False),
    ],
)
def test_tensor_work_that_was_not_counted(metrics: dict[str, float], unknown: bool) -> None:
    db = Tiny(metrics={0: TIME | {FFMA: 1e6} | metrics})
    ((precision, flop, rate, hfu, reason),) = db.rows(
        "SELECT precision, flop, flop_per_s, hfu_pct, reason FROM kernel_summary"
    )
    drawn = db.rows("SELECT DISTINCT precision FROM kernel_roofline WHERE flop_per_s > 0")
    if unknown:
        assert (precision, flop, rate, hfu, reason) == (None, None, None, None, COLLECT_TENSOR)
        assert drawn == []
    else:
        assert flop > 0
        assert rate > 0
        assert reason is None
        assert drawn


def test_products_of_a_real_step_are_not_drawn_as_fp32(opened: Opened) -> None:
    """Its ncu command had no tensor roofline; 28 launches kept the tensor pipe busy."""
    with opened("ncu/block.ncu-rep") as con:
        rows = con.execute(
            "SELECT kernel_name, precision, flop, hfu_pct FROM kernel_summary WHERE reason = ?",
            [COLLECT_TENSOR],
        ).fetchall()
        drawn = con.execute(
            "SELECT count(*) FROM kernel_roofline WHERE precision != 'none' AND kernel_name ~ 'nvjet.*'"
        ).fetchone()
    assert len(rows) == 28
    assert {tuple(values) for _, *values in rows} == {(None, None, None)}
    assert sum(name.startswith("nvjet") for name, *_ in rows) > 20
    assert drawn == (0,)


@pytest.mark.parametrize(
    ("launches", "hfu", "reason"),
    [
        ([{}], None, "not collected; use ncu --section SpeedOfLight_RooflineChart"),
        ([{FFMA: 0.0}], None, COLLECT_TENSOR),
        ([{FFMA: 0.0, TENSOR_PIPE: 0.0}], 0.0, None),
        ([{FFMA: 0.0, TENSOR_PIPE: 70.0}], None, COLLECT_TENSOR),
        ([{FFMA: 1e6, TENSOR_PIPE: 0.0}, {}], None,
         "not collected; use ncu --section SpeedOfLight_RooflineChart"),
        ([{FFMA: 0.0, TENSOR_OPS: 989.4e9 / 2, TENSOR_PIPE: 70.0}], 50.0, None),
    ],
)  # fmt: skip
def test_hfu_of_a_configuration(
    launches: list[dict[str, float]], hfu: float | None, reason: str | None
) -> None:
    db = Tiny(
        [{"launch_id": index, "duration_ns": 1e6} for index in range(len(launches))],
        {index: TIME | metrics for index, metrics in enumerate(launches)},
    )
    task = {"run_id": "run", "task_index": 0, "params": "{}", "dtype": "bf16"}
    db.add("run_tasks", task | {"reports": ["r"], "flops": 1e9, "median_ms": 1.0})
    ((found, why),) = db.rows("SELECT hfu_pct, hfu_reason FROM run_efficiency")
    assert found == (None if hfu is None else pytest.approx(hfu, abs=0.1))
    assert why == reason


def _rooflines(*rows: dict[str, Any]) -> Table:
    names = ("kernel_name", "precision", "level", "intensity", "flop_per_s", "peak_flop_per_s",
             "peak_bytes_per_s", "duration_ns", "launch_id", "bound", "peak_flop_per_s_nominal",
             "peak_flop_per_s_max_clock")  # fmt: skip
    columns = tuple(Column(name, name, "number") for name in names)
    cells = tuple(tuple(row.get(name) for name in names) for row in rows)
    return Table("Roofline", "", columns, cells, len(cells), Source("kernel_roofline", ()))


def _point(launch_id: int, precision: str, peak: float, **more: Any) -> dict[str, Any]:
    return {
        "kernel_name": f"k{launch_id}", "precision": precision, "level": "dram", "intensity": 100.0,
        "flop_per_s": 1e14, "peak_flop_per_s": peak, "peak_bytes_per_s": 4.8e12, "duration_ns": 1e6,
        "launch_id": launch_id, "bound": "compute", **more,
    }  # fmt: skip


def test_ceilings_are_the_vendors_whatever_the_clocks() -> None:
    """FP16 ran at a higher clock than BF16; their peaks are the same."""
    drawing = roofline_figure(
        _rooflines(
            _point(0, "tensor_fp16", 1.07e15, peak_flop_per_s_nominal=9.894e14),
            _point(1, "tensor_bf16", 7.9e14, peak_flop_per_s_nominal=9.894e14),
            _point(2, "fp16", 1.2e14, peak_flop_per_s_max_clock=1.34e14),
            _point(3, "fp8", 1.5e15),
        )
    )
    assert drawing is not None
    axes = Figure().subplots()
    marks = drawing.draw(axes)
    heights = [list(np.asarray(line.get_ydata())) for line in axes.lines]
    ceilings = {ends[0] for ends in heights if ends[0] == ends[-1]}
    assert ceilings == {9.894e14, 1.34e14, 1.5e15}
    labels = {text.get_text() for text in axes.texts}
    assert {"tensor fp16 989 TFLOP/s", "tensor bf16 989 TFLOP/s"} <= labels
    assert {"fp16 134 TFLOP/s at maximum clock", "fp8 1,500 TFLOP/s at measured clock"} <= labels
    assert "of 1070 at the measured clock" in marks["roof-0"].title
    assert "of 790 at the measured clock" in marks["roof-1"].title
