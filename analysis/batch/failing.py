"""Detects nodes on which jobs fail more often than on the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from perfpipe.analysis.batch.items import Item
from perfpipe.analysis.gate.judging import false_discovery
from perfpipe.batchrecord import State

_ALPHA = 0.05

#: Fewer failed jobs on a node are not significant.
_FEWEST = 3


class Failing(NamedTuple):
    """A node with its jobs, how many of them failed, and Benjamini and Hochberg's q."""

    node: str
    failed: int
    jobs: int
    q: float


def failing_nodes(items: Iterable[Item]) -> list[Failing]:
    """Return the nodes with significantly more failed jobs, most certain first.

    The sample is the job: tasks of one job fail together.  Canceled tasks do not count.
    """
    ended = [
        item
        for item in items
        if item.state.node and (item.done or item.failed) and item.state.state != State.CANCELLED
    ]
    failed_of: dict[tuple[str, str], bool] = {}
    for item in ended:
        job = (item.state.node or "", item.state.element or str(item.index))
        failed_of[job] = failed_of.get(job, False) or item.failed
    jobs = Counter(node for node, _ in failed_of)
    failed = Counter(node for (node, _), of in failed_of.items() if of)
    p_values = _p_values(jobs, failed)
    q_values = false_discovery(list(p_values.values()))
    found = [
        Failing(node, failed[node], jobs[node], q)
        for node, q in zip(p_values, q_values, strict=True)
        if q < _ALPHA and failed[node] >= _FEWEST
    ]
    return sorted(found, key=lambda one: (one.q, one.node))


def _p_values(jobs: Mapping[str, int], failed: Mapping[str, int]) -> dict[str, float]:
    """Return Fisher's exact p of each node for its share of the failed jobs."""
    every, bad = sum(jobs.values()), sum(failed.values())

    def log_ways(of: int, some: int) -> float:
        return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)

    return {
        node: min(
            math.fsum(
                math.exp(log_ways(own, k) + log_ways(every - own, bad - k) - log_ways(every, bad))
                for k in range(failed[node], min(own, bad) + 1)
                if bad - k <= every - own
            ),
            1.0,
        )
        for node, own in jobs.items()
    }
