"""Budgets of chosen windows: against each nanosecond, and through the command."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Cli, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from test_budget_oracle import category_at, launch_gap_limit, short_gaps, timelines

from perfpipe.analysis.windows import VIEWS_USED, choose_ranges, choose_time
from perfpipe.units import format_ns

Timeline = dict[str, list[dict[str, Any]]]


def _expected(timeline: Timeline, begin: int, end: int) -> Counter[str]:
    inside = [
        (max(op["start_ns"], begin), min(op["end_ns"], end))
        for op in timeline["launches"]
        if op["start_ns"] < end and (op["end_ns"] > begin or op["start_ns"] == begin)
    ]
    first, last = (
        min(s for s, _ in inside) if inside else end,
        max((e for _, e in inside), default=0),
    )
    limit = launch_gap_limit(timeline)
    return Counter(
        category_at(timeline, now, limit) if first <= now < last else "edge"
        for now in range(begin, end)
    )


@settings(max_examples=8, deadline=None)
@given(st.lists(timelines(), min_size=4, max_size=4), st.integers(-10, 70), st.integers(1, 40))
def test_a_chosen_time_against_each_nanosecond(
    together: list[Timeline], begin: int, length: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfpipe.analysis.session.thresholds", short_gaps)
        db = Tiny()
        for report, timeline in enumerate(together):
            db.add_report(f"r{report}", timeline)
        db.session.use(*VIEWS_USED)
        choose_time(db.con, begin, begin + length)
        found = db.rows("SELECT report_id, category, time_ns FROM window_budget WHERE time_ns > 0")
    expected = {
        (f"r{report}", category): time_ns
        for report, timeline in enumerate(together)
        for category, time_ns in _expected(timeline, begin, begin + length).items()
    }
    assert {(report, category): time_ns for report, category, time_ns in found} == expected


def test_a_range_is_what_its_process_launched_while_it_was_open() -> None:
    db = Tiny()
    launch = {"kind": "kernel", "name": "k", "pid": 1, "device": 0}
    # Launched by the range's thread, by another one (autograd), and after it.
    for tid, call, start in ((1, 12, 100), (2, 15, 130), (1, 30, 160)):
        db.add(
            "launches",
            {**launch, "tid": tid, "start_ns": start, "end_ns": start + 10,
             "api_start_ns": call, "api_end_ns": call + 1},
        )  # fmt: skip
    db.add(
        "nsys_nvtx_ranges",
        {"pid": 1, "tid": 1, "range_id": 0, "name": "backward", "start_ns": 10, "end_ns": 20},
        {"pid": 1, "tid": 1, "range_id": 1, "name": "empty", "start_ns": 21, "end_ns": 22},
    )
    db.session.use(*VIEWS_USED)
    choose_ranges(db.con, ":backward", 5)
    choose_ranges(db.con, "empty", 5)
    assert db.rows(
        "SELECT window_name, window_start_ns, window_end_ns, category, time_ns FROM window_budget "
        "WHERE time_ns > 0"
    ) == [
        ("backward", 100, 140, "compute", 20),
        ("backward", 100, 140, "kernel_gap", 20),
    ]


def test_the_command(cli: Cli, stored: Callable[..., list[str]]) -> None:
    stored("nsys/ddp_comm_rank1.sqlite")
    assert cli("budget", "--json") == 0
    whole = json.loads(cli.out)["windows"]
    assert {row["window_name"] for row in whole} == {"6 steady steps"}
    assert cli("query", "FROM gpu_time_budget", "--format", "json") == 0
    budget = json.loads(cli.out)["rows"]
    assert {row["category"]: row["time_ns"] for row in whole} == {
        row["category"]: row["time_ns"] for row in budget
    }
    assert cli("budget", "--window", "whole") == 0
    assert ": whole, " in cli.out and "sum" not in cli.out
    assert cli("budget", "--window", "3") == 0
    assert ": step 3, " in cli.out
    assert cli("budget", "--window", "99") == 2
    assert "--window 99: no such step" in cli.err
    assert cli("budget", "--nvtx", "backward", "--limit", "3") == 0
    assert cli.out.count(": backward, ") == 3
    assert "first 3 of 8" in cli.err
    lines = cli.out.splitlines()
    (at,) = (at for at, line in enumerate(lines) if "sum of 3 windows of backward" in line)
    shown = {line.split()[0]: " ".join(line.split()[1:3]) for line in lines[at + 1 :]}
    assert cli("budget", "--nvtx", "backward", "--limit", "3", "--json") == 0
    sums: Counter[str] = Counter()
    for row in json.loads(cli.out)["windows"]:
        sums[row["category"]] += row["time_ns"]
    assert lines[at].endswith(f", {format_ns(sums.total())}")
    assert shown == {name: format_ns(time) for name, time in sums.items() if time}
    assert cli("budget", "--from", "20ms", "--to", "0.0255s") == 0
    assert "chosen time, 20.000 to 25.500 ms" in cli.out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--nvtx", "backwrd"], "did you mean 'backward'?"),
        (["--from", "2s", "--to", "1s"], "--from must be before --to"),
        (["--from", "soon"], "'soon' is not a time, such as"),
        (["--from", "1s", "--nvtx", "backward"], "either --from and --to, or --nvtx"),
    ],
)
def test_what_cannot_be_chosen(
    cli: Cli, stored: Callable[..., list[str]], options: list[str], sentence: str
) -> None:
    stored("nsys/ddp_comm_rank1.sqlite")
    assert cli("budget", *options) == 2
    assert sentence in cli.err
