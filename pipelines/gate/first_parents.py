"""The commits of a bisection: the first parents of BAD back to GOOD, each in its own work tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.pipelines.gate.arms import Arm, Source, arm_of
from perfpipe.pipelines.gate.commits import git, part_of, two_commits
from perfpipe.pipelines.gate.trees import Trees, succeeds, work_trees

#: Characters of a hash that users see.
_SHORT = 12


class Commits:
    """Commits from GOOD to BAD, in work trees."""

    noun = "commit"

    def __init__(self, names: list[str], source: Source, trees: Trees) -> None:
        self.names = names
        self._source, self._trees = source, trees

    def label(self, place: int) -> str:
        """Return the hash of a commit and its subject."""
        subject = git(self._trees.root, "log", "-1", "--format=%s", self.names[place], "--")
        return f"{self.names[place][:_SHORT]} ({subject})"

    def arm(self, place: int) -> Arm:
        """Return the program in the commit's work tree; raises TaskFailed if the build fails."""
        commit = self.names[place]
        return arm_of(commit[:_SHORT], self._source, [], self._trees.directory(commit))

    def span(self, before: int, after: int) -> str:
        """Return the options that search the commits after `before`, up to `after`."""
        return f"--git {self.names[before][:_SHORT]}..{self.names[after][:_SHORT]}"


@contextmanager
def commits(source: Source, names: list[str], build: str | None) -> Iterator[Commits]:
    """Yield commits, whose work trees are removed in the end."""
    source.check_places()
    with work_trees(source.directory, build) as trees:
        yield Commits(names, source, trees)


def first_parents(directory: Path, span: str) -> list[str]:
    """Return the commits of GOOD..BAD, GOOD first: each is the first parent of the next.

    Raises InputError if GOOD is not among the first parents of BAD.
    """
    good, bad = two_commits(directory, span)
    first, dots, last = (own.strip() for own in re.split(r"(\.{2,3})", span, maxsplit=1))
    if good == bad:
        raise InputError(f"--git {span}: {_why_same(directory, bad, first, dots, last)}")
    if not succeeds(directory, "merge-base", "--is-ancestor", good, bad):
        if succeeds(directory, "merge-base", "--is-ancestor", bad, good):
            raise InputError(f"--git {span}: {last} is older than {first}: swap them")
        raise InputError(
            f"--git {span}: {first} is not an ancestor of {last}"
            + (part_of(directory) or _base_hint(directory, good, bad))
        )
    found = git(directory, "rev-list", "--first-parent", "--reverse", f"{good}..{bad}").split()
    # Older commits of the line are also ancestors of GOOD.
    if (left := git(directory, "rev-parse", f"{found[0]}^1")) != good:
        raise InputError(
            f"--git {span}: {first} is not on the line of first parents of {last}; use "
            f"{left[:_SHORT]}, where the branch of {first} left this line"
        )
    return [good, *found]


def _why_same(directory: Path, bad: str, first: str, dots: str, last: str) -> str:
    """Return why a span has no commits: with three dots it begins at the common ancestor."""
    if dots == ".." or git(directory, "rev-parse", f"{first}^{{commit}}") == bad:
        return "both names are the same commit"
    return (
        f"the common ancestor of {first} and {last} is {last} itself, so {last} is older: swap them"
    )


def _base_hint(directory: Path, good: str, bad: str) -> str:
    if not succeeds(directory, "merge-base", good, bad):
        return ""
    base = git(directory, "merge-base", good, bad)
    return f"; their common ancestor is {base[:_SHORT]}"
