"""The order of commits in a history: git's, else that of their times, else that of the runs.

A backfill measures old commits after newer ones.  Commits have their place in git's order, in which
no commit comes before its parents.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from perfpipe.units import counted

if TYPE_CHECKING:
    from perfpipe.analysis.gate.history.series import Point


class By(StrEnum):
    """What commits are ordered by."""

    GIT = "git"
    COMMIT_TIME = "commit time"
    MEASURED = "first measurement"


@dataclass(frozen=True)
class Order:
    """The order of commits; `why` is the reason why it is not git's, as the end of a sentence.

    `key` sorts points by commit.
    """

    by: By
    key: Callable[[Point], Any]
    why: str = ""

    @property
    def said(self) -> str:
        """The order as a sentence."""
        text = {
            By.GIT: "Commits are in git's order",
            By.COMMIT_TIME: "Commits are in the order of their commit times",
            By.MEASURED: "Commits are in the order in which they were first measured",
        }[self.by]
        return f"{text}, because {self.why}" if self.why else text


def order_of(points: Sequence[Point], places: Mapping[str, int]) -> Order:
    """Return the order of the commits of points, which are oldest first; git may know their places.

    One order holds for all commits: a commit that git lacks cannot be placed among the others.  A
    commit with modified files comes after the same commit without.
    """
    first = first_measured(points)
    missing = {point.revision for point in points} - places.keys()
    if not missing:
        return Order(By.GIT, lambda own: (places[own.revision], own.dirty, first[own.commit]))
    without = sum(not point.revision for point in points)
    if without:
        why = f"{without} of {counted(len(points), 'result')} have no commit"
    elif places:
        why = f"the repository here lacks {counted(len(missing), 'commit')}"
    else:
        why = "the repository is not here (run the command in it)"
    if all(point.committed_at for point in points):
        # Commits of the same second stay apart.
        return Order(
            By.COMMIT_TIME,
            lambda own: (own.committed_at, own.revision, own.dirty, first[own.commit]),
            why,
        )
    return Order(By.MEASURED, lambda own: first[own.commit], why)


def first_measured(points: Sequence[Point]) -> dict[str, int]:
    """Return the number of the first point of each commit; points are oldest first."""
    return {point.commit: at for at, point in reversed([*enumerate(points)])}


def backfilled(points: Sequence[Point], order: Order) -> int:
    """Return how many commits were first measured after a commit that follows them."""
    if order.by == By.MEASURED:
        return 0
    by_commit = {point.commit: order.key(point) for point in points}
    measured = [by_commit[commit] for commit in dict.fromkeys(point.commit for point in points)]
    latest = itertools.accumulate(measured, max)
    return sum(own < most for own, most in zip(measured, latest, strict=True))


def by_run(backfilled: int) -> str:
    """Return a sentence on runs in the order of their measurement."""
    text = "Runs are in the order in which they were measured"
    if not backfilled:
        return text
    return (
        f"{text}, which is not that of their commits: later runs measured "
        f"{counted(backfilled, 'older commit')} (--by commit has them in order)"
    )
