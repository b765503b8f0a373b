"""Timing, nsys and ncu side by side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli, Tiny


def agreement(
    timed_ms: float,
    operations: list[tuple[int, int]],
    *,
    method: str = "queued",
    profiled: list[int] | None = None,
    throttled: list[str] | None = None,
    iterations: int = 2,
) -> dict[str, Any]:
    """One iteration's operations (start and end in us), repeated a millisecond apart."""
    tiny = Tiny()
    tiny.add("reports", {"report_id": "t", "kind": "nsys"})
    tiny.add("run_tasks", {"run_id": "x", "task_index": 0, "label": "a", "median_ms": timed_ms,
                           "timing_method": method, "throttled_by": throttled or [],
                           "reports": ["t", "r"]})  # fmt: skip
    call = 0
    for number in range(iterations):
        at = number * 1_000_000
        tiny.add("nsys_nvtx_ranges", {"report_id": "t", "pid": 1, "tid": 1, "style": "PushPop",
                                      "name": f"iteration {number}", "start_ns": at,
                                      "end_ns": at + 900_000, "dur_ns": 900_000,
                                      "range_id": number})  # fmt: skip
        for start, end in operations:
            tiny.add("launches", {"report_id": "t", "kind": "kernel", "pid": 1, "tid": 2,
                                  "call_id": call, "start_ns": at + start * 1000,
                                  "end_ns": at + end * 1000, "api_start_ns": at + 10 * call % 9000,
                                  "api_end_ns": at + 10 * call % 9000 + 5})  # fmt: skip
            call += 1
    for launch_id, duration in enumerate(profiled or []):
        tiny.add("ncu_launches", {"launch_id": launch_id, "duration_ns": duration * 1000})
    names = (
        "timed_ms, traced_ms, traced_span_ms, traced_operations, profiled_ms, traced_pct, "
        "agrees, explanation"
    )
    (row,) = tiny.rows(f"SELECT {names} FROM run_agreement")
    return dict(zip(names.split(", "), row, strict=True))


def test_times_that_agree() -> None:
    found = agreement(0.1, [(20, 60), (62, 122)], profiled=[41, 60])
    assert found["traced_ms"] == pytest.approx(0.1)
    assert found["traced_span_ms"] == pytest.approx(0.102)
    assert found["traced_operations"] == 2
    assert found["profiled_ms"] == pytest.approx(0.101)
    assert found["agrees"] is True
    assert found["explanation"] == ""


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"timed_ms": 0.005, "operations": [(20, 24)]}, "about 1 us between short kernels"),
        ({"timed_ms": 2.0, "operations": [(20, 60)], "method": "events"}, "includes host time"),
        ({"timed_ms": 2.0, "operations": [(20, 60)]}, "gaps between the operations"),
        ({"timed_ms": 0.02, "operations": [(20, 60)]}, "operations overlap"),
        ({"timed_ms": 0.04, "operations": [(20, 60)], "profiled": [60]}, "cold caches"),
        ({"timed_ms": 0.04, "operations": [(20, 60)], "profiled": [30]}, "each kernel alone"),
        ({"timed_ms": 0.04, "operations": [(20, 60)], "profiled": [30],
          "throttled": ["power cap"]}, "the power cap lowers the clocks"),
        ({"timed_ms": 0.04, "operations": [(20, 40), (40, 60)], "profiled": [30]},
         "only some kernels"),
    ],
)  # fmt: skip
def test_times_that_differ_are_explained(facts: dict[str, Any], words: str) -> None:
    found = agreement(**facts)
    assert words in found["explanation"]
    if "only some" in words:
        assert found["profiled_ms"] is None, "a part of an iteration is no time of it"


def test_without_iterations_nothing_is_said_to_agree() -> None:
    found = agreement(0.1, [(20, 60)], profiled=[40], iterations=0)
    assert found["traced_ms"] is None
    assert found["agrees"] is None
    assert found["profiled_ms"] == pytest.approx(0.04)


