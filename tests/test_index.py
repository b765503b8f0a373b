"""An index makes a page again if, and only if, something that it was made from has changed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from perfpipe import provenance
from perfpipe.analysis.thresholds import THRESHOLDS_VARIABLE, thresholds
from perfpipe.pipelines import reporting
from perfpipe.pipelines.claim import claimed
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store
from perfpipe.work import Work, add_work

#: A run with a report, and two of another workload without.
PAGES = ("one", "two", "two-change", "with_report")

STAMP = "2026-11-22T10:0{}:00Z"

Index = Callable[..., set[str]]


@pytest.fixture
def runs(store: Store, stored: Callable[..., tuple[str, ...]]) -> Store:
    (report,) = stored("nsys/memcpy.sqlite")
    for at, (name, ms) in enumerate((("one", 10.0), ("two", 11.0))):
        task = TaskResult(0, "-", {}, times_ms=(ms, ms), ran=Ran(STAMP, STAMP, 1.0))
        store.write_run(RunRecord(name, "w", "all", STAMP.format(at), "done", (), (task,)))
    own = TaskResult(0, "-", {}, reports=(report,))
    store.write_run(
        RunRecord("with_report", "copies", "all", STAMP.format(5), "done", (report,), (own,))
    )
    return store


@pytest.fixture
def index(runs: Store, cli: Cli, undrawn: None) -> Iterator[Index]:
    """Write an index, and return the pages that were made."""

    def write(*options: str) -> set[str]:
        assert cli("report", "--index", "pages", *options) == 0, cli.err
        lines = [line for line in cli.err.splitlines() if line.startswith("[")]
        total = len(lines)
        for at, line in enumerate(lines, 1):
            assert line.startswith(f"[{at}/{total}] ")
        unchanged = len(PAGES) - total
        assert (f"{unchanged} of {len(PAGES)} pages unchanged" in cli.err) == (unchanged > 0)
        return {line.split()[1].removesuffix(".html") for line in lines}

    assert write() == {*PAGES}
    yield write


def test_what_is_known_is_not_computed_again(index: Index, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    before = {path.name: path.read_bytes() for path in pages.iterdir()}
    assert index() == set()
    assert {path.name: path.read_bytes() for path in pages.iterdir()} == before
    assert "unreplicated" in before["index.html"].decode()


def _rewrite(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_run_that_changed_is_reported_again(index: Index, runs: Store) -> None:
    runs.write_run(replace(runs.run("two"), status="failed"))
    assert index() == {"two", "two-change"}
    assert index() == set()
    runs.write_run(replace(runs.run("one"), status="failed"))
    assert index() == {"one", "two-change"}


def test_reports_and_what_was_declared_of_them_count(index: Index, runs: Store) -> None:
    (report,) = runs.report_ids()
    add_work(runs, Work(report, "k", None, 1.0, None, None))
    assert index() == {"with_report"}
    _rewrite(runs.manifest_path(report), lambda own: own["warnings"].append("lost events"))
    assert index() == {"with_report"}
    runs.remove(report)
    assert index() == {"with_report"}
    assert index() == set()


def test_trials_and_calibrations_count(index: Index, runs: Store, tmp_path: Path) -> None:
    source = next((Path(__file__).parent / "data" / "trials").glob("*.json"))
    runs.trials_dir.mkdir()
    shutil.copy(source, runs.trials_dir)
    assert index() == {*PAGES}
    directory = runs.root / "calibrations"
    directory.mkdir()
    (directory / "w-0.json").write_text("{}")
    assert index() == {"two-change"}


def test_options_thresholds_and_code_count(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert index("--window", "whole") == {*PAGES}
    assert index() == {*PAGES}
    assert index("--step-range", "step") == {*PAGES}
    assert index("--step-range", "step") == set()
    own = tmp_path / "thresholds.toml"
    own.write_text("[compare]\nchange_pct = 3\n")
    monkeypatch.setenv(THRESHOLDS_VARIABLE, str(own))
    thresholds.cache_clear()
    try:
        assert index("--step-range", "step") == {*PAGES}
    finally:
        monkeypatch.delenv(THRESHOLDS_VARIABLE)
        thresholds.cache_clear()
    assert index("--step-range", "step") == {*PAGES}
    monkeypatch.setattr(provenance, "version", lambda: "99")
    provenance.code_digest.cache_clear()
    try:
        assert index("--step-range", "step") == {*PAGES}
    finally:
        provenance.code_digest.cache_clear()


def test_pages_that_are_missing_or_edited_are_written_again(index: Index, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    (pages / "one.html").unlink()
    with (pages / "two-change.html").open("a") as file:
        file.write("<p>edited</p>")
    (pages / "with_report.json").write_text("{")
    assert index() == {"one", "two-change", "with_report"}
    assert "edited" not in (pages / "two-change.html").read_text()
    assert index() == set()


def test_a_page_that_may_lack_a_change_is_made_again(
    index: Index, runs: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes on while its page is made has another record afterwards."""
    make = reporting.make_report

    def meanwhile(store: Store, names: list[str], **options: Any) -> Any:
        report = make(store, names, **options)
        if names == ["one"]:
            store.write_run(replace(store.run("one"), ended_at=STAMP.format(9)))
        return report

    runs.write_run(replace(runs.run("one"), status="running"))
    with monkeypatch.context() as patched:
        patched.setattr(reporting, "make_report", meanwhile)
        assert index() == {"one", "two-change"}
    assert index() == {"one"}
    assert index() == set()


def test_the_page_of_a_run_whose_process_is_killed_is_made_again(index: Index, runs: Store) -> None:
    runs.write_run(replace(runs.run("one"), status="running"))
    with claimed(runs.runs_dir / "one", lambda: True):
        assert index() == {"one", "two-change"}
        assert index() == set()
    (claim,) = (runs.runs_dir / "one").glob("claim@*")
    claim.rename(claim.with_name(re.sub(r"@\w+$", "@1", claim.name)))
    assert runs.run("one").status == "interrupted"
    assert index() == {"one", "two-change"}


def test_runs_that_cannot_be_compared_are_remembered(runs: Store, cli: Cli, undrawn: None) -> None:
    for name in ("replay_a", "replay_b"):
        record = replace(runs.run("with_report"), run_id=name, collector="replay", workload="r")
        runs.write_run(record)
    assert cli("report", "--index", "pages", "replay_a", "replay_b") == 0
    assert not Path("pages/replay_b-change.html").exists()
    assert cli("report", "--index", "pages", "replay_a", "replay_b") == 0
    assert "3 of 3 pages unchanged" in cli.err
