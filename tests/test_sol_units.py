"""SOLs of launches of which ncu collected the main constituents and not the SOLs."""

from __future__ import annotations

import pytest
from conftest import Opened, Tiny

from perfpipe.analysis.metrics import one_pass_units, sol_units
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import quote

SIDES = {side: [unit.metric for unit in units] for side, units in sol_units().items()}
UNITS = dict.fromkeys([*SIDES["compute"], *SIDES["memory"]], 1.0)
ONCE = dict.fromkeys([unit.metric for unit in one_pass_units()], 1.0)
DRAM, ISSUE = SIDES["memory"][0], SIDES["compute"][0]
#: Reports of H200, with 80 launches.
CAPTURES = ["ncu/ops", "ncu/visible", "real/llama_train", "real/gpt2_generate"]
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
    assert "SOL is the maximum of its main constituents" in of_units[3]
    assert f"largest main constituent of {MEMORY}" in of_units[4]
    assert of_sols[0] == "memory"
    assert "constituent" not in f"{of_sols[3]}{of_sols[4]}"


def test_of_one_pass_the_sols_are_at_least_so_large() -> None:
    """What is busy is known, and what it saves at most; that nothing is, if these are far from it."""
    some = {name: 1.0 for name in UNITS if name not in ONCE}
    metrics = {
        0: ONCE | {DRAM: 71.0},
        1: ONCE | {ISSUE: 71.0},
        2: ONCE | {DRAM: 41.0},
        3: {name: value for name, value in ONCE.items() if name != DRAM} | some,
        4: UNITS | {DRAM: 41.0},
        5: ONCE | {DRAM: 39.0},
    }
    db = Tiny(metrics=metrics)
    assert db.rows(
        "SELECT launch_id, memory_sol_pct, of_units, one_pass FROM kernel_sol ORDER BY ALL"
    ) == [
        (0, 71.0, True, True),
        (1, 1.0, True, True),
        (2, 41.0, True, True),
        (3, None, False, False),
        (4, 41.0, True, False),
        (5, 39.0, True, True),
    ]
    verdicts = db.rows(
        "SELECT bound, confidence, explanation FROM kernel_bottleneck ORDER BY launch_id"
    )
    bounds = [(bound, confidence) for bound, confidence, _ in verdicts]
    assert bounds[:3] == [("memory", "medium"), ("compute", "low"), ("unknown", None)]
    assert [bound for bound, _ in bounds[3:]] == ["unknown", "latency", "latency"]
    assert bounds[5][1] == "low"
    assert ["metrics of one pass; the true SOL may be higher" in text for *_, text in verdicts] == [
        True, True, True, False, False, True,
    ]  # fmt: skip
    assert "compute and memory SOL were not collected" in verdicts[3][2]


@pytest.mark.parametrize("capture", CAPTURES)
def test_one_pass_holds_nearly_every_large_sol(opened: Opened, capture: str) -> None:
    """The memory SOL always, the compute SOL but for one launch: 80 launches on H200."""
    names = ", ".join(map(quote, ONCE))
    with opened(f"{capture}.ncu-rep") as session:
        rows = session.execute(
            f"""
            SELECT side, max(pct), max(pct) FILTER (metric IN ({names})) FROM kernel_sol_breakdown
            GROUP BY report_id, launch_id, side
            """
        ).fetchall()
    assert rows
    for side, sol, once in rows:
        if side == "memory":
            assert once == pytest.approx(sol, abs=0.01) or (sol < 10 and sol - once < 0.5)
    missed = [once for side, sol, once in rows if side == "compute" and sol >= 60 > (once or 0)]
    assert len(missed) <= 1
    assert all(once > thresholds()["sol.one_pass_pct"] for once in missed)


@pytest.mark.parametrize("capture", CAPTURES)
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
