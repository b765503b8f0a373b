"""CI: the action and the examples fit their schemas, their shell runs, and comments are updated."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from conftest import DATA, ROOT, Cli, lacking

from perfpipe.pipelines.gate.comment import forge
from perfpipe.pipelines.gate.outputs import MARKER

ACTION = ROOT / "action.yml"
GITHUB = ROOT / "docs" / "ci" / "github.yml"
GITLAB = ROOT / "docs" / "ci" / "gitlab-ci.yml"


def _load(path: Path) -> dict[str, Any]:
    """Return a file as CI systems read it: `on` is a word."""
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.yaml_implicit_resolvers = {  # type: ignore[attr-defined]
        first: [(tag, rule) for tag, rule in rules if first not in "oO"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    found: dict[str, Any] = yaml.load(path.read_text(), loader)
    return found


def _faults(schema: str, content: object) -> list[str]:
    try:
        jsonschema = import_module("jsonschema")
    except ImportError:
        lacking("jsonschema is not installed")
    rules = json.loads(lzma.decompress((DATA / "ci" / f"{schema}.schema.json.xz").read_bytes()))
    return [error.message for error in jsonschema.Draft7Validator(rules).iter_errors(content)]


@pytest.mark.parametrize(
    ("path", "schema"),
    [(ACTION, "github-actions"), (GITHUB, "github-workflows"), (GITLAB, "gitlab-ci")],
    ids=lambda value: getattr(value, "name", value),
)
def test_ci_files_fit_their_schemas(path: Path, schema: str) -> None:
    content = _load(path)
    assert not _faults(schema, content)
    assert _faults(schema, {**content, "no_such_key": 1})


def test_the_action_takes_what_it_reads_and_the_example_gives_what_it_takes() -> None:
    action = _load(ACTION)
    text = ACTION.read_text()
    read = {*re.findall(r"inputs\.([\w-]+)", text)}
    assert read == action["inputs"].keys()
    steps = action["runs"]["steps"]
    known = {step["id"] for step in steps if "id" in step}
    assert {*re.findall(r"steps\.(\w+)\.outputs", text)} == known
    for step in steps:
        # Expressions in a script would let a branch name run commands.
        assert "${{" not in step.get("run", "")
    given = _load(GITHUB)["jobs"]["gate"]["steps"][-1]["with"]
    assert given.keys() <= action["inputs"].keys()
    assert action["inputs"]["workload"]["required"] is True


# The shell


class _Site:
    """Stands for a site's comments, as GitHub's or GitLab's API gives them."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = [{"id": at, "body": "other"} for at in range(100)]
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = int(re.findall(r"[?&]page=(\d+)", self.path)[0])
                self._answer(site.comments[100 * (page - 1) : 100 * page])

            def _change(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))["body"]
                if self.command == "POST":
                    site.comments.append({"id": len(site.comments), "body": body})
                else:
                    site.comments[int(self.path.rpartition("/")[2])]["body"] = body
                self._answer({})

            do_POST = do_PATCH = do_PUT = _change  # noqa: N815

            def _answer(self, content: object) -> None:
                site.asked.append(f"{self.command} {self.path}")
                site.headers = dict(self.headers)
                refused = self.headers.get("Authorization") == "Bearer wrong"
                self.send_response(403 if refused else 200)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def site() -> Iterator[_Site]:
    found = _Site()
    yield found
    found.server.shutdown()
    found.server.server_close()


