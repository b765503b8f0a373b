"""Distributes the work of a reader to this process or to several worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: Starting a process takes most of a second, so less work than this is done in this process, s of
#: CPU time; otherwise each process gets about this much work.
_WORTH_S, _SHARE_S = 3.0, 1.0

Work = Callable[[Any], Any]


@dataclass(frozen=True)
class Workers:
    """Does work for each task, with up to `jobs` processes; the answers arrive in any order.

    A PerfpipeError that the work raises is raised here.
    """

    jobs: int = 1
    spread: Callable[[Work, Sequence[Any]], Iterable[Any]] = map

    def worth(self, seconds: float) -> int:
        """Return the number of processes for work that takes one process this long."""
        return 1 if seconds < _WORTH_S else max(1, min(self.jobs, int(seconds / _SHARE_S)))

    def each(self, work: Work, tasks: Sequence[Any]) -> Iterable[Any]:
        """Return the answers of work to tasks; a single task runs in this process."""
        return map(work, tasks) if len(tasks) == 1 else self.spread(work, tasks)
