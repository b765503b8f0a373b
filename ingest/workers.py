"""Who does the work of a reader: this process, or several others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

#: Work of less than this is done here: starting processes takes half of it, s of CPU.
_WORTH_S = 1.0


@dataclass(frozen=True)
class Workers:
    """Does work for each task, with up to `jobs` processes; the results come in any order.

    An error of this project that is raised by the work is raised here.
    """

    jobs: int = 1
    map: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] = map

    def worth(self, seconds: float) -> int:
        """Return the number of processes for work that takes one of them so long."""
        return max(1, min(self.jobs, int(seconds / _WORTH_S)))
