"""CI: the action and the examples fit their schemas, their shell runs, and comments are updated."""

from __future__ import annotations

import json
import lzma
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from actionruns import ACTION, Site, load
from conftest import DATA, ROOT, Cli, lacking

from perfpipe.pipelines.gate.comment import forge
from perfpipe.pipelines.gate.outputs import MARKER

GITHUB = ROOT / "docs" / "ci" / "github.yml"
GITLAB = ROOT / "docs" / "ci" / "gitlab-ci.yml"

#: Variables of every step.
_GITHUB = {"GITHUB_ACTION_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"}


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
    content = load(path)
    assert not _faults(schema, content)
    assert _faults(schema, {**content, "no_such_key": 1})


def test_the_action_takes_what_it_reads_and_the_example_gives_what_it_takes() -> None:
    action = load(ACTION)
    text = ACTION.read_text()
    read = {*re.findall(r"inputs\.([\w-]+)", text)}
    assert read == action["inputs"].keys()
    steps = action["runs"]["steps"]
    known = {step["id"] for step in steps if "id" in step}
    assert {*re.findall(r"steps\.(\w+)\.outputs", text)} == known
    for step in steps:
        # Expressions in a script would let a branch name run commands.
        assert "${{" not in step.get("run", "")
        for script in re.findall(r"ci/[\w.]+", step.get("run", "")):
            variables = {*re.findall(r"\$\{?([A-Z_]+)", (ROOT / script).read_text())}
            given = {*step["env"], "RUNNER_TEMP", *_GITHUB}
            assert variables <= given, script
    given = load(GITHUB)["jobs"]["gate"]["steps"][-1]["with"]
    assert given.keys() <= action["inputs"].keys()
    assert action["inputs"]["workload"]["required"] is True


def test_the_example_cancels_no_other_pull_request() -> None:
    """All waiting jobs of a group but the newest are canceled."""
    assert "github.event.pull_request.number" in load(GITHUB)["concurrency"]["group"]


# The shell of GitLab


def test_the_gitlab_script_runs(runner: dict[str, str], comment_site: Site, tmp_path: Path) -> None:
    job = load(GITLAB)["performance"]
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
        "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "9", "CI_API_V4_URL": comment_site.url,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "aaa", "CI_COMMIT_SHA": "bbb",
    }  # fmt: skip

    def run(**more: str) -> None:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])],
            cwd=tmp_path, env={**env, **more},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 3, done.stderr

    run()
    assert "--git aaa...bbb --json perfpipe.json" in (tmp_path / "said").read_text()
    assert comment_site.comments[-1]["body"].startswith("<!-- perfpipe check perfpipe -->\n**x**")
    assert comment_site.headers["Private-Token"] == "t0ken"
    # For merged results, CI_COMMIT_SHA is a merge with the target branch.
    run(CI_MERGE_REQUEST_SOURCE_BRANCH_SHA="ccc", CI_API_V4_URL="http://127.0.0.1:9")
    assert "--git aaa...ccc " in (tmp_path / "said").read_text()


# Comments


def test_comments_of_several_gates(
    comment_site: Site, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_REPOSITORY", "CI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "c.md").write_text(f"{MARKER}\none\n")
    assert cli("gate", "comment", "c.md") == 2
    assert "not a CI job of GitHub or GitLab" in cli.err
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GITHUB_API_URL", comment_site.url)
    assert cli("gate", "comment", "c.md", "--number", "3") == 2
    assert "GITHUB_TOKEN is not set" in cli.err
    monkeypatch.setenv("GITHUB_TOKEN", "wrong")
    assert cli("gate", "comment", "c.md", "--number", "3") == 1
    assert "403" in cli.err
    assert "wrong" not in cli.err
    monkeypatch.setenv("GITHUB_TOKEN", "right")
    monkeypatch.setenv("GITHUB_REF", "refs/pull/3/merge")
    for name in ("a", "b c", "a"):
        assert cli("gate", "comment", "c.md", "--name", name) == 0, cli.err
    bodies = [one["body"] for one in comment_site.comments if one["body"] != "other"]
    assert bodies == [f"<!-- perfpipe check {name} -->\none\n" for name in ("a", "b-c")]
    (tmp_path / "c.md").write_text("free text")
    assert cli("gate", "comment", "c.md") == 2
    assert "does not begin with" in cli.err
    assert cli("gate", "comment", "none.md") == 2


def test_where_comments_go() -> None:
    env = {"GITHUB_REPOSITORY": "o/r", "GITHUB_REF": "refs/pull/12/merge", "GITHUB_TOKEN": "t"}
    github = forge(None, env)
    assert github.comments == "https://api.github.com/repos/o/r/issues/12/comments"
    gitlab = forge(None, {"CI_PROJECT_ID": "g/p", "CI_MERGE_REQUEST_IID": "4", "GITLAB_TOKEN": "t"})
    assert gitlab.comments == "https://gitlab.com/api/v4/projects/g%2Fp/merge_requests/4/notes"
