"""What the reports of a task say, against the reports themselves."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from perfpipe.analysis.batch.summary import summary_of
from perfpipe.analysis.session import Session
from perfpipe.batchrecord import TaskSummary
from perfpipe.pipelines.reporting import report_with_summary
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store


@pytest.fixture(scope="module")
def gemm(replayed: Callable[[str], Path]) -> tuple[Store, RunRecord]:
    store = Store(replayed("gemm"))
    return store, store.runs()[0]


def test_a_task_is_summarized_as_its_report_has_it(
    gemm: tuple[Store, RunRecord], pages: Callable[..., Path]
) -> None:
    store, run = gemm
    task = run.tasks[2]
    found = summary_of(store, task.reports, run)
    whole = json.loads((pages("gemm") / "report.json").read_text())
    assert found.headline == "Timed without a profiler: 67.8 % of the fp16 peak"
    assert found.finding in {finding["claim"] for finding in whole["findings"]}
    tables = (table for section in whole["sections"] for table in section["tables"])
    (table,) = (table for table in tables if table["source"]["view"] == "run_times")
    at = [column["name"] for column in table["columns"]]
    (row,) = (row for row in table["rows"] if row[at.index("label")] == task.label)
    assert found.mfu_pct == row[at.index("mfu_pct")]
    assert (found.bound, found.kernel_bound) == ("compute", "compute (tensor)")
    assert found.step_ms == pytest.approx(0.035888)
    assert found.steps == 18
    assert found.step_p95_ms is not None
    assert found.step_p95_ms > 0.0357
    assert found.gpu == "NVIDIA H200, 132 SMs"
    assert found.page is None


@pytest.fixture(scope="module")
def fourth(gemm: tuple[Store, RunRecord]) -> TaskSummary:
    """The summary of a task."""
    store, run = gemm
    return summary_of(store, run.tasks[3].reports, run)


def test_a_report_and_its_summary_share_a_session(
    gemm: tuple[Store, RunRecord], fourth: TaskSummary
) -> None:
    store, run = gemm
    task = run.tasks[3]
    alone = replace(run, tasks=(task,), reports=task.reports)
    report, found = report_with_summary(store, alone)
    assert found == fourth
    assert found.headline == report.statements[0].text
    assert found.finding == report.findings[0].claim
    assert report.notice


def test_other_tasks_of_the_run_do_not_matter(
    gemm: tuple[Store, RunRecord], fourth: TaskSummary
) -> None:
    store, run = gemm
    task = run.tasks[3]
    assert summary_of(store, task.reports, replace(run, tasks=(task,))) == fourth


def test_only_what_is_asked_for_is_read(
    gemm: tuple[Store, RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = gemm

    def fail(*_: object) -> None:
        raise AssertionError("read")

    monkeypatch.setattr(Store, "runs", fail)
    monkeypatch.setattr(Store, "own_report_ids", fail)
    assert summary_of(store, run.tasks[0].reports, run).bound == "launch_overhead"
    monkeypatch.setattr(Session, "open", fail)
    timed = replace(run.tasks[0], reports=())
    found = summary_of(store, (), replace(run, tasks=(timed,)))
    assert timed.times_ms
    assert found == TaskSummary(step_ms=statistics.median(timed.times_ms))
    assert summary_of(store, (), None) == TaskSummary()


@pytest.mark.parametrize("kind", ["nsys", "ncu"])
def test_one_kind_of_report_is_enough(gemm: tuple[Store, RunRecord], kind: str) -> None:
    store, run = gemm
    task = run.tasks[4]
    only = [r for r in task.reports if store.manifest(r).kind == kind]
    found = summary_of(store, only, run)
    assert found.bound == "compute"
    assert found.kernel_bound == ("compute (tensor)" if kind == "ncu" else None)
    assert (found.steps is None) == (kind == "ncu")
    assert found.step_ms == pytest.approx(task.median_ms if kind == "ncu" else 1.454896)


def test_of_several_gpus_the_one_with_the_longest_steps_counts(
    replayed: Callable[[str], Path],
) -> None:
    store = Store(replayed("ddp_step"))
    run = store.runs()[0]
    task = run.tasks[0]
    found = summary_of(store, task.reports, run)
    with Session.open(store, task.reports) as session:
        rows = session.sql(
            "SELECT step_ns / 1e6, steps, bound, share_pct "
            "FROM analysis_windows JOIN timeline_bottleneck USING (report_id, device)"
        ).fetchall()
    assert len(rows) == 2
    assert max(rows) == (found.step_ms, found.steps, found.bound, found.share_pct)


def test_kernels_that_were_hardly_profiled_do_not_stand_for_all(
    stored: Callable[..., Sequence[str]], store: Store
) -> None:
    reports = stored("nsys/memcpy.sqlite")
    found = summary_of(store, reports, None)
    assert found.kernel_bound is None
    assert found.bound


def test_of_a_benchmark_no_bound_of_the_timeline_is_told(
    stored: Callable[..., Sequence[str]], store: Store
) -> None:
    assert summary_of(store, stored("real/do_bench.sqlite"), None).bound is None