def test_the_recorded_runs_agree(cli: Cli, replayed: Callable[[str], Path]) -> None:
    """Of kernels that are longer than a launch, nsys and the timing are within 10 %."""
    sql = (
        "SELECT count(*), count(*) FILTER (agrees), count(*) FILTER (NOT agrees AND explanation = '') "
        "FROM run_agreement WHERE timed_ms > 0.02 AND traced_ms IS NOT NULL"
    )
    counts = []
    for name in ("gemm", "vector_add", "fused_matmul_tuning"):
        assert cli("query", sql, "--format", "csv", "--store", replayed(name)) == 0
        counts.append(map(int, cli.out.splitlines()[1].split(",")))
    compared, agree, unexplained = map(sum, zip(*counts, strict=True))
    assert compared >= 11
    assert agree == compared
    assert unexplained == 0


def test_the_recorded_ranks_are_two(
    cli: Cli, replayed: Callable[[str], Path], pages: Callable[..., Path]
) -> None:
    sql = "SELECT job, count(*), min(paired) FROM job_ranks GROUP BY job ORDER BY job"
    assert cli("query", sql, "--format", "csv", "--store", replayed("ddp_step")) == 0
    rows = [line.split(",") for line in cli.out.splitlines()[1:]]
    assert [(ranks, int(paired) > 100) for _, ranks, paired in rows] == [("2", True), ("2", True)]
    document = json.loads((pages("ddp_step") / "report.json").read_text())
    claims = {(f["claim"], f["evidence"].split("; ")[1]) for f in document["findings"]}
    waiting = [evidence for claim, evidence in claims if "GPU 1 waits for rank 0" in claim]
    assert len(waiting) == 2
    assert all("is waiting" in evidence for evidence in waiting)


def test_a_recording_that_is_replayed_twice_counts_once(
    cli: Cli, replayed: Callable[[str], Path], tmp_path: Path
) -> None:
    sql = (
        "SELECT step, model_flop, step_ns, mfu_pct FROM step_mfu "
        "JOIN reports USING (report_id) JOIN run_tasks AS t USING (run_id) "
        "WHERE list_contains(t.reports, report_id) AND label = 'size=2048 dtype=fp16'"
    )
    shutil.copytree(replayed("gemm"), tmp_path / "store")
    assert cli("query", sql, "--format", "csv") == 0
    answers = [cli.out]
    assert cli("run", ROOT / "workloads" / "gemm.yaml", "--collector", "replay") == 0
    assert cli("query", sql, "--format", "csv") == 0
    answers.append(cli.out)
    assert answers[0] == answers[1]
    rows = [line.split(",") for line in answers[0].splitlines()[1:]]
    assert len({step for step, *_ in rows}) == len(rows) >= 10
    for _, flop, step_ns, mfu_pct in rows:
        assert float(flop) == 2 * 2048**3
        # The dense peak of fp16 of an H200 by its data sheet.
        assert float(mfu_pct) == pytest.approx(
            100 * float(flop) / float(step_ns) / 989.5e3, rel=1e-3
        )


def test_later_runs_change_nothing_in_the_report_of_a_run(
    cli: Cli, read_before: Callable[[str], None]
) -> None:
    words = ("run", ROOT / "workloads" / "gemm.yaml", "--collector", "replay")
    assert cli(*words, "--set", "size=512,1024") == 0
    (store,) = Path.cwd().glob("**/runs")
    (first,) = (path.name for path in store.iterdir())
    reports = []
    for again in (True, False):
        assert cli("report", first, "--json") == 0
        reports.append(json.loads(cli.out))
        if again:
            read_before("gemm")
            assert cli(*words) == 0
    assert [section["tables"] for section in reports[0]["sections"]] == [
        section["tables"] for section in reports[1]["sections"]
    ]
    assert reports[0]["findings"] == reports[1]["findings"]
