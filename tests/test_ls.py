"""The list of runs, trials and reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from conftest import DATA, Cli

from perfpipe.store import Store
from perfpipe.trialrecord import read_file, write

Stored = Callable[..., list[str]]


def test_runs_are_numbered_as_other_commands_take_them(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    code = """print('{"perfpipe": "time", "ms": [2.5, 2.5]}')"""
    for name in ("first", "second"):
        text = json.dumps({"version": 1, "name": name, "command": ["{python}", "program.py"]})
        (tmp_path / "program.py").write_text(code)
        path.write_text(text)
        assert cli("run", path, "--collector", "timing") == 0, cli.err
    assert cli("run", "--collector", "timing", "--", sys.executable, "-c", "raise SystemExit(1)")
    runs = Store(tmp_path / "store").runs()
    assert cli("ls", "--json") == 0
    found = json.loads(cli.out)["runs"]
    assert [(row["name"], row["run_id"]) for row in found] == [
        (f"@{number}", run.run_id) for number, run in enumerate(reversed(runs), 1)
    ]
    rows = {row["run_id"].rsplit("-", 2)[0]: row for row in found}
    assert (rows["first"]["shortest_ms"], rows["first"]["done"]) == (2.5, 1)
    assert cli("ls") == 0
    lines = cli.out.splitlines()
    assert len(lines) == 3 and all(line.startswith(f"@{n}") for n, line in enumerate(lines, 1))
    (first,) = (line for line in lines if " first-" in line)
    assert "done" in first and "1 configuration " in first and "2.5 ms" in first
    assert any("failed" in line and "0 of 1 configuration" in line for line in lines)
    assert cli("ls", "--limit", "1") == 0
    assert len(cli.out.splitlines()) == 1 and "2 more runs" in cli.err


def test_a_run_has_the_headline_of_its_last_report(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    code = """print('{"perfpipe": "time", "ms": [2.5, 2.5]}')"""
    (tmp_path / "program.py").write_text(code)
    path.write_text(f"version: 1\nname: timed\ncommand: [{sys.executable}, program.py]\n")
    assert cli("run", path, "--collector", "timing") == 0, cli.err
    store = Store(tmp_path / "store")
    (run,) = store.runs()

    def headline() -> str | None:
        assert cli("ls", "--json") == 0
        (row,) = json.loads(cli.out)["runs"]
        found: str | None = row["headline"]
        assert cli("ls") == 0
        assert cli.out.splitlines()[1:] == ([f"    {found}"] if found else [])
        return found

    assert headline() is None, "no report was made"
    assert cli("report", "--json") == 0
    said = json.loads(cli.out)["opening"]["verdict"]["text"]
    assert said.startswith("No verdict")
    assert headline() == said
    kept = tmp_path / "store" / "runs" / run.run_id / "headline.json"
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "text": "a\n\x1b[1mb"}))
    assert cli("ls") == 0
    assert cli.out.splitlines()[1] == r"    a\n\x1b[1mb"
    store.write_run(replace(run, ended_at="later"))
    assert headline() is None, "the run was resumed since"
    kept.write_text("{")
    assert headline() is None
    assert cli("report", "--window", "whole") == 0
    assert headline() is None, "the answer to another question"
    assert cli("report") == 0
    assert headline() == said


def test_trials_and_reports_of_no_run_follow(cli: Cli, stored: Stored, tmp_path: Path) -> None:
    (report,) = stored("nsys/memcpy.sqlite")
    (path,) = (DATA / "trials").glob("lora-*.json")
    trial = read_file(path)
    write(tmp_path / "store", trial)
    assert cli("ls") == 0
    titles = [line for line in cli.out.splitlines() if line.endswith(":")]
    assert titles == ["Trials:", "Reports of no run:"]
    assert trial.trial_id in cli.out and report in cli.out
    assert cli("ls", "--json") == 0
    assert [row["report_id"] for row in json.loads(cli.out)["reports"]] == [report]


def test_without_a_store_there_is_nothing_to_list(cli: Cli) -> None:
    assert cli("ls") == 2
    assert "no store" in cli.err
