"""Git state of the directory that a program runs in, without disturbing a measurement."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from pathlib import Path

from perfpipe.errors import PerfpipeError, ToolMissing
from perfpipe.pipelines.process import Finished, run
from perfpipe.provenance import utc
from perfpipe.ranrecord import Git

#: How long git may take for a command, such as the checkout of a large work tree, s.
GIT_S = 600.0

#: Exit code of env if there is no such program.
_NOT_FOUND = 127

#: Time limit beside a measurement, s: work trees can be large and file systems slow.
_PATIENCE_S = 5.0

#: Time limit for reading a history, s: it may have a million commits.
_HISTORY_S = 120.0

#: A whole id of a commit.
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

#: The command git: ignores the repository of a hook; never starts a daemon, takes a lock or asks.
GIT = (
    *("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE"),
    *("GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "git", "-c", "core.fsmonitor=false"),
)


def run_git(where: Path, *words: str, timeout: float = GIT_S) -> Finished:
    """Run git in a directory; raises ToolMissing without git."""
    done = run([*GIT, "-C", str(where), *words], timeout=timeout)
    if done.returncode == _NOT_FOUND:
        raise ToolMissing("git: no such program")
    return done


def git_facts(directory: Path) -> Git | None:
    """Return what is checked out in a directory; None if git is missing or does not answer.

    Untracked files do not make it dirty.
    """
    status = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    try:
        done = run_git(directory, *status, timeout=_PATIENCE_S)
    except PerfpipeError:
        return None
    if not done.ok:
        return None
    lines = done.stdout.splitlines()
    about = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit = about.get("branch.oid", "(initial)")
    branch = about.get("branch.head", "(detached)")
    if commit == "(initial)":
        return None
    dirty = any(not line.startswith("#") for line in lines)
    return Git(
        commit, None if branch == "(detached)" else branch, dirty, _commit_time(directory, commit)
    )


def _commit_time(directory: Path, commit: str) -> str | None:
    """Return when a commit was made, UTC; None if git does not answer."""
    try:
        words = ("show", "--no-patch", "--format=%ct", commit)
        done = run_git(directory, *words, timeout=_PATIENCE_S)
        seconds = int(done.stdout) if done.ok else None
    except (PerfpipeError, ValueError):
        return None
    return None if seconds is None else utc(seconds)


def places_of(directory: Path, commits: Collection[str]) -> dict[str, int]:
    """Return the places of commits in git's order, in which no commit comes before its parents.

    The order is that of the repository around a directory; commits that it lacks have no place.
    """
    # Records of other users are no options of git.
    wanted = {commit for commit in commits if _ID.fullmatch(commit)}
    found: dict[str, int] = {}
    numbers = itertools.count()

    def number(line: str) -> None:
        place = next(numbers)
        if (commit := line.strip()) in wanted:
            found[commit] = place

    if not wanted:
        return {}
    words = ("rev-list", "--topo-order", "--reverse", "--ignore-missing", *sorted(wanted))
    try:
        run([*GIT, "-C", str(directory), *words], timeout=_HISTORY_S, on_line=number)
    except PerfpipeError:
        return {}
    return found
