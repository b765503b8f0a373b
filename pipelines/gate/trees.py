"""Work trees of commits, in each of which the program is built once; removed in the end."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.complaint import exit_sentence
from perfpipe.pipelines.gate.commits import git
from perfpipe.pipelines.git import run_git
from perfpipe.pipelines.process import Finished, run
from perfpipe.scratch import scratch

#: How long a build may take, s.
_BUILD_S = 7200.0

#: Submodules may be on this machine, which git refuses unless it is allowed.
_SUBMODULES = ("-c", "protocol.file.allow=always", "submodule", "update", "--init", "--recursive")


class Trees:
    """Work trees of a repository at `root`; programs run in the directory `inside` of each."""

    def __init__(self, root: Path, inside: Path, folder: Path, build: str | None) -> None:
        self.root, self._inside, self._folder, self._build = root, inside, folder, build
        self._made: dict[str, Path] = {}

    def directory(self, commit: str) -> Path:
        """Return the program's directory in the work tree of a commit, built.

        Raises TaskFailed if the commit cannot be checked out or built, or has no such directory.
        """
        if commit not in self._made:
            tree = self._folder / commit[:12]
            self._check_out(tree, commit)
            self._made[commit] = tree
        directory = self._made[commit] / self._inside
        if not directory.is_dir():
            raise TaskFailed(f"{commit[:12]} has no directory {self._inside}")
        return directory

    def remove(self) -> None:
        """Remove all work trees."""
        for tree in self._folder.iterdir():
            run_git(self.root, "worktree", "remove", "--force", "--force", str(tree))

    def _check_out(self, tree: Path, commit: str) -> None:
        added = run_git(self.root, "worktree", "add", "--detach", str(tree), commit)
        _check(added, "worktree add")
        if (tree / ".gitmodules").exists():
            _check(run_git(tree, *_SUBMODULES), "submodule update")
        if self._build is None:
            return
        done = run(shlex.split(self._build), cwd=tree, timeout=_BUILD_S)
        if not done.ok:
            raise TaskFailed(f"{self._build} failed in {commit[:12]}: {_why(done)}")


@contextmanager
def work_trees(directory: Path, build: str | None) -> Iterator[Trees]:
    """Yield the work trees of the repository of a program's directory; they are removed at the end.

    Raises InputError if it is in no repository.
    """
    root = repository(directory)
    with scratch() as folder:
        trees = Trees(root, directory.resolve().relative_to(root), folder, build)
        try:
            yield trees
        finally:
            trees.remove()


def repository(directory: Path) -> Path:
    """Return the top directory of the repository of a directory; raises InputError if none."""
    return Path(git(directory, "rev-parse", "--show-toplevel")).resolve()


def check_places(root: Path, texts: Iterable[str]) -> None:
    """Raise InputError if a word or variable names a file of the checkout by its absolute path.

    All commits would then run this file.
    """
    for path in (part for text in texts for part in text.split(":")):
        inside = path.startswith("/") and Path(path).resolve().is_relative_to(root)
        if inside and run_git(root, "ls-files", "--", path).stdout:
            raise InputError(
                f"{path} is in this checkout, so each commit would use the same file: give a path "
                "relative to the program's directory"
            )


def succeeds(where: Path, *words: str) -> bool:
    """Return whether a git command exits with 0."""
    return run_git(where, *words).ok


def _check(done: Finished, what: str) -> None:
    if not done.ok:
        raise TaskFailed(f"git {what}: {_why(done)}")


def _why(done: Finished) -> str:
    if done.timed_out:
        return f"it took longer than {done.seconds:.0f} s"
    return done.complaint() or exit_sentence(done.returncode)
