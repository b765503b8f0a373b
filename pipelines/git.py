"""Git state of the directory that a program runs in, without disturbing a measurement."""

from __future__ import annotations

from pathlib import Path

from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.process import run
from perfpipe.ranrecord import Git

#: Time limit for git, s: work trees can be large and file systems slow.
_PATIENCE_S = 5.0

#: Ignores the repository of a git hook; never starts a daemon, takes a lock or prompts.
_COMMAND = (
    *("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE"),
    *("GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "git", "-c", "core.fsmonitor=false"),
)


def git_facts(directory: Path) -> Git | None:
    """Return what is checked out in a directory; None if git is missing or does not answer.

    Untracked files do not make it dirty.
    """
    status = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    try:
        done = run([*_COMMAND, "-C", str(directory), *status], timeout=_PATIENCE_S)
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
    return Git(commit, None if branch == "(detached)" else branch, dirty)
