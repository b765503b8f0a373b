"""The metric catalogue: aliases by compute capability, families, and what is missing."""

from __future__ import annotations

from collections import Counter

import pytest
from conftest import Tiny

from perfpipe.analysis.metrics import Alias, metrics, parse_capabilities
from perfpipe.analysis.views import views

KINDS = {"counter", "rate", "ratio", "throughput", "occupancy", "attribute"}


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        ("m.sum", Alias("m.sum", 0, 999)),
        ("m.sum@9.0", Alias("m.sum", 90, 90)),
        ("m.sum@7.5-8.9", Alias("m.sum", 75, 89)),
        ("m.sum@9.0-", Alias("m.sum", 90, 999)),
        ("m.sum@-7.2", Alias("m.sum", 0, 72)),
        ("m.sum@10.0-12.1", Alias("m.sum", 100, 121)),
    ],
)
def test_aliases_name_their_capabilities(text: str, alias: Alias) -> None:
    assert Alias.parse(text) == alias


def test_what_is_no_capability_is_refused() -> None:
    with pytest.raises(ValueError, match="not a compute capability"):
        parse_capabilities("nine")


def test_every_metric_is_described() -> None:
    for metric in metrics():
        assert metric.kind in KINDS, metric.name
        assert metric.unit and metric.doc and metric.section and metric.aliases, metric.name
    assert not [n for n, count in Counter(m.name for m in metrics()).items() if count > 1]
    assert set(views()["kernel_metrics"].columns) - {"report_id", "launch_id"} == {
        metric.name for metric in metrics()
    }


def test_no_metric_stands_for_two_names() -> None:
    for capability in (70, 75, 80, 86, 89, 90, 100, 120):
        names = Counter(
            alias.metric
            for metric in metrics()
            for alias in metric.aliases
            if alias.cc_low <= capability <= alias.cc_high
        )
        assert not [name for name, count in names.items() if count > 1], capability


def test_the_first_alias_wins_and_capabilities_count() -> None:
    lgds = "l1tex__lsu_writeback_active_mem_lgds.sum.per_second"
    lg = "l1tex__lsu_writeback_active_mem_lg.sum.per_second"
    db = Tiny(
        [
            {"launch_id": 0, "cc": "9.0"},
            {"launch_id": 1, "cc": "8.0"},
            {"launch_id": 2, "cc": None},
            {"launch_id": 3},
        ],
        {
            0: {lgds: 1.0, lg: 2.0, "gpu__time_duration.avg": 5.0, "gpu__time_duration.sum": 4.0},
            1: {lgds: 1.0, lg: 2.0},
            2: {lg: 2.0},
            3: {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 7.0},
        },
    )
    assert db.rows(
        "SELECT launch_id, l1_writeback_cycles_per_s, duration_ns, dram_sol_pct "
        "FROM kernel_metrics ORDER BY launch_id"
    ) == [(0, 1.0, 4.0, None), (1, 2.0, None, None), (2, 2.0, None, None), (3, None, None, 7.0)]


def test_what_is_missing_says_what_collects_it() -> None:
    db = Tiny(
        [{"launch_id": 0, "cc": "8.6"}],
        {0: {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 1.0}},
    )
    gaps = {
        name: (launches, collect)
        for name, launches, collect in db.rows(
            "SELECT name, launches, collect_with FROM kernel_gaps"
        )
    }
    assert "compute_sol_pct" not in gaps
    assert gaps["memory_sol_pct"] == (1, "ncu --section SpeedOfLight")
    assert gaps["global_load_sectors"] == (1, "ncu --section MemoryWorkloadAnalysis_Tables")
    assert gaps["cluster_size"] == (1, "not available on this compute capability")
    assert "l2_bytes" not in gaps, "in no section, so nothing would collect it"


def test_families_name_each_metric_once() -> None:
    db = Tiny()
    db.session.use("_stall_metrics", "_flop_metrics", "_tensor_metrics")
    for table in ("_stall_metrics", "_flop_metrics"):
        assert db.con.execute(
            f"SELECT count(*) - count(DISTINCT metric) FROM {table}"
        ).fetchone() == (0,)
    twice = db.con.execute(
        "SELECT a.metric FROM _tensor_metrics a JOIN _tensor_metrics b ON a.metric = b.metric "
        "AND a.rowid < b.rowid AND a.cc_low <= b.cc_high AND b.cc_low <= a.cc_high"
    ).fetchall()
    assert twice == []
