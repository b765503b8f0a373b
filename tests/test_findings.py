"""Findings: from what the counters show to techniques, each with a bound on the gain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Opened, Tiny
from test_bottleneck import SUBCLASSES

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.session import Session
from perfpipe.analysis.words import finding_files
from perfpipe.store import Store

Ingested = Callable[[str], str]

CAUSES = {
    "-", "*", "uncoalesced", "bank_conflict", "atomics", "local_spill", "small_grid",
    "partial_wave", "imbalance", "divergence", "registers", "shared_mem",
    "local_memory", "narrow_blocks", "fp64_for_floats",
}  # fmt: skip
FEATURES = {
    "closed", "open", "triton", "cuda", "product", "convolution", "nhwc",
    "no_nhwc", "optimizer", "fused", "framework",
    "tensor", "no_tensor", "mma_sync", "wide", "half", "shared", "elementwise", "neighbor", "after_tensor",
    "uncoalesced", "conflicts", "no_shared", "loads_again",
    "spills", "atomics", "divergent", "registers_limit", "shared_limit", "tail",
    "local", "blocks_limit", "narrow_blocks", "fp64_for_floats",
    "graphs_save", "compiled", "eager", "native", "graphs", "ranks_wait", "slow_launches", "input_data",
    "training", "no_training", "requests", "no_requests",
    "has_workers", "no_workers", "pinned", "pageable",
    "starts_processes", "start_skew", "builds_again", "builds_graphs", "builds_once",
    "transfers", "bf16", "fp16",
    "steps", "no_steps", "recurring_copies", "host_copies", "device_copies", "small_copies", "clears",
}  # fmt: skip
#: Categories of timeline_bottleneck, which have no subclass.
TIMELINE: dict[str, set[str | None]] = {
    **{
        bound: set()
        for bound in (
            "communication",
            "transfer",
            "launch_overhead",
            "sync",
            "loading",
            "kernel_gap",
            "device_wait",
            "building",
            "host",
            "readback",
        )
    },
    "single_precision": set(),
    "process_starts": set(),
    "waiting_for_requests": set(),
    "engine_host": set(),
    "engine_flushes": set(),
    "batch_limit": set(),
    "host_loop": {"small"},
    "few_blocks": set(),
    "unified_memory": {"on_demand", "round_trip", "prefetched", "evicted"},
    "startup": {"autotuning", "compilation", "communicator", "allocation"},
    "operator": {
        "cross_entropy",
        "batch_norm",
        "fixed_batch_norm",
        "normalization",
        "softmax",
        "pointwise",
        "layout",
        "optimizer",
    },
}
#: What a technique on kernels may keep.
FLOORS = {
    "work", "instructions", "memory", "dram", "half_dram", "half_memory", "l2", "returns", "l1",
    "unconflicted", "flops", "tensor", "narrower", "bytes", "chain", "issue", "balanced",
    "whole_waves", "nothing",
}  # fmt: skip
TIMELINE_FLOORS = {
    "busy",
    "synced",
    "unsynced",
    "others",
    "elsewhere",
    "around",
    "other_launches",
    "waiting",
    "start",
    "hidden",
    "link",
}
RULES = {
    "CPIStall", "LaunchConfiguration", "MemoryCacheAccessPattern", "SharedMemoryConflicts",
    "TheoreticalOccupancy", "ThreadDivergence", "UncoalescedGlobalAccess", "WorkloadImbalance",
}  # fmt: skip


@pytest.mark.parametrize("key", techniques())
def test_a_technique_is_whole(key: str) -> None:
    item = techniques()[key]
    assert item.classes
    known = TIMELINE | {claim: set() for claim in finding_files().keys() - TIMELINE.keys()}
    for bound, subclass, cause in item.classes:
        assert subclass in SUBCLASSES.get(bound, known.get(bound, set())) | {"*"}
        assert bound in SUBCLASSES | known
        assert cause in CAUSES
    assert set(item.features) <= FEATURES
    assert item.saves in ("", "fusion_bytes")
    assert item.difficulty in ("low", "medium", "high")
    assert item.link.startswith("https://docs.nvidia.com/")
    on_timelines = {bound for bound, _, _ in item.classes} <= set(known)
    assert set(item.keeps) <= (TIMELINE_FLOORS if on_timelines else FLOORS)
    assert len(item.keeps) <= 1 or not on_timelines
    assert item.rule in RULES | {""}
    for text in (item.technique, item.detail, item.check_first):
        assert len(text) > 10
    assert item.check_first.endswith(".") and item.detail.endswith(".")
    assert "!" not in item.detail and " will " not in item.detail, "a bound, never a promise"


def test_every_class_has_a_technique() -> None:
    known = {(b, s) for item in techniques().values() for b, s, _ in item.classes}
    for bound, subclasses in SUBCLASSES.items():
        if bound != "unknown":
            for subclass in subclasses - {None}:
                assert {(bound, subclass), (bound, "*")} & known, (bound, subclass)
    assert not {key for key in known if key[0] == "unknown"}, "no advice without a class"


#: Label of a kernel -> the technique that belongs to what limits it.
ADVICE = {
    "memory.uncoalesced": "coalesce",
    "memory.shared_bank_conflict": "swizzle",
    "memory.local_spill": "spills",
    "memory.atomics": "privatise_atomics",
    "compute.divergence": "divergence",
    "compute.fp64": "narrower_types",
    "compute.xu": "fast_math",
    "compute.alu": "integer_math",
    "launch.tiny": "graphs_batching",
    "latency.partial_wave": "tail_removal",
    "latency.dependency": "more_ilp",
    "latency.memory": "bytes_in_flight",
    "memory.dram": "fewer_bytes",
}


def test_what_limits_a_kernel_names_its_technique(opened: Opened) -> None:
    sql = """
        SELECT
            nvtx_path,
            list(technique ORDER BY rank),
            list((f.precision, removes = cause AND NOT secondary, gain_pct) ORDER BY f.rank)
        FROM kernel_findings AS f
        JOIN ncu_launches USING (report_id, launch_id)
        JOIN (SELECT DISTINCT technique, removes FROM _techniques) USING (technique)
        GROUP BY 1
    """
    with opened("ncu/visible.ncu-rep") as con:
        rows = con.execute(sql).fetchall()
    found = {label: names for label, names, _ in rows}
    for label, technique in ADVICE.items():
        assert technique in found[label], label
    for label, _, ranked in rows:
        # What removes the cause first, what makes results less exact last; else by the bound.
        keys = [
            (precision, not removes, gain is None, -(gain or 0))
            for precision, removes, gain in ranked
        ]
        assert keys == sorted(keys), label
        assert all(0 <= gain <= 100 for *_, gain in ranked if gain is not None), label


def test_bounds_are_those_of_their_floors(captures: Store, ingested: Ingested) -> None:
    sql = """
        SELECT
            count(*),
            count(*) FILTER (floor = 'work' AND abs(gain_pct - (100 - max_sol_pct)) < 1e-9),
            count(nvidia_pct),
            count(*) FILTER (EXISTS (
                SELECT 1 FROM ncu_rules AS r
                WHERE r.report_id = f.report_id AND r.launch_id = f.launch_id
                    AND nvidia_rule = r.rule AND r.speedup_pct = nvidia_pct
            )),
            count(*) FILTER (
                abs(priority - time_share_pct * gain_pct / 100) > 1e-9
                OR (gain_pct IS NULL) != (floor IS NULL)
                OR abs(gain_pct + floor_pct - 100) > 1e-9
                OR (floor = 'work' AND gain_pct > 100 - max_sol_pct)
            )
        FROM kernel_findings AS f JOIN kernel_sol USING (report_id, launch_id)
    """
    ids = [ingested(f"ncu/{name}.ncu-rep") for name in ("visible", "ops", "block")]
    with Session.open(captures, ids) as con:
        every, headroom, by_rule, equal, wrong = con.execute(sql).fetchall()[0]
        shares = con.execute(
            "SELECT sum(share) FROM (SELECT DISTINCT report_id, launch_id, time_share_pct AS share "
            "FROM kernel_findings)"
        ).fetchone()
    assert every > 250
    assert headroom > 5
    assert by_rule == equal > 10
    assert wrong == 0
    assert shares is not None and shares[0] <= 300.001


def test_an_epilogue_behind_a_product_is_told_to_be_fused(opened: Opened) -> None:
    """leaky_relu of a 4096 x 4096 FP16 product: written once and read once for nothing."""
    sql = (
        "SELECT nvtx_path, saved_bytes FROM kernel_findings "
        "JOIN ncu_launches USING (report_id, launch_id) WHERE technique = 'epilogue_fusion'"
    )
    with opened("ncu/ops.ncu-rep") as con:
        assert con.execute(sql).fetchall() == [("unfused_matmul_leaky_relu", 4.0 * 4096 * 4096)]


SOL = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
BYTES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"


def test_findings_of_a_launch() -> None:
    db = Tiny(
        [
            {"launch_id": 0, "duration_ns": 3e6},
            {"launch_id": 1, "duration_ns": 1e6},
            {"launch_id": 2},
        ],
        {0: {SOL: 10.0, MEMORY: 60.0, DRAM: 60.0, BYTES: 4.0}, 1: {SOL: 85.0, MEMORY: 10.0}},
    )
    assert db.rows(
        "SELECT launch_id, technique, rank, gain_pct, floor, time_share_pct, priority, "
        "secondary FROM kernel_findings ORDER BY launch_id, rank"
    ) == [(0, "coalesce", 1, None, None, 75.0, None, None)]


def test_features_of_a_launch() -> None:
    base = {
        "launch__shared_mem_per_block_static": 0.0,
        "launch__shared_mem_per_block_dynamic": 0.0,
        "sm__ops_path_tensor_src_fp16.sum": 0.0,
        "l1tex__m_xbar2l1tex_read_bytes.sum": 100.0,
        "l1tex__m_l1tex2xbar_write_bytes.sum": 50.0,
    }
    product = base | {
        "sm__ops_path_tensor_src_fp16.sum": 8.0,
        "launch__shared_mem_per_block_dynamic": 1.0,
    }
    ranges = ({"nvtx_path": "a"}, {"nvtx_path": "a"}, {"nvtx_path": "b"})
    db = Tiny(
        [{"launch_id": n, "stream": 7, **extra} for n, extra in enumerate(ranges)],
        {0: product, 1: base, 2: base},
    )
    assert db.rows(
        "SELECT features, tensor_flop, fusion_bytes FROM kernel_features ORDER BY launch_id"
    ) == [
        (["open", "cuda", "tensor", "half", "shared", "neighbor"], 8.0, None),
        (
            ["open", "cuda", "no_tensor", "no_shared", "elementwise", "neighbor", "after_tensor"],
            0,
            150,
        ),
        (["open", "cuda", "no_tensor", "no_shared", "elementwise"], 0.0, None),
    ]


def test_a_kernel_near_its_limit_is_bound_by_a_named_limiter(pages: Callable[..., Path]) -> None:
    document = json.loads((pages("ncu/visible.ncu-rep") / "report.json").read_text())
    claims = [finding["claim"] for finding in document["findings"]]
    assert "dram_copy runs close to its speed of light, bound by DRAM" in claims
    assert "fp32_fma runs close to its speed of light, bound by the FMA pipe" in claims


def test_recommendations_are_ranked_by_what_they_could_save(pages: Callable[..., Path]) -> None:
    document = json.loads((pages("ncu/visible.ncu-rep") / "report.json").read_text())
    items = document["recommendations"]
    shares = [
        float(re.findall(r"^up to ([\d.]+) %", item["gain"] + "; " + item["reason"])[0])
        if item["gain"].startswith("up to")
        else float(re.findall(r"([\d.]+) % of profiled time", item["reason"])[0])
        for item in items
    ]
    primary = [b for b, item in zip(shares, items, strict=True) if "secondary" not in item["gain"]]
    assert primary == sorted(primary, reverse=True)
    assert [item["priority"] for item in items] == list(range(1, len(items) + 1))
    assert any("swizzle" in item["technique"].lower() for item in items)
    for item in items:
        assert item["detail"] and item["check_first"] and item["link"]
