"""Parts of steps that could be shorter: a category, what has one name, or the work of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfpipe.analysis.critical.events import NONE, Flags
from perfpipe.analysis.critical.graph import CALL, HOST
from perfpipe.analysis.critical.path import LAUNCH, OTHER_CALL, categories_of
from perfpipe.analysis.critical.reading import Step
from perfpipe.analysis.critical.replay import Floats, Replayed, steps_of
from perfpipe.analysis.thresholds import thresholds

#: All of the work of a rank's host: between calls, and in calls that do not load code.
HOST_WORK = "host work"
_OF_HOST = ("host", LAUNCH, OTHER_CALL)


@dataclass(frozen=True)
class Part:
    """What may be shorter: a category or `host work`, one name of it, on one rank; None is all."""

    category: str | None = None
    name: str | None = None
    rank: int | None = None


class Edges:
    """The edges of a step with what they belong to, to select those of a part.

    `ranks` maps a report and a process to the rank.
    """

    def __init__(self, step: Step, ranks: dict[tuple[str, int], int]) -> None:
        graph = step.graph
        self._step = step
        self._category = np.array(
            categories_of(graph, int(thresholds()["timeline.device_wait_ns"])), object
        )
        names = [*graph.operations.name, *graph.calls.name, None]
        known = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self._known = known
        owner = np.where(graph.owner == NONE, len(names) - 1, graph.owner)
        self._name = np.array([known[name] for name in names])[owner]
        process = np.concatenate([graph.operations.process, graph.calls.process, [NONE]])[owner]
        of_threads = np.array([*(_process(step, own) for own in step.threads), NONE])
        process = np.where(graph.thread == NONE, process, of_threads[graph.thread])
        of = np.array([*(ranks.get(own, NONE) for own in step.processes), NONE])
        self._rank = of[process]
        self._host = np.isin(graph.kind, (CALL, HOST))

    @property
    def categories(self) -> set[str]:
        """The categories of the edges."""
        return {str(name) for name in self._category}

    @property
    def names(self) -> set[str]:
        """The names of operations and calls."""
        return {name for name in self._known if name is not None}

    def select(self, part: Part) -> Flags:
        """Return which edges belong to a part."""
        chosen = np.ones(len(self._category), bool)
        if part.category == HOST_WORK:
            chosen &= self._host & np.isin(self._category, _OF_HOST)
        elif part.category is not None:
            chosen &= self._category == part.category
        if part.name is not None:
            chosen &= self._name == self._known.get(part.name, NONE)
        if part.rank is not None:
            chosen &= self._rank == part.rank
        return chosen

    def shorter(self, scenarios: Sequence[Sequence[tuple[Part, float]]]) -> Replayed | None:
        """Replay the steps in scenarios: parts, each shorter by a share of its time (0 to 1)."""
        graph = self._step.graph
        lasting: Floats = np.repeat(
            graph.least.astype(np.float64)[:, None], max(1, len(scenarios)), axis=1
        )
        for at, scenario in enumerate(scenarios):
            for part, share in scenario:
                lasting[self.select(part), at] *= 1 - share
        return steps_of(graph, lasting, self._step.gpu, self._step.bounds)


def _process(step: Step, thread: tuple[str, int, int]) -> int:
    report, process, _ = thread
    return step.processes.index((report, process))
