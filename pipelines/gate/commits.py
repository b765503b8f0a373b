"""The two commits that a comparison names, in the repository of a workload."""

from __future__ import annotations

import re
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.pipelines.git import run_git

#: Two revisions; the name of a revision contains no two successive dots.
_SPAN = re.compile(r"(?P<first>[^.].*?)(?P<dots>\.{2,3})(?P<second>[^.].*)")


def two_commits(where: Path, span: str) -> tuple[str, str]:
    """Return the commits of A..B or A...B in the repository of a directory.

    A...B means, as in git, the last common ancestor of A and B instead of A.  Raises InputError if
    a commit is not in the repository, or if A and B have no common ancestor.
    """
    found = _SPAN.fullmatch(span)
    if found is None:
        raise InputError(f"--git {span}: expected two commits, A..B or A...B")
    first, second = (_commit(where, found[name]) for name in ("first", "second"))
    return (_common(where, first, second) if found["dots"] == "..." else first), second


def git(where: Path, *words: str) -> str:
    """Return what git prints in a directory; raises InputError if it fails."""
    done = run_git(where, *words)
    if not done.ok:
        raise InputError(f"git {' '.join(words[:2])}: {done.complaint()}")
    return done.stdout.strip()


def _commit(where: Path, name: str) -> str:
    done = run_git(where, "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
    if not done.ok:
        raise InputError(f"--git: {name} is not a commit in this repository{part_of(where)}")
    return done.stdout.strip()


def _common(where: Path, first: str, second: str) -> str:
    done = run_git(where, "merge-base", first, second)
    if not done.ok:
        names = f"{first[:9]} and {second[:9]}"
        raise InputError(
            f"--git: {names} have no common ancestor in this repository{part_of(where)}"
        )
    return done.stdout.strip()


def part_of(where: Path) -> str:
    """Return the end of a sentence about a clone without the whole history; else nothing."""
    if git(where, "rev-parse", "--is-shallow-repository") != "true":
        return ""
    return (
        ", which has only a part of the history; fetch all of it (GitHub: fetch-depth: 0 of "
        'actions/checkout; GitLab: GIT_DEPTH: "0"; elsewhere: git fetch --unshallow)'
    )
