"""Who does the work of a reader: this process, or several others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: For less work than this no process is started, which takes half of it, s of CPU.
_WORTH_S = 1.0

Work = Callable[[Any], Any]


@dataclass(frozen=True)
class Workers:
    """Does work for each task, with up to `jobs` processes; the answers come in any order.

    An error of this project that the work raises is raised here.
    """

    jobs: int = 1
    spread: Callable[[Work, Sequence[Any]], Iterable[Any]] = map

    def worth(self, seconds: float) -> int:
        """Return the number of processes for work that takes one of them so long."""
        return max(1, min(self.jobs, int(seconds / _WORTH_S)))

    def each(self, work: Work, tasks: Sequence[Any]) -> Iterable[Any]:
        """Return the answers of work to tasks; a single one is done here."""
        return map(work, tasks) if len(tasks) == 1 else self.spread(work, tasks)
