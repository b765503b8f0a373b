"""`perfpipe report` of a batch: from the directory on disk to its files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from batch_helpers import Said, batch, element, submitted, write_workload
from conftest import ROOT, Cli

from perfpipe.pipelines.batch.collecting import collect
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.freezing import Wanted, freeze
from perfpipe.pipelines.slurm.options import merged
from perfpipe.pipelines.slurm.states import State as JobIs
from perfpipe.pipelines.workload import load_workload
from perfpipe.store import Store


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a batch of which two tasks are done, one failed and one was killed."""
    folder = tmp_path_factory.mktemp("finished")
    directory = batch(write_workload(folder), folder / "store")
    cluster = Said()
    submitted(directory, cluster)
    for at in range(3):
        element(directory, 1, at)
    lines = [f"line {number} of many that a program prints" for number in range(900)]
    log = directory.path / "logs" / "101_3.out"
    log.write_text("\n".join([*lines, "\x1b[31moom_kill\x1b[0m </pre><script>\x07"]) + "\n\n")
    cluster.say("101", 3, JobIs.OUT_OF_MEMORY, node="n2", reason="over 64 GB")
    assert collect(directory, 2, cluster) is not None
    return directory.store.root


@pytest.fixture
def collected(finished: Path, tmp_path: Path) -> BatchDirectory:
    """A copy of that batch, in a store of the test's own."""
    store = Store(shutil.copytree(finished, tmp_path / "store"))
    return BatchDirectory.find(store, None)


