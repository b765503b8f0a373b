"""What git says of where a program runs: recorded with each result, never in the way of it."""

from __future__ import annotations

import csv
import json
import subprocess
import time
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.pipelines import git as git_module
from perfpipe.pipelines.git import git_facts, places_of
from perfpipe.provenance import utc
from perfpipe.ranrecord import Git
from perfpipe.runrecord import RunRecord, TaskResult, task_row
from perfpipe.store import Store


def _git(where: Path, *words: str) -> str:
    command = ["git", "-C", str(where), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    where = tmp_path / "repository"
    (where / "inner").mkdir(parents=True)
    _git(where, "init", "-b", "main")
    (where / "inner" / "program.py").write_text('print(\'{"perfpipe": "time", "ms": [1.5]}\')\n')
    (where / "inner" / "w.yaml").write_text(
        "version: 1\nname: w\ncommand: ['{python}', program.py]\n"
    )
    _git(where, "add", ".")
    _git(where, "commit", "-m", "one")
    return where


def test_commit_branch_and_whether_files_differ(repository: Path, tmp_path: Path) -> None:
    commit = _git(repository, "rev-parse", "HEAD")
    at = utc(int(_git(repository, "show", "--no-patch", "--format=%ct")))
    inner = repository / "inner"
    assert git_facts(inner) == Git(commit, "main", False, at)
    (inner / "untracked").touch()
    assert git_facts(inner) == Git(commit, "main", False, at)
    (inner / "program.py").write_text("")
    assert git_facts(inner) == Git(commit, "main", True, at)
    _git(repository, "checkout", "--detach", "-f")
    assert git_facts(inner) == Git(commit, None, False, at)
    assert Git(commit, None, True).name == f"{commit[:9]}+"
    assert git_facts(tmp_path) is None
    _git(tmp_path, "init", "new")
    assert git_facts(tmp_path / "new") is None, "no commit yet"


def test_another_repository_in_the_environment(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert git_facts(repository) is not None


@pytest.mark.parametrize("text", ["", "ref: refs/heads/nowhere\n", "\0" * 40])
def test_a_broken_repository_is_none(repository: Path, text: str) -> None:
    (repository / ".git" / "HEAD").write_text(text)
    assert git_facts(repository) is None


def test_git_that_is_absent_or_hangs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert git_facts(repository) is None, "not even env is there"
    (programs / "env").symlink_to("/usr/bin/env")
    assert git_facts(repository) is None
    (programs / "git").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setattr(git_module, "_PATIENCE_S", 0.5)
    began = time.monotonic()
    assert git_facts(repository) is None
    assert time.monotonic() - began < 30


def test_places_follow_parents(repository: Path, tmp_path: Path) -> None:
    def commit(name: str, date: str) -> str:
        _git(repository, "commit", "--allow-empty", "-m", name, f"--date={date}")
        return _git(repository, "rev-parse", "HEAD")

    first = _git(repository, "rev-parse", "HEAD")
    main = commit("main", "2026-01-02T00:00:00Z")
    _git(repository, "checkout", "-b", "topic", first)
    topic = commit("topic", "2026-01-01T00:00:00Z")
    _git(repository, "checkout", "main")
    _git(repository, "merge", "--no-ff", "-m", "merge", "topic")
    merge = _git(repository, "rev-parse", "HEAD")
    last = commit("last", "2020-01-01T00:00:00Z")
    gone = "ab" * 20
    found = places_of(repository / "inner", [last, gone, topic, "--all", first, main, merge])
    assert found.keys() == {first, main, topic, merge, last}
    assert found[first] < min(found[main], found[topic])
    assert max(found[main], found[topic]) < found[merge] < found[last]
    assert places_of(repository, ["--output=x", "HEAD"]) == {}, "only whole ids"
    assert places_of(tmp_path, [first]) == {}, "no repository"


def test_every_result_has_them(repository: Path, cli: Cli, tmp_path: Path) -> None:
    path = repository / "inner" / "w.yaml"
    assert cli("run", str(path), "--collector", "timing", "--no-report") == 0, cli.err
    (task,) = Store(tmp_path / "store").runs()[0].tasks
    assert task.ran is not None
    at = utc(int(_git(repository, "show", "--no-patch", "--format=%ct")))
    assert task.ran.git == Git(_git(repository, "rev-parse", "HEAD"), "main", False, at)
    assert task.ran.machine
    sql = "SELECT git_commit, git_branch, git_dirty, machine FROM run_tasks"
    assert cli("query", sql, "--format", "csv") == 0, cli.err
    row = next(csv.reader(cli.out.splitlines()[1:]))
    assert row == [task.ran.git.commit, "main", "False", task.ran.machine]


def test_an_older_record_has_none(tmp_path: Path) -> None:
    task = TaskResult(0, "-", {}, times_ms=(1.0,))
    record = RunRecord("r", "w", "timing", "2026-11-22T10:00:00Z", "done", (), (task,))
    Store(tmp_path).write_run(record)
    path = tmp_path / "runs" / "r" / "run.json"
    content = json.loads(path.read_text())
    ran = {"started_at": "a", "ended_at": "b", "seconds": 1.0, "host": "h"}
    for own in content["tasks"]:
        del own["variant"]
        own["ran"] = ran
    path.write_text(json.dumps(content))
    (found,) = RunRecord.read(path).tasks
    assert found.ran is not None
    assert (found.ran.git, found.ran.machine, found.variant) == (None, None, ())
    assert None in task_row(record, found)
