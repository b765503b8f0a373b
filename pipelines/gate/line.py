"""What a bisection searches: commits or versions in order, each of which can be made an arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perfpipe.pipelines.gate.arms import Arm


class Line(Protocol):
    """Commits or versions from GOOD to BAD, numbered from 0."""

    @property
    def noun(self) -> str:
        """What a place is: commit or version."""

    @property
    def names(self) -> Sequence[str]:
        """The name of each place: the hash of a commit, or a version."""

    def label(self, place: int) -> str:
        """Return a place in words."""

    def arm(self, place: int) -> Arm:
        """Return the program at a place, built or installed; raises TaskFailed if this fails."""

    def span(self, before: int, after: int) -> str:
        """Return the options that search the places after `before`, up to `after`."""
