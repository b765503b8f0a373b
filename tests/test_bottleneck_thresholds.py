"""The classifier on constructed kernels: every threshold on both sides, and never a failure."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bottleneck import BOUNDS, SUBCLASSES

NAMES = {
    "c": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "m": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "waves": "launch__waves_per_multiprocessor",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "shared": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "grid": "launch__grid_size",
    "sms": "launch__sm_count",
    "active": "sm__cycles_active.avg",
    "active_max": "sm__cycles_active.max",
    "elapsed": "sm__cycles_elapsed.avg",
    "threads": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "issue_elapsed": "sm__issue_active.avg.pct_of_peak_sustained_elapsed",
    "eligible": "smsp__warps_eligible.avg.per_cycle_active",
    "occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "registers_limit": "launch__occupancy_limit_registers",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "latency": "smsp__average_warp_latency_per_inst_issued.ratio",
    "wait": "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
    "long_scoreboard": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "lg_throttle": "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
    "barrier": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "sector_bytes": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "stored": "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    "sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "spills": "derived__local_spilling_requests",
    "local_loads": "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    "local_stores": "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    "loads": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "stores": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "atomics": "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "reductions": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "gpc_clock": "gpc__cycles_elapsed.avg.per_second",
    "sm_clock": "sm__cycles_elapsed.avg.per_second",
    "fp64": "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "l2_tags": "lts__t_tag_requests.avg.pct_of_peak_sustained_elapsed",
    "l1_active": "l1tex__data_bank_reads.sum.pct_of_peak_sustained_active",
    "fp64_active": "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm_active_pct": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "block": "launch__block_size",
    "blocks_limit": "launch__occupancy_limit_blocks",
    "thread_inst": "smsp__thread_inst_executed.sum",
    "inst": "smsp__inst_executed.sum",
    "local_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "local_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "all_sectors": "l1tex__t_sectors.sum",
    "local_by_line": "memory_l2_theoretical_sectors_local",
    "global_by_line": "memory_l2_theoretical_sectors_global",
    "local_load_inst": "sass__inst_executed_local_loads",
    "global_load_inst": "sass__inst_executed_global_loads",
    "dram_reads": "dram__bytes_read.sum.pct_of_peak_sustained_elapsed",
}
LOW = {"c": 30.0, "m": 20.0, "waves": 2.0}
REQUESTS = {"local_loads": 5, "local_stores": 5, "loads": 80, "stores": 10}
ATOMIC = {"loads": 50, "stores": 40, "atomics": 0, "latency": 10, "long_scoreboard": 6}

#: (duration in ns, numbers, (bound, subclass, cause)): each threshold from both sides.
COMPUTE = {"c": 85.0, "m": 5.0, "waves": 2.0}
MEMORY = {"c": 5.0, "m": 90.0, "dram": 90.0, "waves": 2.0}
MEMORY_L1 = {"c": 5.0, "m": 90.0, "l1": 90.0, "waves": 2.0}
SHARED = {"c": 5.0, "m": 99.0, "dram": 1.0, "l2": 2.0, "l1": 99.0, "waves": 2.0}
FEW_WARPS = {"eligible": 0.99, "registers_limit": 2.0}

POINTS: list[tuple[float, dict[str, float], tuple[str, str | None, str | None]]] = [
    (1e5, {}, ("unknown", None, None)),
    # one known unit
    (1e5, {"c": 80}, ("compute", None, None)),
    (1e5, {"c": 79.99}, ("unknown", None, None)),
    (1e5, {"c": 90, "fma": 70}, ("compute", "fma", None)),
    (1e5, {"m": 80}, ("memory", None, None)),
    (1e5, {"m": 80, "l2": 79}, ("memory", "l2", None)),
    (1e5, {"m": 79.99}, ("unknown", None, None)),
    (1e5, {"c": 50, "dram": 80}, ("memory", "dram", None)),
    (1e5, {"c": 50, "dram": 79.99}, ("unknown", None, None)),
    (1e5, {"dram_reads": 80}, ("memory", "dram", None)),
    (1e5, {"tensor": 80}, ("compute", "tensor", None)),
    (1e5, {"issue_elapsed": 80}, ("compute", "issue", None)),
    (1e5, {"issue": 79.9}, ("unknown", None, None)),
    (1e5, {"issue": 95}, ("compute", "issue", None)),
    (1e5, {"l2_tags": 80}, ("memory", "l2", None)),
    (1e5, {"l2_tags": 79.9}, ("unknown", None, None)),
    (1e5, {"l2_tags": 111}, ("unknown", None, None)),
    (1e5, {"l1_active": 85}, ("memory", "l1", None)),
    (1e5, {"fp64_active": 85}, ("compute", "fp64", None)),
    # neither occupancy nor activity is the use of a unit
    (1e5, {"warps": 95, "sm_active_pct": 99}, ("unknown", None, None)),
    (4999, {"c": 80, "waves": 0.5}, ("launch", "small_grid", None)),
    # a SOL that no GPU reaches
    (1e5, {"c": 110, "m": 5, "waves": 2}, ("compute", None, None)),
    (1e5, {"c": 110.1, "m": 5, "waves": 2}, ("unknown", None, None)),
    (1e5, {"c": 110.1, "m": 85, "waves": 2}, ("memory", None, None)),
    (1e5, LOW | {"l2": 110.1}, ("latency", None, None)),
    # bound
    (1e5, {"c": 80, "m": 10, "waves": 2, "fma": 70}, ("compute", "fma", None)),
    (1e5, {"c": 79.99, "m": 69.99, "waves": 2, "fma": 70}, ("compute", "fma", None)),
    (1e5, {"c": 79.99, "m": 70.0, "waves": 2}, ("balanced", None, None)),
    (1e5, {"c": 10, "m": 80, "dram": 80, "waves": 2}, ("memory", "dram", None)),
    (1e5, {"c": 50, "m": 60, "dram": 60, "waves": 2}, ("memory", "dram", None)),
    (1e5, {"c": 50.01, "m": 60, "waves": 2}, ("balanced", None, None)),
    (1e5, {"c": 59.99, "m": 59.99, "waves": 2}, ("latency", None, None)),
    (1e5, {"c": 80, "m": 80, "waves": 2, "fma": 80}, ("compute", "fma", None)),
    # launch
    (4999, LOW | {"grid": 131, "sms": 132}, ("launch", "small_grid", None)),
    (5000, LOW | {"grid": 117, "sms": 132, "waves": 0.89}, ("latency", "small_grid", None)),
    (4999, LOW | {"grid": 132, "sms": 132}, ("latency", None, None)),
    (4999, LOW | {"waves": 0.99}, ("launch", "small_grid", None)),
    (4999, LOW | {"waves": 1.0}, ("latency", None, None)),
    (4999, LOW | {"active": 49.9, "elapsed": 100}, ("launch", "short", None)),
    (4999, LOW | {"active": 50, "elapsed": 100}, ("latency", None, None)),
    # small grid, long enough
    (1e5, LOW | {"waves": 0.89, "grid": 132, "sms": 132, "latency": 10, "wait": 5},
     ("latency", "dependency", "small_grid")),
    # all but a few SMs have work: the roof that is near decides
    (1e5, {"c": 20, "m": 55, "dram": 55, "waves": 0.97}, ("memory", "dram", None)),
    (1e5, {"c": 20, "m": 54.9, "dram": 54.9, "waves": 0.97}, ("latency", None, "small_grid")),
    (1e5, {"c": 20, "m": 55, "dram": 55, "waves": 0.89}, ("latency", None, "small_grid")),
    (1e5, {"c": 20, "m": 55, "dram": 55, "waves": 1}, ("latency", None, None)),
    (1e5, LOW | {"waves": 1.0, "grid": 132, "sms": 132, "latency": 10, "wait": 5},
     ("latency", "dependency", None)),
    # a level rescues
    (1e5, LOW | {"l2": 70.0}, ("memory", "l2", None)),
    (1e5, LOW | {"l2": 69.99}, ("latency", None, None)),
    (1e5, LOW | {"dram": 75, "l2": 71}, ("memory", "dram", None)),
    (1e5, LOW | {"l1": 70}, ("memory", "l1", None)),
    # imbalance and tail
    (1e5, LOW | {"active": 80, "active_max": 100}, ("latency", "tail", "imbalance")),
    (1e5, LOW | {"active": 80.1, "active_max": 100}, ("latency", None, None)),
    # busy while active
    (1e5, LOW | {"issue": 80}, ("compute", "issue", None)),
    (1e5, LOW | {"issue": 79.99}, ("latency", None, None)),
    # compute: divergence, pipe, issue
    (1e5, COMPUTE | {"fma": 70, "threads": 23.99}, ("compute", "divergence", None)),
    (1e5, COMPUTE | {"fma": 70, "threads": 24}, ("compute", "fma", None)),
    (1e5, COMPUTE | {"fma": 60, "issue_elapsed": 85}, ("compute", "fma", None)),
    (1e5, COMPUTE | {"fma": 59.99, "issue_elapsed": 85}, ("compute", "issue", None)),
    (1e5, {"c": 61, "m": 5, "waves": 2, "fma": 50, "issue_elapsed": 40}, ("compute", "fma", None)),
    # memory: the nearest level, and shared memory in L1
    (1e5, {"c": 5, "m": 82, "dram": 82, "l2": 88, "l1": 30, "waves": 2}, ("memory", "dram", None)),
    (1e5, {"c": 5, "m": 86, "dram": 1, "l2": 86.1, "l1": 30, "waves": 2}, ("memory", "l2", None)),
    (1e5, SHARED | {"shared": 99}, ("memory", "shared", None)),
    (1e5, SHARED | {"shared": 70}, ("memory", "l1", None)),
    # causes
    (1e5, MEMORY | {"sector_bytes": 15.9}, ("memory", "dram", "uncoalesced")),
    (1e5, MEMORY | {"sector_bytes": 16}, ("memory", "dram", None)),
    (1e5, MEMORY | {"sector_bytes": 0}, ("memory", "dram", None)),
    (1e5, MEMORY | {"sector_bytes": 32, "stored": 4}, ("memory", "dram", "uncoalesced")),
    (1e5, MEMORY | {"sector_bytes": 32, "stored": 4, "sectors": 91, "store_sectors": 9},
     ("memory", "dram", None)),
    (1e5, MEMORY | {"sector_bytes": 32, "stored": 4, "sectors": 90, "store_sectors": 10},
     ("memory", "dram", "uncoalesced")),
    (1e5, MEMORY_L1 | {"conflicts": 10, "wavefronts": 100}, ("memory", "l1", "bank_conflict")),
    (1e5, MEMORY_L1 | {"conflicts": 9.9, "wavefronts": 100}, ("memory", "l1", None)),
    (1e5, MEMORY | {"conflicts": 50, "wavefronts": 100}, ("memory", "dram", None)),
    (1e5, MEMORY | {"spills": 10} | REQUESTS, ("memory", "dram", "local_spill")),
    (1e5, MEMORY | {"spills": 9.9} | REQUESTS, ("memory", "dram", None)),
    # local memory, from whatever was counted; uncoalesced accesses come after it
    (1e5, MEMORY | {"sectors": 300, "store_sectors": 0, "local_load_sectors": 60, "local_store_sectors": 40,
                    "sector_bytes": 4}, ("memory", "dram", "local_memory")),
    (1e5, MEMORY | {"sectors": 301, "store_sectors": 0, "local_load_sectors": 60, "local_store_sectors": 40,
                    "sector_bytes": 4}, ("memory", "dram", "uncoalesced")),
    (1e5, MEMORY | {"sectors": 75, "local_load_sectors": 25, "local_store_sectors": 900},
     ("memory", "dram", "local_memory")),
    (1e5, MEMORY | {"all_sectors": 400, "local_load_sectors": 60, "local_store_sectors": 40},
     ("memory", "dram", "local_memory")),
    (1e5, MEMORY | {"local_by_line": 25, "global_by_line": 75}, ("memory", "dram", "local_memory")),
    (1e5, MEMORY | {"local_by_line": 24.9, "global_by_line": 75.1}, ("memory", "dram", None)),
    (1e5, MEMORY | {"local_loads": 25, "loads": 75}, ("memory", "dram", "local_memory")),
    (1e5, MEMORY | {"local_load_inst": 25, "global_load_inst": 75}, ("memory", "dram", "local_memory")),
    (1e5, MEMORY | {"local_by_line": 0, "global_by_line": 0}, ("memory", "dram", None)),
    # few accesses for the number of instructions
    (1e5, MEMORY | {"local_loads": 25, "local_stores": 0, "loads": 75, "stores": 0, "inst": 2501},
     ("memory", "dram", None)),
    (1e5, MEMORY | {"local_loads": 25, "local_stores": 0, "loads": 75, "stores": 0, "inst": 2500},
     ("memory", "dram", "local_memory")),
    # counted spills have their own name; few spills among much local memory are arrays
    (1e5, MEMORY | {"local_loads": 30, "local_stores": 0, "loads": 70, "stores": 0, "spills": 10},
     ("memory", "dram", "local_spill")),
    (1e5, MEMORY | {"local_loads": 30, "local_stores": 0, "loads": 70, "stores": 0, "spills": 9},
     ("memory", "dram", "local_memory")),
    # lanes without a thread
    (1e5, LOW | {"block": 1}, ("latency", "idle_lanes", "narrow_blocks")),
    (1e5, LOW | {"block": 16}, ("latency", "idle_lanes", "narrow_blocks")),
    (1e5, LOW | {"block": 17}, ("latency", None, "narrow_blocks")),
    (1e5, LOW | {"block": 31}, ("latency", None, None)),
    (1e5, LOW | {"block": 32}, ("latency", None, None)),
    (1e5, LOW | {"block": 33}, ("latency", None, "narrow_blocks")),
    (1e5, LOW | {"block": 48, "latency": 10, "long_scoreboard": 6, "wait": 2},
     ("latency", "memory", "narrow_blocks")),
    (1e5, LOW | {"block": 288}, ("latency", None, None)),
    (1e5, LOW | {"block": 4, "waves": 0.5, "grid": 100, "sms": 132}, ("latency", "small_grid", None)),
    (1e5, COMPUTE | {"fma": 70, "block": 4}, ("compute", "fma", "narrow_blocks")),
    (1e5, MEMORY_L1 | {"block": 4}, ("memory", "l1", "narrow_blocks")),
    (1e5, MEMORY | {"block": 4}, ("memory", "dram", None)),
    # they are not divergence, which is among the threads that there are
    (1e5, COMPUTE | {"fma": 70, "block": 4, "threads": 4}, ("compute", "fma", "narrow_blocks")),
    (1e5, COMPUTE | {"fma": 70, "block": 4, "threads": 2.9}, ("compute", "divergence", "narrow_blocks")),
    (1e5, COMPUTE | {"fma": 70, "block": 48, "threads": 18}, ("compute", "fma", "narrow_blocks")),
    (1e5, COMPUTE | {"fma": 70, "thread_inst": 2399, "inst": 100}, ("compute", "divergence", None)),
    (1e5, COMPUTE | {"fma": 70, "thread_inst": 2400, "inst": 100}, ("compute", "fma", None)),
    (1e5, LOW | ATOMIC | {"reductions": 10, "lg_throttle": 3}, ("latency", "memory", "atomics")),
    (1e5, LOW | ATOMIC | {"reductions": 9.9, "lg_throttle": 3}, ("latency", "memory", None)),
    (1e5, LOW | ATOMIC | {"reductions": 10, "lg_throttle": 2.9}, ("latency", "memory", None)),
    # latency
    (1e5, LOW | {"latency": 10, "long_scoreboard": 6, "wait": 2}, ("latency", "memory", None)),
    (1e5, LOW | {"latency": 10, "barrier": 6, "wait": 2}, ("latency", "barrier", None)),
    (1e5, LOW | {"latency": 10, "wait": 2, "threads": 23.9},
     ("latency", "dependency", "divergence")),
    (1e5, LOW | {"occupancy": 49.9} | FEW_WARPS, ("latency", "occupancy", "registers")),
    (1e5, LOW | {"occupancy": 50} | FEW_WARPS, ("latency", None, None)),
    (1e5, LOW | {"occupancy": 49.9, "eligible": 1.0}, ("latency", None, None)),
    # without stalls and eligible warps, as in ncu's default set
    (1e5, LOW | {"occupancy": 50, "registers_limit": 2.0}, ("latency", "occupancy", "registers")),
    (1e5, LOW | {"occupancy": 50, "blocks_limit": 16.0}, ("latency", "occupancy", "blocks")),
    (1e5, LOW | {"occupancy": 50.1, "registers_limit": 2.0}, ("latency", None, None)),
    (1e5, LOW | {"occupancy": 12.5, "registers_limit": 1.0, "tensor": 20}, ("latency", None, None)),
    (1e5, LOW | {"occupancy": 50, "registers_limit": 2.0, "latency": 10, "wait": 5},
     ("latency", "dependency", None)),
]  # fmt: skip


def _classify(points: list[tuple[float, dict[str, float]]]) -> list[tuple[Any, ...]]:
    launches = [{"launch_id": n, "duration_ns": ns} for n, (ns, _) in enumerate(points)]
    metrics = {
        n: {NAMES[name]: value for name, value in values.items()}
        for n, (_, values) in enumerate(points)
    }
    db = Tiny(launches, metrics)
    return db.rows(
        "SELECT bound, subclass, cause, confidence, explanation FROM kernel_bottleneck "
        "ORDER BY launch_id"
    )


def test_both_sides_of_every_threshold() -> None:
    found = _classify([(duration, values) for duration, values, _ in POINTS])
    for (duration, values, expected), row in zip(POINTS, found, strict=True):
        assert row[:3] == expected, (duration, values)


def test_shared_memory_that_feeds_tensor_cores_is_not_the_bound() -> None:
    busy = {"c": 92.0, "m": 94.0, "waves": 2.0, "tensor": 92.0}
    db = Tiny(metrics={0: {NAMES[name]: value for name, value in busy.items()}, 1: {}})
    listed = "breakdown:gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
    stage = "l1tex__data_bank_reads.avg.pct_of_peak_sustained_elapsed"
    db.add("ncu_metrics", {"launch_id": 0, "metric": listed, "text": stage})
    db.add("ncu_metrics", {"launch_id": 0, "metric": stage, "value": 94.0})
    rows = db.rows("SELECT bound, subclass, explanation FROM kernel_bottleneck ORDER BY launch_id")
    assert rows[0][:2] == ("compute", "tensor")
    assert "that feeds a tensor pipe" in rows[0][2]


def test_an_unsure_verdict_says_why() -> None:
    rows = _classify(
        [
            (1e5, {"c": 58.1, "m": 10, "waves": 2, "latency": 10, "wait": 5}),
            (1e5, {"c": 58.0, "m": 10, "waves": 2, "latency": 10, "wait": 5}),
            (1e5, LOW | {"latency": 10, "wait": 5, "gpc_clock": 100, "sm_clock": 103.1}),
            (1e5, LOW | {"latency": 10, "wait": 5, "gpc_clock": 100, "sm_clock": 103.0}),
            (1e5, LOW | {"dram": 70}),
            (1e5, LOW),
            (1e5, {"m": 5}),
        ]
    )
    confidence = [row[3] for row in rows]
    assert confidence == ["medium", "high", "low", "high", "low", "medium", None]
    reasons = [row[4] for row in rows]
    assert "within 2 points of a threshold" in reasons[0]
    assert "clocks differ by 3.1 % between passes" in reasons[2]
    assert "dram alone runs at 70.0 %" in reasons[4]
    assert "ncu --section WarpStateStats" in reasons[5]
    assert reasons[6] == (
        "compute SOL was not collected; use ncu --section SpeedOfLight; memory SOL is 5.0 %"
    )
    assert reasons[1] is None and reasons[3] is None


def test_a_sol_that_is_no_number_is_not_told_to_be_collected() -> None:
    sols = {NAMES["c"]: 30.0}
    db = Tiny(metrics={0: sols, 1: sols, 2: {NAMES["c"]: 1250.0, NAMES["m"]: 5.0}})
    for launch_id, text in enumerate(["nan", "(!) nan"]):
        db.add("ncu_metrics", {"launch_id": launch_id, "metric": NAMES["m"], "text": text})
    rows = db.rows("SELECT bound, explanation FROM kernel_bottleneck ORDER BY launch_id")
    assert rows[:2] == [("unknown", "ncu printed nan for memory SOL; compute SOL is 30.0 %")] * 2
    wrong = "compute SOL is 1250.0 %, which is impossible; memory SOL is 5.0 %"
    assert rows[2] == ("unknown", wrong)
    assert db.rows("SELECT max_sol_pct FROM kernel_sol WHERE launch_id = 2") == [(None,)]


def test_a_sol_above_100_percent_is_remarked() -> None:
    ((*_, reason), (*_, other)) = _classify(
        [(1e5, {"c": 103.0, "m": 5, "fma": 90}), (1e5, {"c": 99.0, "m": 5, "fma": 90})]
    )
    assert reason == "SOL is 103.0 %, above 100 %: passes disagree"
    assert other is None


_numbers = st.one_of(
    st.floats(0, 110, allow_nan=False), st.sampled_from([0.0, 60.0, 80.0, 1e12, -0.2])
)


# Many launches an example: to plan the query takes longer than to answer it.
@settings(max_examples=5)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e9), st.dictionaries(st.sampled_from(list(NAMES)), _numbers)),
        min_size=20,
        max_size=60,
    )
)
def test_whatever_was_collected_there_is_one_verdict(
    points: list[tuple[float, dict[str, float]]],
) -> None:
    rows = _classify(points)
    assert len(rows) == len(points)
    for (_, values), (bound, subclass, *_, confidence, _explanation) in zip(
        points, rows, strict=True
    ):
        assert bound in BOUNDS
        assert subclass in SUBCLASSES[bound]
        possible = {name for name, value in values.items() if value <= 110}
        if {"c", "m"} <= possible or any(values[name] >= 80 for name in possible & {"c", "m"}):
            assert bound != "unknown"
        assert (confidence is None) == (bound == "unknown")


GMMA = "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed"
HADD = "sm__sass_thread_inst_executed_op_hadd_pred_on.sum"
HFMA = "sm__sass_thread_inst_executed_op_hfma_pred_on.sum"


def test_matrix_instructions_of_a_warp_have_a_lower_peak() -> None:
    """98 % of SOL with mma.sync is two thirds of what wgmma reaches on 9.0, and all there is on 8.0."""
    busy = {NAMES[k]: v for k, v in {"c": 98, "m": 40, "waves": 2, "tensor": 98}.items()}
    launches = [
        {"launch_id": 0, "duration_ns": 1e6, "cc": "9.0"},
        {"launch_id": 1, "duration_ns": 1e6, "cc": "9.0"},
        {"launch_id": 2, "duration_ns": 1e6, "cc": "8.0"},
    ]
    db = Tiny(launches, {0: busy | {GMMA: 0.0}, 1: busy | {GMMA: 98.0}, 2: busy})
    told = db.rows("SELECT subclass, explanation FROM kernel_bottleneck ORDER BY launch_id")
    assert [subclass for subclass, _ in told] == ["tensor"] * 3
    assert "mma.sync), which reach 67 % of the tensor peak" in told[0][1]
    assert [text for _, text in told[1:]] == [None, None]
    advised = db.rows("SELECT launch_id FROM kernel_findings WHERE technique = 'wgmma'")
    assert advised == [(0,)]


def test_packed_fp16_on_the_fma_pipe() -> None:
    """98 % of the pipe at 49 % of the peak: adds count half as much as fused multiply-adds."""
    fma_per_cycle, clock = 132 * 128.0, 1.7e9
    adds = 0.49 * 4 * fma_per_cycle * clock * 1e-3 / 2
    busy = {NAMES[k]: v for k, v in {"c": 98, "m": 5, "waves": 2, "fma": 98}.items()}
    counted = {
        HADD: adds,
        f"{HFMA}.peak_sustained": fma_per_cycle,
        NAMES["sm_clock"]: clock,
        "gpu__time_duration.sum": 1e6,
    }
    db = Tiny([{"launch_id": 0, "duration_ns": 1e6, "cc": "9.0"}], {0: busy | counted})
    ((subclass, text),) = db.rows("SELECT subclass, explanation FROM kernel_bottleneck")
    assert subclass == "fp16"
    assert "the fp16 pipe is 98.0 % busy at 49.0 % of the FLOP peak" in text


def test_strided_stores_beside_whole_loads_are_advised_on() -> None:
    """The instructions count 7 of 9 sectors too many; those of loads are whole."""
    numbers = {NAMES[name]: value for name, value in (MEMORY | {"sector_bytes": 32}).items()}
    excess = "memory_l2_theoretical_sectors_global"
    db = Tiny(metrics={0: numbers | {excess: 9.0, f"{excess}_ideal": 2.0}})
    assert db.rows("SELECT subclass, cause FROM kernel_bottleneck") == [("dram", "uncoalesced")]
    assert db.rows("SELECT technique FROM kernel_findings WHERE rank = 1") == [("coalesce",)]


@pytest.mark.parametrize("roof", ["memory", "compute"])
def test_a_grid_that_is_a_little_small_says_both(roof: str) -> None:
    other = "compute" if roof == "memory" else "memory"
    sol = {roof[0]: 55.0, other[0]: 20.0, "dram" if roof == "memory" else "fma": 55.0}
    ((bound, _, cause, confidence, text),) = _classify([(1e5, sol | {"waves": 0.97})])
    assert (bound, cause, confidence) == (roof, None, "medium")
    assert f"the grid is a bit small, and the kernel is almost {roof}" in text
