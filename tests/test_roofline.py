"""The roofline: formulas, published figures, and the traps of tensor cores and shared memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import Opened, Tiny

from perfpipe.analysis.occupancy import calculator
from perfpipe.specs import find_spec

Ingested = Callable[[str], str]


def _value(expression: str) -> float:
    with calculator() as con:
        row = con.execute(f"SELECT {expression}").fetchone()
    assert row is not None
    return float(row[0])


def test_the_worked_example_of_an_a100() -> None:
    """FP16, M = N = K = 4096: far right of the ridge, so bounded by the tensor cores."""
    intensity = 1365.33
    assert _value(f"memory_roof_flop_per_s({intensity}, 1939e9)") / 1e12 == pytest.approx(
        2647, abs=0.5
    )
    assert _value(f"attainable_flop_per_s(312e12, {intensity}, 1939e9)") == 312e12
    share = _value(f"100 * 204.71e12 / attainable_flop_per_s(312e12, {intensity}, 1939e9)")
    assert share == pytest.approx(65.6, abs=0.05)


@pytest.mark.parametrize(
    ("device", "sms", "gbs", "fp16"),
    [
        ("Tesla V100-SXM2-16GB", 80, 900, 125),
        ("NVIDIA A100-SXM4-40GB", 108, 1555, 312),
        ("NVIDIA A100-SXM4-80GB", 108, 2039, 312),
        ("NVIDIA A100 80GB PCIe", 108, 1935, 312),
        ("NVIDIA A100-PCIE-40GB", 108, 1555, 312),
        ("NVIDIA H100 80GB HBM3", 132, 3350, 989),
    ],
)
def test_published_figures(device: str, sms: int, gbs: float, fp16: float) -> None:
    spec = find_spec(device, sms)
    assert spec is not None
    assert spec.bandwidth_gbs == gbs
    assert int(spec.dense["fp16"]) == fp16


def test_a_tensor_core_product_of_4096(opened: Opened) -> None:
    with opened("ncu/ops.ncu-rep") as con:
        rows = con.execute("""
            SELECT level, flop, flop_per_s / 1e12, peak_flop_per_s / 1e12,
                peak_flop_per_s_max_clock / 1e12, peak_flop_per_s_nominal / 1e12,
                pct_of_peak, roof, bandwidth_pct, note, intensity
            FROM kernel_roofline WHERE launch_id = 0 ORDER BY level
        """).fetchall()
        leaf = con.execute(
            "SELECT value FROM ncu_metrics WHERE launch_id = 0 AND metric = "
            "'sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.pct_of_peak_sustained_elapsed'"
        ).fetchone()
    assert [row[0] for row in rows] == ["dram", "l1", "l2"]
    assert leaf is not None
    for _, flop, rate, peak, peak_max, nominal, pct, roof, *_ in rows:
        assert flop == 2 * 4096**3, "aggregate and leaf count the same work: once"
        assert rate == pytest.approx(762.2, abs=0.1)
        assert pct == pytest.approx(leaf[0], rel=1e-9), "of the dense peak, not the sparse one"
        assert roof == "compute"
        assert (round(peak, 1), round(peak_max, 1), nominal) == (843.9, 1070.5, 989.4)
    by_level = {row[0]: row for row in rows}
    assert "bypass the LSU" in by_level["l1"][9]
    assert by_level["l1"][8] == pytest.approx(69.8, abs=0.1), "ncu's shared-memory throughput"
    assert 20 < by_level["l1"][10] < by_level["l2"][10] < by_level["dram"][10]


@pytest.mark.parametrize("name", ["visible", "ops", "block"])
def test_no_launch_beats_its_roofs(opened: Opened, name: str) -> None:
    """But for the few percent by which the clocks of passes differ."""
    with opened(f"ncu/{name}.ncu-rep") as con:
        rows = con.execute("""
            SELECT count(*), max(attained_pct), max(pct_of_peak), max(bandwidth_pct)
            FROM kernel_roofline
        """).fetchall()
        launches = con.execute(
            "SELECT count(*) FROM ncu_launches ANTI JOIN kernel_roofline USING (launch_id)"
        ).fetchone()
    assert launches == (0,)
    assert rows[0][0] > 0
    assert all(value is None or value < 103 for value in rows[0][1:])


AGGREGATE = "sm__ops_path_tensor_src_fp16.sum"
LEAF = "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum"
OTHER_LEAF = "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum"
CLOCK = {"smsp__cycles_elapsed.avg.per_second": 1e9, "sm__cycles_elapsed.avg.per_second": 1e9}


def test_tensor_work_is_counted_once_against_the_dense_peak() -> None:
    db = Tiny(
        [{"launch_id": 0}, {"launch_id": 1}, {"launch_id": 2}, {"launch_id": 3, "cc": "10.0"}],
        {
            0: {
                AGGREGATE: 100.0, f"{AGGREGATE}.per_second": 50.0, f"{AGGREGATE}.peak_sustained": 8.0,
                LEAF: 100.0, f"{LEAF}.per_second": 50.0, f"{LEAF}.peak_sustained": 4.0,
                OTHER_LEAF: 0.0, f"{OTHER_LEAF}.per_second": 0.0, f"{OTHER_LEAF}.peak_sustained": 2.0,
            },
            1: {AGGREGATE: 100.0, f"{AGGREGATE}.per_second": 50.0, f"{AGGREGATE}.peak_sustained": 8.0},
            2: {
                LEAF: 60.0, f"{LEAF}.peak_sustained": 4.0, f"{LEAF}.per_second": 6.0,
                OTHER_LEAF: 40.0, f"{OTHER_LEAF}.peak_sustained": 2.0, f"{OTHER_LEAF}.per_second": 4.0,
            },
            # Not verified whether this peak is the sparse one: then it is not known.
            3: {
                "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 9.0,
                "sm__ops_path_tensor_src_bf16_dst_fp32.sum.peak_sustained": 8.0,
            },
        },
    )  # fmt: skip
    assert db.rows(
        "SELECT launch_id, precision, flop, flop_per_s, peak_flop_per_cycle FROM kernel_flops "
        "ORDER BY launch_id"
    ) == [
        (0, "tensor_fp16", 100.0, 50.0, 4.0),
        (1, "tensor_fp16", 100.0, 50.0, 4.0),
        (2, "tensor_fp16", 100.0, 10.0, 4.0),
        (3, "tensor_bf16", 9.0, None, None),
    ]


def _op(name: str, value: float, prefix: str = "smsp") -> dict[str, float]:
    stem = f"{prefix}__sass_thread_inst_executed_op_{name}_pred_on.sum"
    return {f"{stem}.per_cycle_elapsed": value}


def test_cuda_core_operations() -> None:
    """A fused multiply-add is two operations, a packed FP16 instruction works on two values."""
    clock = {"smsp__cycles_elapsed.avg": 1000.0} | CLOCK
    peak = "sm__sass_thread_inst_executed_op_{}_pred_on.sum.peak_sustained"
    db = Tiny(
        metrics={
            0: _op("fadd", 1) | _op("fmul", 2) | _op("ffma", 3) | clock | {peak.format("ffma"): 10.0},
            1: _op("dadd", 1) | _op("dmul", 2) | _op("dfma", 3) | clock | {peak.format("dfma"): 5.0},
            2: _op("hadd", 1) | _op("hmul", 2) | _op("hfma", 3) | clock | {peak.format("hfma"): 5.0},
        }
    )  # fmt: skip
    assert db.rows(
        "SELECT launch_id, precision, flop, flop_per_s, peak_flop_per_cycle FROM kernel_flops "
        "ORDER BY launch_id"
    ) == [
        (0, "fp32", 9000.0, 9e9, 20.0),
        (1, "fp64", 9000.0, 9e9, 10.0),
        (2, "fp16", 18000.0, 18e9, 20.0),
    ]


def test_metric_names_of_older_scripts_are_read() -> None:
    """Yang's method: counts, bytes of each level, and time from cycles and clock."""
    count = "sm__sass_thread_inst_executed_op_{}_pred_on.sum"
    db = Tiny(
        [{"launch_id": 0, "cc": "7.0"}],
        {
            0: {
                count.format("ffma"): 4e6, count.format("fadd"): 1e6, count.format("fmul"): 1e6,
                "sm__cycles_elapsed.avg": 1e6, "sm__cycles_elapsed.avg.per_second": 1e9,
                "dram__bytes.sum": 1e6, "lts__t_bytes.sum": 2e6, "l1tex__t_bytes.sum": 5e6,
            }
        },
    )  # fmt: skip
    assert db.rows(
        "SELECT level, flop, flop_per_s, bytes_per_s, intensity FROM kernel_roofline ORDER BY level"
    ) == [
        ("dram", 1e7, 1e10, 1e9, 10.0),
        ("l1", 1e7, 1e10, 5e9, 2.0),
        ("l2", 1e7, 1e10, 2e9, 5.0),
    ]


