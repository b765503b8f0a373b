"""Key figures of folded tables, memory charts, and kernels beside those of a baseline."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from conftest import Cli

from perfpipe.analysis.report.before import beside
from perfpipe.analysis.report.declare import Col, ReportTable
from perfpipe.templates.keys import key_of, section_key
from perfpipe.templates.memory_chart import memory_chart
from perfpipe.viewmodel import Column, Section, Source, Table, Value

COLUMNS = (
    Column("label", "Configuration", "text"),
    Column("device", "GPU", "int"),
    Column("category", "Category", "text"),
    Column("share_pct", "Share", "pct", "%"),
    Column("time_ms", "Time", "ms", "ms"),
)


def _table(*rows: tuple[Value, ...], key: str = "{category} {share_pct} in {time_ms}") -> Table:
    return Table("T", "", COLUMNS, rows, len(rows), Source("v", ()), key=key)


def test_the_key_figure_is_of_the_first_row() -> None:
    table = _table(("a", 0, "launch_gap", 65.53, 1.5), ("a", 0, "compute", 10.0, 0.2))
    assert key_of(table) == "launch gap 65.5 % in 1.5 ms"


def test_the_key_figure_names_the_configuration_if_there_are_several() -> None:
    row = ("mode=a", 0, "compute", 65.5, 1.5)
    assert key_of(_table(row, ("mode=b", 0, *row[2:]))).endswith(" (mode=a)")
    assert key_of(_table(row, ("mode=b", 1, *row[2:]))).endswith(" (mode=a, GPU 0)")


def test_the_key_figure_of_a_server_names_the_load() -> None:
    columns = (Column("rate", "Rate", "number", "requests/s"), Column("p95_ms", "p95", "number"))
    rows = ((4.0, 14.6), (16.0, 20.0))
    table = Table("T", "", columns, rows, 2, Source("v", ()), key="p95 {p95_ms} ms")
    assert key_of(table) == "p95 14.6 ms (4 requests/s)"
    assert key_of(replace(table, rows=rows[:1])) == "p95 14.6 ms"


def test_a_sentence_is_whole_and_a_name_in_a_figure_short() -> None:
    """Headings wrap; a name leaves room for its figures."""
    said = (
        "64 ranks, 16 captured: pipeline 4 x data 4 x context 2 x tensor 2; 8 ranks share experts"
    )
    row = ("a", 0, said, 65.5, 1.5)
    assert key_of(_table(row, key="{category}")) == said
    assert len(key_of(_table(row, key="{category}: {share_pct}"))) < len(said)


def test_no_key_figure_of_what_was_not_collected() -> None:
    assert key_of(_table(("a", 0, "compute", None, 1.5))) == ""
    assert key_of(_table()) == ""


def test_a_section_has_the_figure_of_its_first_table_with_one() -> None:
    row = ("a", 0, "compute", 65.5, 1.5)
    plain, other = _table(row, key=""), _table(row, key="{share_pct}")
    assert section_key(Section("s", "S", (plain, other), "")) == "65.5 %"
    assert section_key(Section("s", "S", (plain,), "")) == "1 row"


def test_a_key_figure_of_no_column_is_refused() -> None:
    with pytest.raises(ValueError, match="key figure of no column: lost"):
        ReportTable("reports", "T", (Col("kind", "Kind"),), key="{lost}")


LEVELS = tuple(
    Column(name, name, kind)  # type: ignore[arg-type]
    for name, kind in (
        ("level", "text"), ("read_bytes", "bytes"), ("write_bytes", "bytes"),
        ("hit_pct", "pct"), ("sol_pct", "pct"), ("excess_pct", "pct"),
    )
)  # fmt: skip


def _levels(*rows: tuple[Value, ...]) -> Table:
    return Table("T", "", LEVELS, rows, len(rows), Source("kernel_memory_levels", ()))


def test_a_memory_chart_has_what_was_collected() -> None:
    svg = memory_chart(
        _levels(
            ("L1", 2e6, None, 25.0, 50.0, None),
            ("L2", None, None, None, None, None),
            ("DRAM", 1e6, 3e6, None, 120.0, None),
        )
    )
    assert "2.0 MB" in svg and "1.0 MB" in svg and "3.0 MB" in svg
    assert "25.0 % hits" in svg and "Shared memory" not in svg
    assert svg.count('class="flow"') == 3, "one arrow for each measured flow"
    filled = [float(one) for one in re.findall(r'class="full"[^>]*height="([\d.]+)"', svg)]
    assert filled == [0, 31, 0, 62], "half of L1, all of DRAM, at most all of a box"


def test_other_tables_have_no_memory_chart() -> None:
    table = _levels(("L1", 2e6, None, 25.0, 50.0, None))
    assert memory_chart(replace(table, source=Source("kernel_stalls", ()))) == ""
    assert memory_chart(_levels(("shared", None, None, None, 50.0, None))) == ""


def test_metrics_stand_beside_those_of_the_baseline() -> None:
    before = {"duration_ns": 2000.0, "compute_sol_pct": 0.0, "registers": 32.0, "l1_hit_pct": None}
    now = {"duration_ns": 1000.0, "compute_sol_pct": 5.0, "registers": 40.0, "l1_hit_pct": 3.0}
    assert beside(before, now, Source("kernel_sol", ())).rows == (
        ("Duration", "2 us", "1 us", -50.0),
        ("Compute SOL", "0.0 %", "5.0 %", None),
        ("Registers per thread", "32", "40", 25.0),
    )


def test_cards_stand_beside_the_kernels_of_a_baseline(
    stored: Callable[..., list[str]], cli: Cli
) -> None:
    before, now = stored("ncu/visible.ncu-rep", "ncu/visible.raw.csv")
    cli("report", now, "--baseline", before, "--json", "-")
    sections = {one["id"]: one for one in json.loads(cli.out)["sections"]}
    cards = {card["key"]: card for card in sections["details"]["cards"]}
    rows = cards["atomic_hot"]["tables"][0]["rows"]
    assert rows[0][0] == "Duration" and rows[0][1] == rows[0][2]
    assert {row[0]: row[3] for row in rows}["Registers per thread"] == 0
