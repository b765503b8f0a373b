"""Makes numbers distinct that several ranks of a merged trace use."""

from __future__ import annotations


class DistinctNumbers:
    """Process or device numbers of several ranks.

    A number that another rank already uses becomes the next free number.
    """

    def __init__(self) -> None:
        self._given: dict[tuple[str, int], int] = {}
        self._used: set[int] = set()

    def of(self, rank: str, number: int) -> int:
        """Return the number that stands for a rank's number."""
        given = self._given.get((rank, number))
        if given is None:
            given = number
            while given in self._used:
                given += 1
            self._used.add(given)
            self._given[rank, number] = given
        return given

    @property
    def changed(self) -> dict[int, int]:
        """The original of each number that was changed."""
        return {given: number for (_, number), given in self._given.items() if given != number}