DRAM = {
    "dram__bytes.sum.per_second": 5e11,
    "dram__bytes.sum.peak_sustained": 1000.0,
    "dram__cycles_elapsed.avg.per_second": 1e9,
    "device__attribute_clock_rate": 2e6,
}
PEAK = {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 5000.0}


def test_the_lower_roof_at_both_sides_of_the_ridge() -> None:
    """Peak 10 TFLOP/s, 1 TB/s: the ridge is at 10 FLOP/B."""
    db = Tiny(
        metrics={
            0: DRAM | PEAK | CLOCK | _op("ffma", 2499),
            1: DRAM | PEAK | CLOCK | _op("ffma", 2500),
            2: DRAM | CLOCK | {"gpu__time_duration.sum": 1e6},
            3: PEAK | CLOCK | _op("ffma", 2500),
        }
    )
    rows = db.rows(
        "SELECT launch_id, precision, intensity, ridge, roof, attained_pct, pct_of_peak, "
        "pct_of_peak_max_clock, bandwidth_pct, note FROM kernel_roofline "
        "WHERE level = 'dram' ORDER BY launch_id"
    )
    assert rows[0][:8] == (0, "fp32", 9.996, 10.0, "dram", 50.0, 49.98, 24.99)
    assert rows[1][:8] == (1, "fp32", 10.0, 10.0, "compute", 50.0, 50.0, 25.0)
    assert rows[2][:9] == (2, "none", None, None, None, None, None, None, 50.0)
    assert rows[3][4] is None
    assert rows[3][9] == "not collected; use ncu --section SpeedOfLight_RooflineChart"


