"""The names that stand for runs and reports on a command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.pipelines.selection import select
from perfpipe.store import Store

Stored = Callable[..., list[str]]


@pytest.fixture
def runs(cli: Cli, tmp_path: Path) -> list[str]:
    """Make two runs of one workload and one of another; return the ids, the oldest first."""
    for name in ("tiny", "tiny", "other"):
        path = tmp_path / f"{name}.yaml"
        command = json.dumps([sys.executable, "-c", "pass"])
        path.write_text(f"version: 1\nname: {name}\ncommand: {command}\n")
        assert cli("run", path, "--collector", "timing", "--no-report") == 0, cli.err
    return [run.run_id for run in Store(tmp_path / "store").runs()]


def _runs(store: Path, *names: str) -> list[str]:
    return [run.run_id for run in select(Store(store), names).runs]


def test_runs_have_numbers_and_names_of_workloads(
    runs: list[str], tmp_path: Path, cli: Cli
) -> None:
    store = tmp_path / "store"
    assert _runs(store, "@1") == _runs(store) == [runs[2]]
    assert _runs(store, "@3", "@2") == runs[:2]
    assert _runs(store, "other") == [run for run in runs if run.startswith("other")]
    *_, tiny = (run for run in runs if run.startswith("tiny"))
    assert _runs(store, "tiny") == [tiny]
    cli("report", "--findings", "tiny")
    assert f"tiny: {tiny} is the newest of 2 runs" in cli.err
    assert _runs(store, runs[0]) == [runs[0]], "an id stands for itself"
    for name in ("@4", "@0"):
        assert cli("report", "--findings", name) == 2
        assert f"no run {name}: the store has 3 runs" in cli.err


def test_files_stand_for_the_reports_that_were_read_from_them(
    stored: Stored, cli: Cli, tmp_path: Path
) -> None:
    first, second = stored("nsys/memcpy.sqlite", "nsys/ops.sqlite")
    store = Store(tmp_path / "store")
    names = [store.manifest(report).source_name for report in (first, second)]
    assert select(store, [names[0]]).reports == [first]
    assert select(store, [store.manifest(second).source_path]).reports == [second]
    assert cli("query", "--report", names[1], "FROM reports", "--format", "csv") == 0, cli.err
    assert second in cli.out and first not in cli.out
    other = tmp_path / "other.sqlite"
    other.write_bytes(b"")
    assert cli("report", "--findings", other) == 2
    assert cli.err.endswith(f"{other} is not in the store; to read it: perfpipe ingest {other}\n")
    assert cli("report", "--findings", "nothing.sqlite") == 2
    assert "nothing.sqlite: no such file, and no such run, report or batch" in cli.err
    assert cli("report", names[1], "--json", "-") == 0, cli.err
    assert second in cli.out and first not in cli.out


def test_the_default_is_the_latest_run_everywhere(runs: list[str], cli: Cli) -> None:
    newest = Store("store").run(runs[2])
    said = f"latest run: {newest.workload}, just now (@1)"
    for words in (["report", "--findings"], ["report"], ["budget"], ["report", "--rules"]):
        cli(*words)
        assert cli.err.splitlines()[0] == said, words
    assert cli("query", "SELECT run_id FROM runs", "--format", "csv") == 0, cli.err
    assert cli.out == f"run_id\n{runs[2]}\n"
    assert cli.err == f"{said}; --all for the whole store\n"
    assert cli("query", "--all", "SELECT run_id FROM runs ORDER BY 1", "--format", "csv") == 0
    assert cli.out.split() == ["run_id", *sorted(runs)] and cli.err == ""
    assert cli("query", "-r", "@3", "SELECT run_id FROM runs", "--format", "csv") == 0
    assert cli.out.split() == ["run_id", runs[0]] and cli.err == ""
    assert cli("query", "-r", "@3", "--all", "FROM runs") == 2
    assert "--report and --all exclude each other" in cli.err
    cli("report", "--findings", runs[0])
    assert "latest" not in cli.err
    Store("store").write_run(replace(newest, started_at="some time"))
    cli("report", "--findings")
    assert cli.err.startswith(f"latest run: {newest.workload} (@1)\n")


def test_a_store_without_runs_is_read_as_a_whole(stored: Stored, cli: Cli) -> None:
    stored("nsys/memcpy.sqlite")
    assert cli("report", "--rules") == 0
    assert cli.err == ""
    stored("nsys/ops.sqlite")
    assert cli("query", "SELECT count(*) AS n FROM reports", "--format", "csv") == 0
    assert (cli.out, cli.err) == ("n\n2\n", "")
