"""SOLs of launches of which ncu collected the main constituents and not the SOLs."""

from __future__ import annotations

import pytest
from conftest import Opened, Tiny

from analysis.metrics import sol_units
from perfpipe.database import quote

SIDES = {side: [unit.metric for unit in units] for side, units in sol_units().items()}
UNITS = dict.fromkeys([*SIDES["compute"], *SIDES["memory"]], 1.0)
DRAM, ISSUE = SIDES["memory"][0], SIDES["compute"][0]
SOL = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"


def test_the_largest_constituent_stands_for_the_sol_where_all_were_collected() -> None:
    values = UNITS | {DRAM: 71.0, ISSUE: 12.0}
    metrics = {
        0: values,
        1: {name: value for name, value in values.items() if name != DRAM},
        2: values | {SOL: 30.0, MEMORY: 80.0},
        3: values,
    }
    db = Tiny([{"launch_id": 3, "cc": "8.0"}], metrics)
    assert db.rows(
        "SELECT launch_id, compute_sol_pct, memory_sol_pct, max_sol_pct, of_units FROM kernel_sol "
        "ORDER BY ALL"
    ) == [
        (0, 12.0, 71.0, 71.0, True),
        (1, None, None, None, False),
        (2, 30.0, 80.0, 80.0, False),
        (3, None, None, None, False),
    ]
    assert db.rows(
        "SELECT launch_id, side, metric, part, pct FROM kernel_sol_breakdown "
        "WHERE rank = 1 ORDER BY side"
    ) == [(0, "compute", ISSUE, "issue", 12.0), (0, "memory", DRAM, "dram", 71.0)]


def test_a_verdict_on_constituents_says_so() -> None:
    db = Tiny(metrics={0: UNITS | {DRAM: 71.0}, 1: {SOL: 1.0, MEMORY: 71.0}})
    (of_units, of_sols) = db.rows(
        "SELECT bound, subclass, confidence, explanation, evidence FROM kernel_bottleneck "
        "ORDER BY launch_id"
    )
    assert of_units[:3] == ("memory", "dram", "medium")
    assert "SOL is the largest of its main constituents" in of_units[3]
    assert f"largest main constituent of {MEMORY}" in of_units[4]
    assert of_sols[0] == "memory"
    assert "constituent" not in f"{of_sols[3]}{of_sols[4]}"


@pytest.mark.parametrize(
    "capture", ["ncu/ops", "ncu/visible", "real/llama_train", "real/gpt2_generate"]
)
def test_they_are_the_sols_of_real_launches(opened: Opened, capture: str) -> None:
    """Exactly where a SOL is above 50 %, and at most 5 points less elsewhere: reports of H200."""
    with opened(f"{capture}.ncu-rep") as session:
        for side, metrics in SIDES.items():
            listed = ", ".join(map(quote, metrics))
            rows = session.execute(
                f"""
                SELECT max(pct), max(pct) FILTER (metric IN ({listed}))
                FROM kernel_sol_breakdown WHERE side = '{side}'
                GROUP BY report_id, launch_id
                """
            ).fetchall()
            assert rows
            for sol, of_units in rows:
                assert sol - of_units == pytest.approx(0, abs=1e-9) or (
                    sol <= 50 and sol - of_units < 5
                )
