"""The action: its steps run in a repository with a moving main, a fork, and a site that refuses."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from actionruns import Repository, Site, act
from conftest import ROOT, Cli


def test_the_action_checks_and_comments(
    runner: dict[str, str],
    comment_site: Site,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MS", "10")
    for _ in range(2):
        assert cli("run", "w.yaml", "--collector", "timing", "--no-report") == 0, cli.err
    runs = sorted(path.name for path in (tmp_path / "store" / "runs").iterdir() if path.is_dir())
    assert cli("gate", "baseline", "export", ",".join(runs), "baseline.json") == 0, cli.err
    inputs = {
        "inputs.workload": "w.yaml",
        "inputs.runs": "2",
        "inputs.perfpipe": str(tmp_path / "perfpipe"),
        "inputs.token": "t0ken",
        "github.event.pull_request.number": "7",
    }
    code, known = act(inputs, {**runner, "MS": "12"}, tmp_path)
    assert code == 3, known.get("said")
    assert known["steps.gate.outputs.verdict"] == "regressed"
    assert known["steps.gate.outputs.action"] == "investigate"
    report = Path(known["steps.gate.outputs.report"])
    names = ["junit.xml", "perfpipe.html", "perfpipe.json", "perfpipe.md", "store"]
    assert sorted(path.name for path in report.iterdir()) == names
    said = re.search(r"Regressed: iteration: \+([\d.]+) %", (tmp_path / "summary").read_text())
    assert said, "the summary gives the verdict"
    assert float(said[1]) == pytest.approx(20, abs=0.3)
    (body,) = (one["body"] for one in comment_site.comments if one["body"] != "other")
    assert body.startswith("<!-- perfpipe check perfpipe -->\n**perfpipe: Regressed")
    assert "**Why it changed:**" in body
    code, known = act(inputs, {**runner, "MS": "10"}, tmp_path)
    assert code == 0, known.get("said")
    (body,) = (one["body"] for one in comment_site.comments if one["body"] != "other")
    assert "**perfpipe: Same" in body, "the comment updates itself"
    assert comment_site.asked[-1].startswith("PATCH /repos/o/r/issues/comments/")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def ab(tmp_path: Path) -> dict[str, str]:
    """The inputs of an action that compares commits."""
    return {
        "inputs.mode": "ab",
        "inputs.workload": "w.yaml",
        "inputs.runs": "2",
        "inputs.arguments": "--no-confirm --fail-on 'inconclusive'\n--no-early-stop",
        "inputs.perfpipe": str(tmp_path / "perfpipe"),
        "inputs.token": "t0ken",
    }


def test_a_pull_request_is_not_blamed_for_its_base(
    ab: dict[str, str], runner: dict[str, str], repository: Repository, tmp_path: Path
) -> None:
    """Main became 10 % faster after the pull request began, which changes nothing."""
    for name, code, verdict in (("nothing", 0, "same"), ("slower", 3, "regressed")):
        where = repository.checkout(f"refs/pull/{name}/merge")
        found, known = act({**ab, **repository.event(name)}, runner, tmp_path, cwd=where)
        assert found == code, known["said"]
        assert known["steps.gate.outputs.verdict"] == verdict
    assert "+20.0 %" in known["said"], "the pull request, not main, is what it is compared with"


@pytest.mark.parametrize("token", ["wrong", "mute", "odd", "", "down"])
def test_a_comment_that_cannot_be_posted_changes_no_verdict(
    token: str, ab: dict[str, str], runner: dict[str, str], repository: Repository, tmp_path: Path
) -> None:
    """The token of a fork cannot write; the site may be down, or answer something else."""
    where = repository.checkout("refs/pull/slower/merge")
    known = {**ab, **repository.event("slower"), "inputs.token": token}
    known["inputs.arguments"] = "--no-confirm"
    env = {**runner, "GITHUB_API_URL": "http://127.0.0.1:9"} if token == "down" else runner
    code, known = act(known, env, tmp_path, cwd=where)
    assert code == 3, known["said"]
    assert "::warning::The comment could not be posted" in known["said"]
    assert "Traceback" not in known["said"]
    assert "Regressed" in (tmp_path / "summary").read_text(), "the summary says the same"


def test_other_events(
    ab: dict[str, str], runner: dict[str, str], repository: Repository, tmp_path: Path
) -> None:
    where = repository.checkout("refs/heads/main")
    own = repository.commits
    push = {"github.sha": own["main"], "github.event.repository.default_branch": "main"}
    for event, verdict in (
        ({**push, "github.event.before": own["began"]}, "improved"),
        ({**push, "github.event.before": "0" * 40}, "same"),
        ({**push, "github.event.merge_group.base_sha": own["began"],
          "github.event.merge_group.head_sha": own["main"]}, "improved"),
        ({**push, "inputs.commits": f"{own['first']}..{own['began']}"}, "same"),
    ):  # fmt: skip
        code, known = act({**ab, **event}, runner, tmp_path, cwd=where)
        assert code == 0, known["said"]
        assert known["steps.gate.outputs.verdict"] == verdict, event
    code, known = act({**ab, **push}, runner, tmp_path, cwd=where)
    assert code == 2
    assert "this event has no earlier commit: give the input commits, A..B" in known["said"]


def test_a_checkout_without_history_gets_a_hint(
    ab: dict[str, str], runner: dict[str, str], repository: Repository, tmp_path: Path
) -> None:
    where = repository.checkout("refs/pull/slower/merge", "--depth=1")
    code, known = act({**ab, **repository.event("slower")}, runner, tmp_path, cwd=where)
    assert code == 2
    assert "is not a commit in this repository, which has only a part of the" in known["said"]
    assert "fetch-depth: 0" in known["said"]


def test_the_action_refuses_what_it_cannot_do(runner: dict[str, str], tmp_path: Path) -> None:
    usual = {"inputs.workload": "w.yaml", "inputs.perfpipe": str(tmp_path / "perfpipe")}
    (tmp_path / "bad.json").write_text('{"kind": "perfpipe baseline", "version": 1}')
    for given, sentence in (
        ({"inputs.mode": "both"}, "mode is check or ab, not 'both'"),
        ({"inputs.name": "../x"}, "name has letters"),
        ({"inputs.runs": "a[$(id)]"}, "runs is a number of at least 1"),
        ({"inputs.arguments": "--confirms 'x"}, "arguments has a quote without its end"),
        ({}, "baseline.json: no such file"),
        ({"inputs.baseline": "bad.json"}, "names is missing"),
    ):
        code, known = act({**usual, **given}, runner, tmp_path)
        assert code == 2
        assert sentence in known["said"]
        assert "measured" not in known["said"], "nothing runs before bad input is refused"


def test_the_installation_is_made_once(runner: dict[str, str], tmp_path: Path) -> None:
    """The key changes with the sources and with what the gate needs; the cache is not built anew."""
    source = tmp_path / "source"
    for folder in ("perfpipe", "analysis", "ingest", "pipelines", "templates", "workloads"):
        (source / folder).mkdir(parents=True)
    shutil.copytree(ROOT / "ci", source / "ci")
    (source / "pyproject.toml").touch()
    (source / "analysis" / "a.py").write_text("1")

    def keys(arguments: str = "") -> dict[str, str]:
        env = {**runner, "GITHUB_ACTION_PATH": str(source), "ARGUMENTS": arguments}
        (tmp_path / "output").write_text("")
        subprocess.run(["bash", source / "ci" / "key.sh"], env=env, check=True, timeout=60)
        lines = (tmp_path / "output").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    first = keys()
    assert first == keys("--fail-on inconclusive")
    assert first["kind"] == "gate"
    full = keys("--explain")
    assert full["kind"] == "full"
    assert full["venv"] != first["venv"]
    (source / "analysis" / "a.py").write_text("2")
    assert keys()["key"] != first["key"]
    venv = Path(first["venv"])
    (venv / "bin").mkdir(parents=True)
    shutil.copy(tmp_path / "perfpipe", venv / "bin")
    env = {
        **runner,
        "GITHUB_ACTION_PATH": str(source),
        "PERFPIPE": "",
        "VENV": str(venv),
        "KIND": "gate",
    }
    subprocess.run(["bash", source / "ci" / "install.sh"], env=env, check=True, timeout=60)
    assert f"perfpipe={venv}/bin/perfpipe" in (tmp_path / "output").read_text()
