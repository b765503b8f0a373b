"""NVIDIA's rules beside perfpipe's verdicts: each has its row, and what differs its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Opened, Tiny

from perfpipe.analysis.session import Session

SOL = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
WAVES = "launch__waves_per_multiprocessor"


@pytest.fixture(scope="module")
def profiled(opened: Opened) -> Iterator[Session]:
    with opened(*(f"ncu/{name}.ncu-rep" for name in ("visible", "ops", "block"))) as con:
        yield con


def test_each_result_has_a_row_that_agrees_or_says_why_not(profiled: Session) -> None:
    results = "SELECT report_id, launch_id, rule, title, speedup_pct FROM ncu_rules"
    sql = f"{results} WHERE type = 'OPT' AND coalesce(title, message) IS NOT NULL ORDER BY ALL"
    expected = profiled.execute(sql).fetchall()
    compared = profiled.execute(
        "SELECT report_id, launch_id, rule, title, nvidia_pct, agrees, reason, explanation "
        "FROM kernel_rule_comparison ORDER BY ALL"
    ).fetchall()
    assert len(expected) > 500
    assert [row[:5] for row in compared] == expected
    for *_, agrees, reason, explanation in compared:
        assert agrees == (reason == "same_limiter")
        assert reason != "not_named"
        assert explanation


def test_reasons_hold_by_the_numbers(profiled: Session) -> None:
    """What agrees is within the bounds; what does not is beyond the one that the reason names."""
    rows = profiled.execute(
        """
        SELECT reason, nvidia_pct, c.headroom_pct, c.gain_pct, s.max_sol_pct, s.duration_ns, c.rule
        FROM kernel_rule_comparison AS c JOIN kernel_sol AS s USING (report_id, launch_id)
        WHERE nvidia_pct IS NOT NULL
        """
    ).fetchall()
    for reason, nvidia, headroom, gain, sol, duration, rule in rows:
        if reason in ("local_unit", "beyond_headroom"):
            assert nvidia > headroom + 1
        elif reason == "beyond_bound":
            assert nvidia > gain + 1
        elif reason == "negligible":
            assert nvidia < 1
        elif reason == "too_small":
            assert duration < 5000
        elif reason == "busy_unit":
            assert sol >= 80
            assert nvidia <= headroom + 1
        elif reason == "within_headroom":
            assert sol < 80
            assert nvidia <= headroom + 1
        elif reason == "same_limiter" and gain is not None:
            assert nvidia <= gain + 1, rule


@pytest.mark.parametrize(
    ("kernel", "rule", "title", "reason"),
    [
        ("bank_conflict", "SharedMemoryConflicts", "Shared Load Bank Conflicts", "beyond_bound"),
        ("bank_conflict", "LaunchConfiguration", "Tail Effect", "beyond_headroom"),
        ("partial_wave", "LaunchConfiguration", "Tail Effect", "same_limiter"),
        ("partial_wave", "TheoreticalOccupancy", None, "tail_first"),
        ("divergent", "ThreadDivergence", None, "same_limiter"),
        ("sfu_heavy", "ThreadDivergence", None, "below_threshold"),
        ("strided_read", "UncoalescedGlobalAccess", None, "same_limiter"),
        ("spill_local", "MemoryCacheAccessPattern", "L2 Local Load Access Pattern", "same_limiter"),
        ("spill_local", "UncoalescedGlobalAccess", None, "below_threshold"),
        (
            "spill_local",
            "MemoryCacheAccessPattern",
            "L1TEX Global Load Access Pattern",
            "below_threshold",
        ),
        ("atomic_hot", "CPIStall", "Lg Throttle Stalls", "same_limiter"),
        ("pointer_chase", "CPIStall", "Long Scoreboard Stalls", "same_limiter"),
        ("dram_copy", "HighPipeUtilization", "Low Utilization", "local_unit"),
        ("dram_copy", "MemoryL2Compression", "Low Compression Rate", "not_compressible"),
        ("int_alu", "CPIStall", "Not Selected Stalls", "no_stall"),
        ("tiny_grid", "LaunchConfiguration", "Small Grid", "same_limiter"),
    ],
)
def test_kernels_built_to_be_limited(
    profiled: Session, kernel: str, rule: str, title: str | None, reason: str
) -> None:
    sql = """
        SELECT reason FROM kernel_rule_comparison
        WHERE kernel_name = ? AND rule = ? AND title IS NOT DISTINCT FROM ?
    """
    assert profiled.execute(sql, [kernel, rule, title]).fetchall() == [(reason,)]


Row = dict[str, Any]


def _ruled(*launches: tuple[dict[str, float], Row]) -> list[tuple[Any, ...]]:
    """How a result of NVIDIA's compares for each launch, given its metrics and the result.

    They share a database: planning the views takes longer than all else here.
    """
    db = Tiny(
        [{"launch_id": number, "duration_ns": 1e6} for number in range(len(launches))],
        {number: {WAVES: 10.0, **metrics} for number, (metrics, _) in enumerate(launches)},
    )
    usual = {"rule": "CPIStall", "type": "OPT", "speedup_kind": "global", "result_index": 0}
    for number, (_, result) in enumerate(launches):
        db.add("ncu_rules", {"launch_id": number, "message": "m", **usual, **result})
    found = db.rows(
        "SELECT reason, agrees, explanation FROM kernel_rule_comparison ORDER BY launch_id"
    )
    assert len(found) == len(launches)
    return found


BUSY = {SOL: 20.0, MEMORY: 92.0, DRAM: 92.0}


def test_a_rule_that_perfpipe_does_not_know_is_called_that() -> None:
    ((reason, agrees, explanation),) = _ruled((BUSY, {"rule": "NewRule", "speedup_pct": 5.0}))
    assert (reason, agrees) == ("not_named", False)
    assert explanation == "perfpipe has no corresponding finding; the limiter is memory (dram)"


def test_an_estimate_is_held_against_headroom() -> None:
    stall = {"title": "Long Scoreboard Stalls"}
    free = {SOL: 20.0, MEMORY: 70.0, DRAM: 70.0}
    busy, beyond, local, negligible, within = _ruled(
        (BUSY, {"speedup_pct": 7.0, **stall}),
        (BUSY, {"speedup_pct": 40.0, **stall}),
        (BUSY, {"speedup_pct": 40.0, "speedup_kind": "local", **stall}),
        (BUSY, {"speedup_pct": 0.5, **stall}),
        (free, {"speedup_pct": 25.0, **stall}),
    )
    assert busy[0] == "busy_unit"
    reason, _, explanation = beyond
    assert reason == "beyond_headroom"
    assert explanation == "the same work at 100 % SOL would save at most 8 % (SOL is 92 %)"
    assert local[0] == "local_unit"
    assert negligible[0] == "negligible"
    assert within[0] == "within_headroom"


def test_without_an_estimate_the_class_decides() -> None:
    rule = {"rule": "SOLBottleneck", "speedup_pct": None}
    throughput, latency = _ruled(
        (BUSY, {**rule, "title": "High Memory Throughput"}),
        (BUSY, {**rule, "title": "Latency Issue"}),
    )
    reason, agrees, _ = throughput
    assert (reason, agrees) == ("same_limiter", True)
    reason, agrees, _ = latency
    assert (reason, agrees) == ("verdict", False)
