"""Steps by a name of one's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from conftest import Cli, Tiny

STEPS = "SELECT DISTINCT step FROM step_budget WHERE step IS NOT NULL"


def _steps(cli: Cli, *options: str) -> set[str]:
    assert cli("query", STEPS, "--format", "json", *options) == 0, cli.err
    return {row["step"] for row in json.loads(cli.out)["rows"]}


def test_an_expression_names_the_steps(
    cli: Cli, stored: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored("nsys/ddp_comm_rank1.sqlite")
    assert _steps(cli) == {f"step {n}" for n in range(8)}
    assert _steps(cli, "--step-range", "^FORW") == {"forward"}
    assert "PERFPIPE_STEP_RANGE" not in os.environ, "it holds for one command"
    monkeypatch.setenv("PERFPIPE_STEP_RANGE", "step [0-3]$")
    assert _steps(cli) == {f"step {n}" for n in range(4)}
    assert cli("report", "--step-range", "backward", "--md", "-") == 0, cli.err
    assert "| 8 |" in cli.out.split("### Steps")[1].split("###")[0]


def test_what_is_no_expression_is_refused(cli: Cli, stored: Callable[..., list[str]]) -> None:
    stored("nsys/ddp_comm_rank1.sqlite")
    assert cli("query", STEPS, "--step-range", "step (") == 2
    assert "step (: not a regular expression" in cli.err
    assert len(cli.err.strip().splitlines()) == 1


def test_a_step_within_a_step_counts_once() -> None:
    db = Tiny()
    for at in (10, 60):
        db.add(
            "launches",
            {"kind": "kernel", "name": "k", "device": 0, "stream": 7, "pid": 1, "tid": 1, "call_id": at,
             "op_id": at, "correlation_id": at, "start_ns": at, "end_ns": at + 30, "api_start_ns": at - 8,
             "api_end_ns": at - 6},
        )  # fmt: skip
    ranges = (
        ("iteration 0", 0, 45, 10),
        ("step 5", 1, 44, 10),
        ("iteration 1", 50, 95, 60),
        ("step 6", 50, 95, 60),
    )
    for index, (name, start, end, first) in enumerate(ranges):
        db.add(
            "nsys_nvtx_ranges",
            {"pid": 1, "tid": 1, "range_id": index, "name": name, "style": "PushPop",
             "start_ns": start, "end_ns": end, "first_call": first, "calls": 1},
        )  # fmt: skip
    found = db.rows("SELECT step, step_ns, compute_pct FROM step_shares ORDER BY step_index")
    assert found == [("iteration 0", 50, 60.0), ("iteration 1", 30, 100.0)]
