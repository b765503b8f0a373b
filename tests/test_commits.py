"""The commits of `ab --git`: where a branch began, and what a clone lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perfpipe.errors import InputError
from perfpipe.pipelines.gate.commits import two_commits


def _git(where: Path, *words: str) -> str:
    command = ["git", "-C", str(where), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _commit(where: Path, name: str) -> str:
    _git(where, "commit", "--allow-empty", "-m", name)
    return _git(where, "rev-parse", "HEAD")


@pytest.fixture
def history(tmp_path: Path) -> dict[str, str]:
    """A repository where main moves on after a branch has begun; the commits by name."""
    _git(tmp_path, "init", "-b", "main", "r")
    where = tmp_path / "r"
    found = {"first": _commit(where, "first"), "began": _commit(where, "began")}
    _git(where, "checkout", "-b", "topic")
    found["topic"] = _commit(where, "topic")
    _git(where, "checkout", "main")
    found["main"] = _commit(where, "moved on")
    _git(where, "checkout", "--orphan", "apart")
    found["apart"] = _commit(where, "apart")
    return found


def test_two_and_three_dots(history: dict[str, str], tmp_path: Path) -> None:
    where = tmp_path / "r"
    assert two_commits(where, "main..topic") == (history["main"], history["topic"])
    assert two_commits(where, "main...topic") == (history["began"], history["topic"])
    _git(where, "tag", "v1.0", "main~1")
    assert two_commits(where, "v1.0...main") == (history["began"], history["main"])
    assert two_commits(where, f"{history['main']}~2..HEAD")[0] == history["first"]


@pytest.mark.parametrize(
    ("span", "said"),
    [
        ("main", "expected two commits, A..B or A...B"),
        ("main..", "expected two commits"),
        ("...topic", "expected two commits"),
        ("main..nowhere", "nowhere is not a commit in this repository"),
        ("0" * 40 + "..main", f"{'0' * 40} is not a commit"),
        ("main...apart", "have no common ancestor"),
        ("--all..main", "--all is not a commit"),
    ],
)
@pytest.mark.usefixtures("history")
def test_what_is_not_two_commits(span: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        two_commits(tmp_path / "r", span)
    assert said in str(error.value)


def test_a_shallow_clone_gets_a_hint(history: dict[str, str], tmp_path: Path) -> None:
    url = (tmp_path / "r").as_uri()
    _git(tmp_path, "clone", "--depth=1", "--no-single-branch", "--branch=main", url, "c")
    for span, said in (
        (f"{history['began']}..HEAD", f"{history['began']} is not a commit in this repository"),
        ("main...origin/topic", "have no common ancestor"),
    ):
        with pytest.raises(InputError) as error:
            two_commits(tmp_path / "c", span)
        assert said in str(error.value)
        assert "which has only a part of the history" in str(error.value)
        assert "fetch-depth: 0" in str(error.value)
    _git(tmp_path / "c", "fetch", "--unshallow", "origin")
    assert two_commits(tmp_path / "c", "main...origin/topic")[0] == history["began"]