LSU = "l1tex__lsu_writeback_active_mem_lgds.sum"
L1 = {f"{LSU}.peak_sustained": 100.0, "l1tex__cycles_elapsed.avg.per_second": 1e9}


@pytest.mark.parametrize(
    ("metrics", "gigabytes", "note"),
    [
        ({f"{LSU}.per_second": 1e9}, 128.0, "load returns of global and local memory"),
        (
            {f"{LSU}.per_second": 1e9, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 1e7},
            1280.0,
            "outweigh",
        ),
        (
            {f"{LSU}.per_second": 1e6, "smsp__inst_executed_op_tma_ld.sum": 1.0,
             "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed": 50.0},
            6400.0,
            "bypass the LSU counter",
        ),
        (
            {f"{LSU}.per_second": 1e6,
             "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed": 5.0},
            None,
            "ncu --section MemoryWorkloadAnalysis_Chart",
        ),
        ({}, None, "not collected"),
    ],
)  # fmt: skip
def test_l1_traffic_of_kernels_that_bypass_the_lsu(
    metrics: dict[str, float], gigabytes: float | None, note: str
) -> None:
    db = Tiny(metrics={0: L1 | {"gpu__time_duration.sum": 1e6} | metrics})
    rows = db.rows("SELECT bytes_per_s / 1e9, note FROM kernel_roofline WHERE level = 'l1'")
    assert rows[0][0] == gigabytes
    assert note in rows[0][1]