def _ask(expression: str, known: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        return known.get(match[1].strip(), "")

    return re.sub(r"\$\{\{(.*?)\}\}", one, expression)


def _act(known: dict[str, str], env: Mapping[str, str], where: Path) -> tuple[int, dict[str, str]]:
    """Run the shell steps of the action as a runner does; return the last exit code and outputs."""
    action = _load(ACTION)
    known = {
        **{f"inputs.{k}": str(v.get("default", "")) for k, v in action["inputs"].items()},
        **known,
    }
    code = 0
    for step in action["runs"]["steps"]:
        if "run" not in step or (step["name"] == "Comment" and not known.get("comment")):
            continue
        (where / "output").write_text("")
        own = {name: _ask(str(value), known) for name, value in step.get("env", {}).items()}
        script = where / "step.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=where, env={**env, **own}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        for line in (where / "output").read_text().splitlines():
            name, _, value = line.partition("=")
            known[f"steps.{step.get('id')}.outputs.{name}"] = value
        code = done.returncode
        if code:
            known["said"] = done.stdout + done.stderr
            break
    return code, known


@pytest.fixture
def runner(tmp_path: Path, site: _Site) -> dict[str, str]:
    """The environment of a runner, with a program that takes MS ms."""
    program = tmp_path / "perfpipe"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfpipe "$@"\n')
    program.chmod(0o755)
    (tmp_path / "program.py").write_text(
        "import json, os, random\n"
        "ms = float(os.environ['MS']) * random.uniform(1, 1.001)\n"
        "print(json.dumps({'perfpipe': 'time', 'ms': [ms] * 3}))\n"
    )
    (tmp_path / "w.yaml").write_text(
        "version: 1\nname: w\ncommand: ['{python}', program.py]\ncollect: {nvml: null}\n"
    )
    return {
        **os.environ,
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_API_URL": site.url,
    }


def test_the_action_checks_and_comments(
    runner: dict[str, str],
    site: _Site,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MS", "10")
    for _ in range(2):
        assert cli("run", "w.yaml", "--collector", "timing", "--no-report") == 0, cli.err
    runs = sorted(path.name for path in (tmp_path / "store" / "runs").iterdir() if path.is_dir())
    assert cli("baseline", "export", ",".join(runs), "baseline.json") == 0, cli.err
    inputs = {
        "inputs.workload": "w.yaml",
        "inputs.runs": "2",
        "inputs.perfpipe": str(tmp_path / "perfpipe"),
        "inputs.token": "t0ken",
        "github.event.pull_request.number": "7",
        "comment": "true",
    }
    code, known = _act(inputs, {**runner, "MS": "12"}, tmp_path)
    assert code == 3, known.get("said")
    assert known["steps.gate.outputs.verdict"] == "regressed"
    assert known["steps.gate.outputs.action"] == "investigate"
    report = Path(known["steps.gate.outputs.report"])
    names = ["junit.xml", "perfpipe.html", "perfpipe.json", "perfpipe.md", "store"]
    assert sorted(path.name for path in report.iterdir()) == names
    said = re.search(r"Regressed: iteration: \+([\d.]+) %", (tmp_path / "summary").read_text())
    assert said, "the summary gives the verdict"
    assert float(said[1]) == pytest.approx(20, abs=0.3)
    (body,) = (one["body"] for one in site.comments if one["body"] != "other")
    assert body.startswith("<!-- perfpipe check perfpipe -->\n**perfpipe: Regressed")
    assert "**Why it changed:**" in body
    code, known = _act(inputs, {**runner, "MS": "10"}, tmp_path)
    assert code == 0, known.get("said")
    (body,) = (one["body"] for one in site.comments if one["body"] != "other")
    assert "**perfpipe: Same" in body, "the comment updates itself"
    assert site.asked[-1].startswith("PATCH /repos/o/r/issues/comments/")


def test_the_action_measures_two_commits(runner: dict[str, str], tmp_path: Path) -> None:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    git("init")
    for ms in ("10", "9"):
        (tmp_path / "program.py").write_text(
            f'print(\'{{"perfpipe": "time", "ms": [{ms}, {ms}]}}\')\n'
        )
        git("add", "program.py", "w.yaml")
        git("commit", "-m", ms)
    inputs = {
        "inputs.mode": "ab",
        "inputs.workload": "w.yaml",
        "inputs.runs": "3",
        "inputs.arguments": "--no-confirm\n--fail-on\ninconclusive\n",
        "inputs.perfpipe": str(tmp_path / "perfpipe"),
        "github.event.pull_request.base.sha": git("rev-parse", "HEAD~1"),
        "github.event.pull_request.head.sha": git("rev-parse", "HEAD"),
    }
    code, known = _act(inputs, runner, tmp_path)
    assert code == 0, known.get("said")
    assert known["steps.gate.outputs.verdict"] == "improved"


def test_the_action_refuses_what_it_cannot_do(runner: dict[str, str], tmp_path: Path) -> None:
    usual = {"inputs.workload": "w.yaml", "inputs.perfpipe": str(tmp_path / "perfpipe")}
    for given, sentence in (
        ({"inputs.mode": "both"}, "mode is check or ab, not 'both'"),
        ({"inputs.name": "../x"}, "name has letters"),
    ):
        code, known = _act({**usual, **given}, runner, tmp_path)
        assert code == 2
        assert sentence in known["said"]


def test_the_gitlab_script_runs(runner: dict[str, str], site: _Site, tmp_path: Path) -> None:
    job = _load(GITLAB)["performance"]
    fake = tmp_path / "fake"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = comment ] && exec "$REAL" "$@"\n'
        f"echo '{MARKER}\n**x**' >perfpipe.md; echo \"$@\" >said; exit 3\n"
    )
    fake.chmod(0o755)
    env = {
        **{name: value for name, value in runner.items() if not name.startswith("GITHUB_")},
        **{name: str(value) for name, value in job["variables"].items()},
        "PERFPIPE": str(fake), "REAL": str(tmp_path / "perfpipe"), "GITLAB_TOKEN": "t0ken",
        "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "9", "CI_API_V4_URL": site.url,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "aaa", "CI_COMMIT_SHA": "bbb",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "--git aaa..bbb --json perfpipe.json" in (tmp_path / "said").read_text()
    assert site.comments[-1]["body"].startswith("<!-- perfpipe check perfpipe -->\n**x**")
    assert site.headers["Private-Token"] == "t0ken"


# Comments


def test_comments_of_several_gates(
    site: _Site, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_REPOSITORY", "CI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "c.md").write_text(f"{MARKER}\none\n")
    assert cli("comment", "c.md") == 2
    assert "not a CI job of GitHub or GitLab" in cli.err
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GITHUB_API_URL", site.url)
    assert cli("comment", "c.md", "--number", "3") == 2
    assert "GITHUB_TOKEN is not set" in cli.err
    monkeypatch.setenv("GITHUB_TOKEN", "wrong")
    assert cli("comment", "c.md", "--number", "3") == 1
    assert "403" in cli.err
    assert "wrong" not in cli.err
    monkeypatch.setenv("GITHUB_TOKEN", "right")
    monkeypatch.setenv("GITHUB_REF", "refs/pull/3/merge")
    for name in ("a", "b c", "a"):
        assert cli("comment", "c.md", "--name", name) == 0, cli.err
    bodies = [one["body"] for one in site.comments if one["body"] != "other"]
    assert bodies == [f"<!-- perfpipe check {name} -->\none\n" for name in ("a", "b-c")]
    (tmp_path / "c.md").write_text("free text")
    assert cli("comment", "c.md") == 2
    assert "does not begin with" in cli.err
    assert cli("comment", "none.md") == 2


def test_where_comments_go() -> None:
    env = {"GITHUB_REPOSITORY": "o/r", "GITHUB_REF": "refs/pull/12/merge", "GITHUB_TOKEN": "t"}
    github = forge(None, env)
    assert github.comments == "https://api.github.com/repos/o/r/issues/12/comments"
    gitlab = forge(None, {"CI_PROJECT_ID": "g/p", "CI_MERGE_REQUEST_IID": "4", "GITLAB_TOKEN": "t"})
    assert gitlab.comments == "https://gitlab.com/api/v4/projects/g%2Fp/merge_requests/4/notes"
