"""Kernel views: a few rows in, what they say out."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from conftest import Opened, Tiny

Ingested = Callable[[str], str]

SOL = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"


def test_sol_with_clocks_of_every_domain() -> None:
    clocks = {
        "gpc__cycles_elapsed.avg.per_second": 1e9,
        "l1tex__cycles_elapsed.avg.per_second": 1.1e9,
        "lts__cycles_elapsed.avg.per_second": 1.2e9,
        "dram__cycles_elapsed.avg.per_second": 2e9,
    }
    drifted = clocks | {"sm__cycles_elapsed.avg.per_second": 1.0301e9}
    steady = clocks | {"sm__cycles_elapsed.avg.per_second": 1.03e9}
    db = Tiny(metrics={0: {SOL: 60.0, MEMORY: 50.0} | drifted, 1: {SOL: 60.0} | steady, 2: clocks})
    assert db.rows(
        "SELECT launch_id, max_sol_pct, sm_clock_hz, l1_clock_hz, l2_clock_hz, dram_clock_hz, "
        "passes_disagree FROM kernel_sol ORDER BY launch_id"
    ) == [
        (0, 60.0, 1e9, 1.1e9, 1.2e9, 2e9, True),
        (1, None, 1e9, 1.1e9, 1.2e9, 2e9, False),
        (2, None, 1e9, 1.1e9, 1.2e9, 2e9, None),
    ]


def test_breakdown_ranks_the_constituents_that_ncu_names() -> None:
    end = ".avg.pct_of_peak_sustained_elapsed"
    values = {
        f"sm__inst_executed{end}": 40.0,
        f"sm__pipe_tensor_cycles_active{end}": 90.0,
        f"sm__inst_executed_pipe_lsu{end}": 10.0,
        f"dram__cycles_active{end}": 5.0,
        f"l1tex__data_bank_reads{end}": 70.0,
        f"lts__t_sectors{end}": 60.0,
        f"fbpa__dram_sectors{end}": 6.0,
        f"gpu__compute_memory_request_throughput_internal_activity{end}": 1.0,
    }
    listed = {
        f"breakdown:{SOL}": ",".join([*list(values)[:3], f"sm__never_collected{end}"]),
        f"breakdown:{MEMORY}": ",".join(list(values)[3:]),
    }
    db = Tiny(metrics={0: {**values, **listed}, 1: values})
    assert db.rows(
        "SELECT launch_id, side, rank, part, pct FROM kernel_sol_breakdown ORDER BY side, rank"
    ) == [
        (0, "compute", 1, "tensor", 90.0),
        (0, "compute", 2, "issue", 40.0),
        (0, "compute", 3, "lsu", 10.0),
        (0, "memory", 1, "l1", 70.0),
        (0, "memory", 2, "l2", 60.0),
        (0, "memory", 3, "dram", 6.0),
        (0, "memory", 4, "dram", 5.0),
        (0, "memory", 5, "interconnect", 1.0),
    ]


@pytest.mark.parametrize("name", ["visible", "ops", "block"])
def test_the_largest_constituent_is_the_sol(opened: Opened, name: str) -> None:
    sql = """
        SELECT count(*), count(*) FILTER (
            abs(b.pct - CASE b.side WHEN 'compute' THEN s.compute_sol_pct ELSE s.memory_sol_pct END) < 1e-9
        )
        FROM kernel_sol_breakdown AS b JOIN kernel_sol AS s USING (report_id, launch_id)
        WHERE b.rank = 1
    """  # fmt: skip
    with opened(f"ncu/{name}.ncu-rep") as con:
        counts = con.execute(sql).fetchone()
        launches = con.execute("SELECT 2 * count(*) FROM ncu_launches").fetchone()
    assert counts is not None and launches is not None
    assert counts == (launches[0], launches[0])


def test_pipes_by_capability() -> None:
    end = ".avg.pct_of_peak_sustained_elapsed"
    db = Tiny(
        [{"launch_id": 0, "cc": "9.0"}, {"launch_id": 1, "cc": "8.0"}, {"launch_id": 2, "cc": "8.6"}],
        {
            0: {f"sm__pipe_tensor_cycles_active{end}": 90.0,
                f"sm__pipe_tensor_op_hmma_cycles_active{end}": 80.0,
                f"sm__pipe_shared_cycles_active{end}": 95.0, f"sm__inst_executed_pipe_fp16{end}": 3.0},
            1: {f"sm__inst_executed_pipe_fp16{end}": 3.0, f"sm__pipe_alu_cycles_active{end}": 2.0},
            2: {f"sm__pipe_tensor_cycles_active_v2{end}": 50.0, f"sm__inst_executed_pipe_fma{end}": 60.0},
        },
    )  # fmt: skip
    assert db.rows("SELECT launch_id, pipe, pct, rank FROM kernel_pipes ORDER BY ALL") == [
        (0, "tensor", 90.0, 1),
        (1, "alu", 2.0, 2),
        (1, "fp16", 3.0, 1),
        (2, "fma", 60.0, 1),
        (2, "tensor", 50.0, 2),
    ]


def test_stalls_of_both_families_have_one_list_of_reasons() -> None:
    averaged = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    sampled = "smsp__pcsamp_warps_issue_stalled_{}"
    db = Tiny(
        metrics={
            0: {
                averaged.format("gmma"): 3.0,
                averaged.format("no_instruction"): 1.0,
                averaged.format("selected"): 1.0,
                averaged.format("not_selected"): 5.0,
                "smsp__average_warp_latency_per_inst_issued.ratio": 10.0,
                sampled.format("warpgroup_arrive"): 30.0,
                sampled.format("warpgroup_arrive_not_issued"): 20.0,
                sampled.format("no_instructions"): 10.0,
                "smsp__pcsamp_sample_count": 100.0,
            },
            1: {sampled.format("wait"): 3.0, sampled.format("barrier"): 1.0},
            2: {"smsp__warp_issue_stalled_drain_per_warp_active.pct": 12.0},
        }
    )
    assert db.rows(
        "SELECT launch_id, reason, family, is_stall, cycles, pct, samples, samples_pct, "
        "samples_not_issued, rank FROM kernel_stalls ORDER BY launch_id, rank NULLS LAST, reason"
    ) == [
        (0, "gmma", "sync", True, 3.0, 30.0, 30, 30.0, 20, 1),
        (0, "no_instruction", "frontend", True, 1.0, 10.0, 10, 10.0, None, 2),
        (0, "not_selected", "issue", False, 5.0, 50.0, None, None, None, None),
        (0, "selected", "issue", False, 1.0, 10.0, None, None, None, None),
        (1, "wait", "execution", True, None, None, 3, 75.0, None, 1),
        (1, "barrier", "sync", True, None, None, 1, 25.0, None, 2),
        (2, "drain", "memory", True, None, 12.0, None, None, None, 1),
    ]


@pytest.mark.parametrize("name", ["visible", "ops"])
def test_samples_of_all_reasons_are_the_sample_count(opened: Opened, name: str) -> None:
    sql = """
        SELECT count(*), count(*) FILTER (total = samples) FROM (
            SELECT report_id, launch_id, sum(samples) AS total
            FROM kernel_stalls GROUP BY report_id, launch_id
        ) JOIN (SELECT report_id, launch_id, samples FROM kernel_metrics) USING (report_id, launch_id)
        WHERE samples > 0
    """  # fmt: skip
    with opened(f"ncu/{name}.ncu-rep") as con:
        counts = con.execute(sql).fetchone()
    assert counts is not None
    assert counts[0] == counts[1] > 10


def test_memory_of_a_launch() -> None:
    l1 = "l1tex__t_{}_pipe_lsu_mem_{}_op_{}.sum"
    values = {
        l1.format("sectors", "global", "ld"): 400.0,
        l1.format("requests", "global", "ld"): 100.0,
        l1.format("requests", "global", "st"): 0.0,
        l1.format("sectors", "global", "st"): 0.0,
        l1.format("requests", "global", "atom"): 25.0,
        l1.format("requests", "global", "red"): 75.0,
        l1.format("requests", "local", "ld"): 6.0,
        l1.format("requests", "local", "st"): 2.0,
        "derived__local_spilling_requests": 4.0,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 8.0,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 0.0,
        "memory_l2_theoretical_sectors_global": 400.0,
        "memory_l2_theoretical_sectors_global_ideal": 100.0,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 31.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 32.0,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 31.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 32.0,
        "dram__bytes_read.sum": 3e6,
        "dram__bytes_write.sum": 1e6,
        "gpu__time_duration.sum": 1e6,
    }
    db = Tiny(metrics={0: values, 1: {}})
    assert db.rows(
        "SELECT sectors_per_load, sectors_per_store, load_bytes_per_sector, "
        "store_bytes_per_sector, global_excess_pct, shared_conflict_pct, "
        "shared_load_conflict_ways, spill_pct, atomic_requests, atomic_pct, dram_bytes_per_s "
        "FROM kernel_memory ORDER BY launch_id"
    ) == [(4.0, None, 8.0, None, 75.0, 96.875, 32.0, 50.0, 100.0, 50.0, 4e9), (None,) * 11]


def test_hot_spots_by_instruction_and_by_line() -> None:
    db = Tiny([{"launch_id": 0}])
    db.add(
        "ncu_source",
        {"launch_id": 0, "pc": 0, "sass": "LDG", "file": "a.cu", "line": 7, "samples": 5,
         "stall_long_scoreboard": 4, "stall_selected": 1, "executions": 9},
        {"launch_id": 0, "pc": 16, "sass": "FFMA", "file": "a.cu", "line": 8, "samples": 20,
         "stall_long_scoreboard": 6, "stall_wait": 10, "stall_not_selected": 4, "executions": 9},
        {"launch_id": 0, "pc": 32, "sass": "EXIT", "file": "a.cu", "line": 8, "samples": 3,
         "stall_selected": 3, "executions": 1},
        {"launch_id": 0, "pc": 48, "sass": "NOP", "samples": 0},
    )  # fmt: skip
    rows = db.rows(
        "SELECT kind, rank, pc, sass, line, samples, stall_samples, stall_pct, top_reason, "
        "top_reason_pct, executions, reasons FROM kernel_hotspots ORDER BY kind, rank"
    )
    assert [row[:11] for row in rows] == [
        ("line", 1, 16, None, 8, 23, 16, 80.0, "wait", 62.5, 10),
        ("line", 2, 0, None, 7, 5, 4, 20.0, "long_scoreboard", 100.0, 9),
        ("sass", 1, 16, "FFMA", 8, 20, 16, 80.0, "wait", 62.5, 9),
        ("sass", 2, 0, "LDG", 7, 5, 4, 20.0, "long_scoreboard", 100.0, 9),
    ]
    assert rows[0][11] == [
        {"samples": 10, "reason": "wait"},
        {"samples": 6, "reason": "long_scoreboard"},
    ]


def test_hot_spots_of_two_reports_of_one_program_compare(opened: Opened) -> None:
    """Offsets count from the first instruction, whatever address the loader chose."""
    sql = (
        "SELECT kernel_name, pc, sass FROM kernel_hotspots WHERE kind = 'sass' AND rank = 1 "
        "ORDER BY ALL"
    )
    answers = []
    for form in ("ncu-rep", "source.csv"):
        with opened(f"ncu/visible.{form}") as con:
            answers.append(con.execute(sql).fetchall())
    assert len(answers[0]) == 14
    offsets = [{pc for _, pc, _ in answer} for answer in answers]
    assert len(offsets[0] & offsets[1]) >= 12


def test_summary_of_a_launch() -> None:
    count = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
    db = Tiny(
        [{"launch_id": 0, "kernel_demangled": "f(int)", "nvtx_path": "step/mm", "duration_ns": 1e6}],
        {
            0: {
                count: 4224.0, "smsp__cycles_elapsed.avg": 1e6,
                "smsp__cycles_elapsed.avg.per_second": 1e9, "sm__cycles_elapsed.avg.per_second": 1e9,
                "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 16896.0,
                "dram__bytes.sum.per_second": 1e12, "dram__bytes.sum.peak_sustained": 1504.0,
                "dram__cycles_elapsed.avg.per_second": 3.2e9, "gpu__time_duration.sum": 1e6,
                "launch__block_size": 256, "launch__registers_per_thread": 33,
                "launch__shared_mem_per_block_static": 1024, "launch__grid_size": 264,
                "launch__shared_mem_per_block_dynamic": 0, "launch__sm_count": 132,
                "device__attribute_max_registers_per_multiprocessor": 65536,
                "device__attribute_max_shared_memory_per_multiprocessor": 233472,
            },
            1: {},
        },
    )  # fmt: skip
    db.add(
        "launch_work",
        {"kernel": None, "nvtx": "mm$", "flop": 6.69e9, "bytes": 1e9, "dtype": "fp32"},
        {"kernel": "nothing", "nvtx": None, "flop": 1.0, "bytes": 1.0, "dtype": "fp32"},
    )
    rows = db.rows(
        "SELECT precision, flop, flop_per_s, pct_of_peak, intensity, intensity_band, mfu_pct, "
        "model_intensity, round(hfu_pct, 3), registers_per_block, smem_per_block, registers_pct "
        "FROM kernel_summary ORDER BY launch_id"
    )
    assert rows[0][:6] == ("fp32", 8.448e9, 8.448e12, 25.0, 8.448, "mixed")
    assert rows[0][6] == pytest.approx(10.0)
    assert rows[0][7:] == (6.69, 12.628, 10240, 2048, 93.75)
    assert rows[1][:3] == (None, None, None)


def test_intensity_bands_on_both_sides() -> None:
    count = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed"
    base = {"smsp__cycles_elapsed.avg.per_second": 1e9, "dram__bytes.sum.per_second": 1e9}
    flops = (4.99, 5.0, 20.0, 20.01)
    db = Tiny(metrics={number: base | {count: value} for number, value in enumerate(flops)})
    bands = db.rows("SELECT intensity_band FROM kernel_summary ORDER BY launch_id")
    assert [band for (band,) in bands] == ["memory", "mixed", "mixed", "compute"]


def test_evidence_is_json() -> None:
    db = Tiny(metrics={0: {SOL: 85.0, MEMORY: 10.0}})
    evidence = json.loads(db.rows("SELECT evidence FROM kernel_bottleneck")[0][0])
    assert evidence[0] == {"metric": SOL, "value": 85.0, "threshold": 80.0, "unit": "%"}