def test_the_collector_leaves_page_data_and_junit(collected: BatchDirectory) -> None:
    page = (collected.path / "report.html").read_text()
    assert "2 of 4 tasks done; 2 not successful: 1 failed, 1 out of memory." in page
    assert page.count("<script") == 1
    document = json.loads((collected.path / "report.json").read_text())
    tables = {t["title"]: t for section in document["sections"] for t in section["tables"]}
    names = [column["name"] for column in tables["Failed tasks"]["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in tables["Failed tasks"]["rows"]]
    assert [row["state"] for row in rows] == ["failed", "out of memory"]
    log = rows[1]["log"].splitlines()
    assert len(log) == 12
    assert log[0] == "line 889 of many that a program prints"
    assert log[-1] == "oom_kill </pre><script>"
    assert "no such kind" in rows[0]["why"]
    assert "2 of 4 tasks done" in (collected.path / "report.md").read_text()
    root = ElementTree.parse(collected.path / "junit.xml").getroot()
    assert [root.attrib[name] for name in ("tests", "failures", "errors")] == ["4", "1", "1"]


def test_report_takes_a_batch_by_the_beginning_of_its_id(
    collected: BatchDirectory, cli: Cli, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    other = tmp_path / "else" / "where" / "b.html"
    assert cli("report", "batch-", "--html", str(other), "--store", store) == 0
    assert collected.batch.batch_id in other.read_text()
    assert cli("report", collected.batch.batch_id, "--store", store) == 0
    assert "2 of 4 tasks done" in cli.out
    assert cli("report", "batch-", "--json", "--store", store) == 0
    assert json.loads(cli.out)["statements"][0]["text"].startswith("2 of 4 tasks done")


def test_links_hold_wherever_the_page_is(
    collected: BatchDirectory, cli: Cli, tmp_path: Path
) -> None:
    (run,) = collected.batch.runs
    (collected.store.runs_dir / run.run_id / "report.html").write_text("the run")
    for task in collected.tasks[:2]:
        summary = collected.task_directory(task) / "summary.json"
        summary.write_text(json.dumps({"schema_version": 1, "page": "report.html"}))
        (collected.task_directory(task) / "report.html").write_text(f"task {task.index}")
    page = tmp_path / "else" / "where" / "b.html"
    words = ["report", "batch-", "--store", str(tmp_path / "store")]
    assert cli(*words, "--html", str(page)) == 0
    links = re.findall(r'href="(\.\.[^"]*)"', page.read_text())
    assert {(page.parent / link).resolve().read_text() for link in links} == {
        "the run", "task 0", "task 1",
    }  # fmt: skip
    shutil.move(tmp_path / "store", tmp_path / "moved")
    assert cli("report", "batch-", "--store", str(tmp_path / "moved")) == 0


def test_a_batch_stands_for_its_runs_elsewhere(
    collected: BatchDirectory, cli: Cli, tmp_path: Path
) -> None:
    words = ["report", "batch-", "--store", str(tmp_path / "store")]
    (run,) = collected.batch.runs
    assert cli(*words, run.run_id) == 0
    assert cli(*words, "--baseline", run.run_id) == 2
    assert "on both sides" in cli.err
    assert cli("report", "nothing-", *words[2:]) == 2
    assert "no run, report or batch 'nothing-' in the store" in cli.err


def test_an_uncollected_batch_is_reported_as_it_stands(
    workload: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    directory = batch(workload, tmp_path / "store")
    submitted(directory, Said())
    element(directory, 1, 0)
    monkeypatch.setenv("PATH", "/nonexistent")
    words = ["--store", str(tmp_path / "store")]
    page = tmp_path / "b.html"
    assert cli("report", "batch-", "--html", str(page), *words) == 0
    assert "1 of 4 tasks done; 3 unknown" in page.read_text()
    assert "Slurm did not report the state of tasks without a result" in page.read_text()
    assert cli("report", "batch-", "--baseline", "batch-", *words) == 2
    assert "not collected yet" in cli.err


def test_names_of_batches_and_runs_do_not_mix(
    collected: BatchDirectory, cli: Cli, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    run = store.runs()[0]
    shutil.copytree(store.runs_dir / run.run_id, store.runs_dir / "batch-x")
    path = store.runs_dir / "batch-x" / "run.json"
    path.write_text(path.read_text().replace(run.run_id, "batch-x"))
    assert cli("report", "batch-", "--store", str(store.root)) == 2
    assert "'batch-' is ambiguous: batch-x, batch-" in cli.err
    assert cli("report", "batch-x", "--json", "--store", str(store.root)) == 0
    assert json.loads(cli.out)["title"] == "w"
    assert collected.batch.batch_id != "batch-x"


def test_a_replayed_batch_says_so_and_links_to_its_configurations(
    cli: Cli, tmp_path: Path, undrawn: None
) -> None:
    path = ROOT / "workloads" / "vector_add.yaml"
    store = Store(tmp_path / "store")
    frozen = freeze(
        [Wanted(load_workload(path), path)],
        store=store, collector="replay", slurm_of=lambda own: merged(own),
        filters={"size": ["65536"]}, command=[], pages=True, max_attempts=1,
    )  # fmt: skip
    directory = BatchDirectory.create(store, frozen.batch, frozen.tasks, frozen.workloads)
    cluster = Said()
    array, _ = submitted(directory, cluster)
    for at in range(len(directory.submissions()[0].what.elements)):
        assert element(directory, 1, at, array)
    (task,) = directory.tasks
    summary = directory.summary(task)
    assert summary is not None
    assert summary.sol_pct is not None
    own = directory.task_directory(task) / (summary.page or "")
    assert "replay" in own.read_text().lower()
    outcome = collect(directory, 99, cluster)
    assert outcome is not None
    assert outcome.ok
    (run,) = store.runs()
    assert run.recording is not None
    assert run.recording.gpu == "NVIDIA H200"
    assert "NVIDIA H200" in (store.runs_dir / run.run_id / "report.html").read_text()
    page = (directory.path / "report.html").read_text()
    assert f"../../runs/{run.run_id}/report.html" in page
    assert "Replayed from a recording" in page
    assert "Nothing was measured on these machines" in page
    links = {*re.findall(r'href="(\.\.[^"]*)"', page)}
    assert len(links) == directory.batch.tasks + len(directory.batch.runs)
    for link in links:
        assert "Replayed from a recording" in (directory.path / link).read_text()
    assert not cli("report", "batch-", "--store", str(store.root))
    assert cli("report", run.run_id, "--md", "-") == 0, cli.err
    assert "NVIDIA H200" in cli.out
