"""The views that hold what a report says of kernels and timelines, and the macros they share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Opened, Tiny

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.occupancy import calculator
from perfpipe.analysis.session import Session
from perfpipe.store import Store

Ingested = Callable[[str], str]

SOL = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
SQL = sorted((ROOT / "analysis" / "sql").rglob("*.sql"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("headroom(30.0)", 70.0),
        ("headroom(104.0)", 0.0),
        ("headroom(NULL::DOUBLE)", None),
        ("pct_of_peak(5.0, 20.0)", 25.0),
        ("pct_of_peak(5.0, 0.0)", None),
        ("pct_of_peak(NULL::DOUBLE, 20.0)", None),
        ("intensity_band(4.9)", "memory"),
        ("intensity_band(5.0)", "mixed"),
        ("intensity_band(20.0)", "mixed"),
        ("intensity_band(20.1)", "compute"),
        ("intensity_band(NULL::DOUBLE)", None),
    ],
)
def test_macros(expression: str, expected: object) -> None:
    with calculator() as con:
        assert con.execute(f"SELECT {expression}").fetchall() == [(expected,)]


def test_a_rule_is_written_once() -> None:
    """Headroom, bands and conditions of the knowledge base have one place."""
    for path in SQL:
        text = path.read_text()
        assert not re.search(r"100 - least|1 - \w*\.?max_sol_pct", text), path
        assert ("'intensity.memory'" in text) == (path.name == "macros.sql"), path
        assert not re.search(r"technique\s*(=|!=|<>|IN)\s*[('][a-z_']", text), path
        assert "from_json(" not in text, path


def test_classes_weight_by_duration() -> None:
    """Two launches of a kernel with one class, one of another, one whose SOL is unknown."""
    one = {"kernel_name": "a", "kernel_demangled": "a()"}
    db = Tiny(
        [
            {"launch_id": 0, "duration_ns": 1e6, **one},
            {"launch_id": 1, "duration_ns": 3e6, **one},
            {"launch_id": 2, "duration_ns": 4e6, "kernel_name": "b"},
            {"launch_id": 3, "duration_ns": 9e6, "kernel_name": "c"},
        ],
        {
            0: {SOL: 10.0, MEMORY: 90.0, DRAM: 90.0},
            1: {SOL: 30.0, MEMORY: 70.0, DRAM: 70.0},
            2: {SOL: 103.0, MEMORY: 10.0},
        },
    )
    share, headroom = pytest.approx(100 * 4 / 17), pytest.approx((10 * 1 + 30 * 3) / 17)
    assert db.rows(
        "SELECT rank, kernel_name, launches, time_ns, share_pct, compute_sol_pct, memory_sol_pct, "
        "sol_pct, near_limit, headroom_pct, share_of, reports FROM kernel_classes "
        "WHERE bound = 'memory'"
    ) == [
        (1, "a", 2, 4e6, share, 25.0, 75.0, 75.0, False, headroom, "profile", ["r"]),
    ]
    others = "SELECT kernel_name, near_limit, headroom_pct FROM kernel_classes WHERE rank = 2"
    assert db.con.execute(others).fetchall() == [("b", True, 0.0)]


def test_unknown_headroom_is_no_zero() -> None:
    """A launch whose compute SOL was not collected."""
    db = Tiny([{"launch_id": 0, "duration_ns": 1e6}], {0: {MEMORY: 60.0}})
    sql = "SELECT max_sol_pct, headroom_ns FROM kernel_sol"
    assert db.rows(sql) == [(None, None)]


def _rows(session: Session, sql: str) -> list[dict[str, Any]]:
    found = session.execute(sql)
    names = [name for name, *_ in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def test_a_report_prints_what_the_views_hold(opened: Opened, pages: Callable[..., Path]) -> None:
    """One step of a model, profiled and as a timeline."""
    step = ("ncu/block.ncu-rep", "nsys/gpumetrics.sqlite")
    report = json.loads((pages(*step) / "report.json").read_text())
    assert report["title"]
    with opened(*step) as con:
        found = _rows(con, "FROM findings ORDER BY rank")
        names = _rows(con, "FROM kernel_names")
        tried = _rows(con, "FROM recommendations ORDER BY rank")
    assert report["findings_total"] == len(found) > 15
    assert {row["subject"] for row in found} == {"timeline", "kernel"}
    for told, row in zip(report["findings"], found, strict=False):
        assert told["bound_pct"] == row["bound_pct"]
        assert (told["bound"] == "") == (row["bound_pct"] is None)
        assert told["confidence"] == row["confidence"]
        assert told["kernel"] == (row["short_name"] or "")
        assert told["source"] == {"view": "findings", "reports": row["reports"]}
        advice = techniques()[row["technique"]].technique if row["technique"] else ""
        assert told["advice"] == advice
    tables = {table["title"]: table for s in report["sections"] for table in s["tables"]}
    short = {row["demangled"]: row["short_name"] for row in names}
    for title in ("Kernels by category and library", "Profiled kernels"):
        shown, full = (column["name"] for column in tables[title]["columns"][:2])
        assert (shown, full) in (("kernel", "name"), ("kernel_name", "kernel_demangled"))
        assert all(kernel == short[name] for kernel, name, *_ in tables[title]["rows"] if name)
    kinds = tables["Kernel time by category"]
    share = [column["name"] for column in kinds["columns"]].index("share_pct")
    assert sum(row[share] for row in kinds["rows"]) == pytest.approx(100)
    assert "Kernels that match no category rule take 0.0 % of a GPU's kernel time." in kinds["doc"]
    assert [row["rank"] for row in tried] == list(range(1, len(tried) + 1))
    printed = report["recommendations"]
    for told, row in zip(printed, tried, strict=False):
        assert told["technique"] == techniques()[row["technique"]].technique
        said = "no known bound" if row["gain_pct"] is None else f"up to {row['gain_pct']:.1f} %"
        assert told["gain"].startswith(said)
        assert f"{row['share_pct']:.1f} % of" in told["reason"]
    assert len(printed) == len([row for row in tried if row["subject"] == "timeline"]) + min(
        10, len([row for row in tried if row["subject"] == "kernel"])
    )


def test_ranks_that_start_apart_are_not_out_of_balance(captures: Store, ingested: Ingested) -> None:
    """Nearly all waiting is in the first collective, and its share is of communication."""
    ids = [ingested(f"nsys/ddp_comm_rank{rank}.sqlite") for rank in (0, 1)]
    with Session.open(captures, ids) as con:
        # The steady steps come behind it.
        claims = con.execute("SELECT claim FROM findings WHERE bound = 'communication'").fetchall()
        waits = con.execute("SELECT start_ns, window_pct FROM rank_skew").fetchall()
    assert claims == [("communication",)] * 2
    assert all(start == 0 and share < 10 for start, share in waits)
    with Session.open(captures, ids, window="whole") as con:
        skew = con.execute(
            "SELECT rank, waiting_pct, window_pct, 100.0 * start_ns / waiting_ns FROM rank_skew"
        ).fetchall()
        found = con.execute(
            "SELECT device, claim, waiting_pct, start_pct, technique FROM findings "
            "WHERE bound = 'communication' ORDER BY device"
        ).fetchall()
        tried = con.execute("SELECT DISTINCT technique FROM timeline_findings").fetchall()
    assert found[0][1] == "start_skew"
    assert found[0][2] == skew[0][1] > skew[0][2] > 10
    assert found[0][3] == skew[0][3] > 90
    assert found[0][4] == "start_together"
    assert found[1][1] == "communication"
    assert ("balance_ranks",) not in tried


#: What delays a rank.
DELAYS = ("compute", "host", "launch_overhead")


@pytest.fixture(scope="module")
def late() -> Tiny:
    """Two ranks of a job for each delay: to plan the views takes longer than all else.

    Rank 1 arrives late in every all-reduce but the first.
    """
    db = Tiny()
    for why in DELAYS:
        for rank in (0, 1):
            report = {"report_id": f"{why}{rank}", "pid": 1, "device": 0}
            db.add("reports", {"report_id": f"{why}{rank}", "kind": "nsys", "directory": why,
                               "source_name": f"rank{rank}", "started_ns": 0})  # fmt: skip
            steps = [_step(20_000_000 * step, why if rank and step else "") for step in range(6)]
            for number, op in enumerate(op for step in steps for op in step):
                call = {"tid": 1, "correlation_id": number, "call_id": number, "stream": 7}
                db.add("launches", report | call | {"kind": "kernel", "op_id": number} | op)
    db.session.use("timeline_findings", "rank_skew", "findings")
    return db


@pytest.mark.parametrize("why", DELAYS)
def test_advice_for_a_rank_that_others_wait_for(late: Tiny, why: str) -> None:
    """What delays it differs."""
    first = {"report": f"{why}0"}
    rows = late.con.execute(
        "SELECT f.report_id, f.technique, f.for_rank FROM timeline_findings AS f "
        "WHERE f.bound = 'communication' AND f.report_id = $report ORDER BY f.rank LIMIT 1",
        first,
    ).fetchall()
    ((gain, share, window),) = late.con.execute(
        "SELECT gain_pct, share_pct, window_pct FROM timeline_findings "
        "JOIN rank_skew USING (report_id, device) "
        "WHERE bound = 'communication' AND report_id = $report "
        "ORDER BY timeline_findings.rank LIMIT 1",
        first,
    ).fetchall()
    assert gain == pytest.approx(window, abs=0.1)
    assert gain < 0.55 * share, "the transfers stay: half of each collective or more"
    expected = {"compute": "balance_ranks", "host": "host_alone", "launch_overhead": "cuda_graphs"}
    assert rows == [(f"{why}0", expected[why], None if why == "compute" else 1)]
    ((claim, last, cause),) = late.con.execute(
        "SELECT claim, last_rank, last_cause FROM findings "
        "WHERE bound = 'communication' AND reports = [$report]",
        first,
    ).fetchall()
    assert (claim, last, cause) == ("ranks_wait", 1, why)


def _step(at: int, delay: str) -> Iterator[dict[str, Any]]:
    """Yield a kernel and an all-reduce that ends 11 ms after the step began; a rank may be late."""
    late = 5_000_000 if delay else 0
    compute = 1_000_000 + (late if delay == "compute" else 0)
    yield {"name": "k", "start_ns": at, "end_ns": at + compute,
           "api_start_ns": at - 9000, "api_end_ns": at - 4000}  # fmt: skip
    begin = at + 1_000_000 + late
    call = {"host": begin - 9000, "launch_overhead": begin - late + 9000}.get(delay, at - 1000)
    returned = begin - 4000 if delay in ("host", "launch_overhead") else call + 500
    yield {"name": "ncclDevKernel_AllReduce", "start_ns": begin, "end_ns": at + 11_000_000,
           "api_start_ns": call, "api_end_ns": returned}  # fmt: skip


def test_views_do_not_depend_on_the_number_of_threads(captures: Store, ingested: Ingested) -> None:
    ids = [ingested(f"ncu/{name}.ncu-rep") for name in ("visible", "ops")]
    views = ("kernel_classes", "findings", "recommendations")
    answers = []
    for threads in (1, 4):
        with Session.open(captures, ids) as con:
            con.execute(f"SET threads = {threads}")
            answers.append([con.execute(f"FROM {view}").fetchall() for view in views])
    assert answers[0] == answers[1]
    assert all(answers[0])


def test_tiles_of_closed_libraries_are_nobodys_to_tune(opened: Opened) -> None:
    tiles = ("warp_tile", "larger_tiles", "shared_tiles", "triton_config")
    with opened("ncu/block.ncu-rep") as con:
        rows = con.execute(
            f"""
            SELECT
                is_closed(kernel_library(n.kernel_name, n.kernel_demangled)),
                technique IN {tiles},
                count(*)
            FROM kernel_findings JOIN ncu_launches AS n USING (report_id, launch_id)
            GROUP BY ALL
            """
        ).fetchall()
    found = {(closed, tile): count for closed, tile, count in rows}
    assert found[True, False] > 20
    assert (True, True) not in found
