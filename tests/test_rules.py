"""NVIDIA's rules, recomputed from the metrics, against what ncu said of the same launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conftest import Opened, Tiny

from perfpipe.analysis.session import Session

Ingested = Callable[[str], str]

#: Rule -> (results of ncu in the three captures, which of its results state a finding).
RECOMPUTED = {
    "SOLBottleneck": (151, "true"),
    "CPIStall": (123, "type = 'OPT'"),
    "IssueSlotUtilization": (118, "true"),
    "TheoreticalOccupancy": (68, "true"),
    "AchievedOccupancy": (98, "true"),
    "ThreadDivergence": (4, "true"),
    "LaunchConfiguration": (97, "true"),
    "SharedMemoryConflicts": (1, "true"),
    "UncoalescedGlobalAccess": (11, "type = 'OPT'"),
    "UncoalescedSharedAccess": (13, "type = 'OPT'"),
    "HighPipeUtilization": (151, "true"),
    "WorkloadImbalance": (31, "starts_with(title, 'SMs ')"),
}


@pytest.fixture(scope="module")
def profiled(opened: Opened) -> Iterator[Session]:
    with opened(*(f"ncu/{name}.ncu-rep" for name in ("visible", "ops", "block"))) as con:
        yield con


@pytest.mark.parametrize("rule", RECOMPUTED)
def test_a_rule_fires_where_ncu_fired_it(profiled: Session, rule: str) -> None:
    """On all 151 launches: the same launches, titles, types and estimates."""
    count, finding = RECOMPUTED[rule]
    columns = "report_id, launch_id, title, type, speedup_kind, round(speedup_pct, 6)"
    if rule == "WorkloadImbalance":
        columns = "report_id, launch_id, title, round(speedup_pct, 6)"
    own, ours = (
        profiled.execute(
            f"SELECT {columns} FROM {table} WHERE rule = '{rule}' AND {where} ORDER BY ALL"
        ).fetchall()
        for table, where in (("ncu_rules", finding), ("kernel_rules_recomputed", "true"))
    )
    assert len(own) == count
    assert ours == own


def test_the_rules_that_are_not_recomputed_are_named(
    profiled: Session,
) -> None:
    """Their conditions need numbers that no metric of the report holds, or say little."""
    every = profiled.execute("SELECT DISTINCT rule FROM ncu_rules").fetchall()
    assert {rule for (rule,) in every} - RECOMPUTED.keys() == {
        "FPInstructions",
        "MemoryCacheAccessPattern",
        "MemoryL2Compression",
        "PCSamplingData",
        "PMSamplingData",
        "SOLFPRoofline",
    }


def test_rules_come_from_the_report_or_are_recomputed(ingested: Ingested, opened: Opened) -> None:
    ids = {name: ingested(f"ncu/visible.{name}") for name in ("ncu-rep", "raw.csv")}
    with opened(*(f"ncu/visible.{name}" for name in ids)) as con:
        found = {
            name: con.execute(
                "SELECT DISTINCT launch_id, rule, title, type, round(speedup_pct, 2) "
                "FROM kernel_rules WHERE report_id = ? AND rule IN "
                "('IssueSlotUtilization', 'SOLBottleneck', 'TheoreticalOccupancy') ORDER BY ALL",
                [report],
            ).fetchall()
            for name, report in ids.items()
        }
        sources = con.execute(
            "SELECT report_id, list(DISTINCT source) FROM kernel_rules GROUP BY 1"
        ).fetchall()
    assert dict(sources) == {ids["ncu-rep"]: ["ncu"], ids["raw.csv"]: ["recomputed"]}
    assert found["raw.csv"] == found["ncu-rep"]


def test_what_says_little_is_secondary(profiled: Session) -> None:
    rows = profiled.execute("""
        SELECT
            count(*) FILTER (s.max_sol_pct >= 80 AND NOT r.secondary),
            count(*) FILTER (r.title = 'Not Selected Stalls' AND NOT r.secondary),
            count(*) FILTER (r.rule = 'MemoryL2Compression' AND NOT r.secondary),
            count(*) FILTER (NOT r.secondary) > 100
        FROM kernel_rules AS r JOIN kernel_sol AS s USING (report_id, launch_id)
    """).fetchall()
    assert rows == [(0, 0, 0, True)]


SOL = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
WAIT = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
NOT_SELECTED = "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"
SELECTED = "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
PREDICATED = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SECTORS = "memory_l2_theoretical_sectors_global"
SECTORS_IDEAL = "memory_l2_theoretical_sectors_global_ideal"
SHARED = "memory_l1_wavefronts_shared"
SHARED_IDEAL = "memory_l1_wavefronts_shared_ideal"
FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed"
ACTIVE = "sm__cycles_active.avg"
ACTIVE_MAX = "sm__cycles_active.max"
ELAPSED = "sm__cycles_elapsed.avg"

#: Metrics -> the recomputed (rule, subject) among those of the first rule named; both sides of
#: each threshold.
POINTS: list[tuple[str, dict[str, float], set[str | None]]] = [
    ("IssueSlotUtilization", {ISSUE: 59.99}, {None}),
    ("IssueSlotUtilization", {ISSUE: 60.0}, set()),
    ("CPIStall", {ISSUE: 79.99, LATENCY: 10, WAIT: 3.01}, {"wait"}),
    ("CPIStall", {ISSUE: 79.99, LATENCY: 10, WAIT: 3.0}, set()),
    ("CPIStall", {ISSUE: 80.0, LATENCY: 10, WAIT: 9.0}, set()),
    ("CPIStall", {ISSUE: 50.0, LATENCY: 10, NOT_SELECTED: 4, SELECTED: 5}, {"not_selected"}),
    ("ThreadDivergence", {THREADS: 32, PREDICATED: 23.99}, {None}),
    ("ThreadDivergence", {THREADS: 23.99, PREDICATED: 30}, {None}),
    ("ThreadDivergence", {THREADS: 24, PREDICATED: 24}, set()),
    ("TheoreticalOccupancy", {THEORETICAL: 79.99}, {None}),
    ("TheoreticalOccupancy", {THEORETICAL: 80.0}, set()),
    ("AchievedOccupancy", {THEORETICAL: 90, ACHIEVED: 79.99}, {None}),
    ("AchievedOccupancy", {THEORETICAL: 90, ACHIEVED: 80.0}, set()),
    ("SharedMemoryConflicts", {CONFLICTS: 10, WAVEFRONTS: 100}, {"Load"}),
    ("SharedMemoryConflicts", {CONFLICTS: 9.99, WAVEFRONTS: 100}, set()),
    ("SharedMemoryConflicts", {CONFLICTS: 0, WAVEFRONTS: 0}, set()),
    ("UncoalescedGlobalAccess", {SECTORS: 11, SECTORS_IDEAL: 10}, {None}),
    ("UncoalescedGlobalAccess", {SECTORS: 10, SECTORS_IDEAL: 10}, set()),
    ("UncoalescedSharedAccess", {SHARED: 11, SHARED_IDEAL: 10}, {None}),
    ("UncoalescedSharedAccess", {SHARED: 10, SHARED_IDEAL: 10}, set()),
    ("HighPipeUtilization", {FMA: 19.99}, {"Low Utilization"}),
    ("HighPipeUtilization", {FMA: 20}, {"Balanced"}),
    ("HighPipeUtilization", {FMA: 59.99}, {"Balanced"}),
    ("HighPipeUtilization", {FMA: 60}, {"High Utilization"}),
    ("HighPipeUtilization", {FMA: 79.99}, {"High Utilization"}),
    ("HighPipeUtilization", {FMA: 80}, {"Very High Utilization"}),
    ("WorkloadImbalance", {ACTIVE: 90, ACTIVE_MAX: 100, ELAPSED: 179.9}, {"sm"}),
    ("WorkloadImbalance", {ACTIVE: 90, ACTIVE_MAX: 100, ELAPSED: 180.1}, set()),
    ("SOLBottleneck", {SOL: 10, MEMORY: 80}, {"High Throughput"}),
    ("SOLBottleneck", {SOL: 10}, set()),
]


def test_rules_on_both_sides_of_their_thresholds() -> None:
    metrics = {number: values for number, (_, values, _) in enumerate(POINTS)}
    db = Tiny(metrics=metrics)
    found: dict[tuple[int, str], set[str | None]] = {}
    for launch, rule, subject, title in db.rows(
        "SELECT launch_id, rule, subject, title FROM kernel_rules_recomputed"
    ):
        told = title if rule == "HighPipeUtilization" else subject
        found.setdefault((launch, rule), set()).add(told)
    for number, (rule, values, expected) in enumerate(POINTS):
        assert found.get((number, rule), set()) == expected, (rule, values)


def _grid(size: int, block: int = 256, blocks_per_sm: int = 1) -> dict[str, float]:
    """A launch on 132 SMs that each hold so many of its blocks."""
    limits = ("blocks", "registers", "shared_mem", "warps")
    return {
        "launch__grid_size": size,
        "launch__block_size": block,
        "launch__sm_count": 132,
        **{f"launch__occupancy_limit_{name}": blocks_per_sm for name in limits},
    }


GRIDS: list[tuple[dict[str, float], set[tuple[str, float | None]]]] = [
    (_grid(131), {("fewer blocks than SMs", 100 / 132)}),
    (_grid(132), {("fewer than two blocks per SM", None)}),
    (_grid(263), {("fewer than two blocks per SM", None), ("Tail Effect", 50.0)}),
    (_grid(264), set()),
    (_grid(132 * 4 + 1), {("Tail Effect", 20.0)}),
    (_grid(132 * 5 + 1), set()),
    (_grid(264 * 4 + 1, blocks_per_sm=2), {("Tail Effect", 20.0)}),
    (_grid(264, block=48), {("Block Size", 25.0)}),
    (_grid(264, block=64), set()),
]


def test_launch_configuration_on_both_sides() -> None:
    db = Tiny(metrics={number: values for number, (values, _) in enumerate(GRIDS)})
    found: dict[int, set[tuple[str, float | None]]] = {}
    for launch, subject, estimate in db.rows(
        "SELECT launch_id, subject, speedup_pct FROM kernel_rules_recomputed "
        "WHERE rule = 'LaunchConfiguration'"
    ):
        found.setdefault(launch, set()).add((subject, estimate))
    for number, (values, expected) in enumerate(GRIDS):
        assert found.get(number, set()) == expected, values


def test_estimates_are_capped_by_the_issue_slots() -> None:
    """A rule below IssueSlotUtilization cannot promise more than it."""
    stalled = {ISSUE: 30.0, SOL: 50.0, MEMORY: 55.0, LATENCY: 10, WAIT: 6}
    db = Tiny(metrics={0: stalled | {THEORETICAL: 25.0, ACHIEVED: 5.0}})
    assert db.rows(
        "SELECT rule, speedup_kind, speedup_pct FROM kernel_rules_recomputed "
        "WHERE speedup_pct IS NOT NULL ORDER BY rule"
    ) == [
        ("AchievedOccupancy", "global", 45.0),
        ("CPIStall", "global", 45.0),
        ("IssueSlotUtilization", "local", 45.0),
        ("TheoreticalOccupancy", "global", 45.0),
    ]


def test_a_report_without_a_rule_is_recomputed_and_one_with_rules_is_believed() -> None:
    db = Tiny(metrics={0: {SOL: 50.0, MEMORY: 10.0}, 1: {SOL: 50.0, MEMORY: 10.0}})
    db.add("ncu_rules", {"launch_id": 1, "rule": "SOLBottleneck", "title": "Own", "type": "OPT"})
    assert db.rows("SELECT launch_id, rule, title, source FROM kernel_rules ORDER BY ALL") == [
        (0, "SOLBottleneck", "Latency Issue", "recomputed"),
        (1, "SOLBottleneck", "Own", "ncu"),
    ]
