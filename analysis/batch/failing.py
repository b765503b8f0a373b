"""Detects nodes on which jobs fail more often than on the others, for a reason of the node.

Two kinds of failures can be a node's: those that are not the program's own, such as a lost job,
and those of programs whose same configuration succeeds on other nodes.  A configuration that fails
everywhere says nothing about a node.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from perfpipe.analysis.batch.items import Item
from perfpipe.analysis.gate.judging import false_discovery
from perfpipe.batchrecord import State

_ALPHA = 0.05

#: Fewer failed jobs on a node are not significant.
_FEWEST = 3

#: States and failures that programs do not cause; the program of a stopped task did not start.
_NOT_OF_PROGRAMS = (State.NODE_FAILURE, State.LOST, State.STOPPED)
_NOT_OF_PROGRAMS_EITHER = ("profiler", "tool_missing", "not_recorded")


class Failing(NamedTuple):
    """A node with its jobs, how many of them failed, and Benjamini and Hochberg's q.

    `own` says that the failures are those of programs whose configurations succeed elsewhere;
    otherwise the jobs ended for reasons that are not the programs'.
    """

    node: str
    failed: int
    jobs: int
    q: float
    own: bool


class _Job(NamedTuple):
    """A job on a node: what it ran, whether it failed, and whether that is a program's fault."""

    node: str
    ran: Hashable
    failed: bool
    own: bool


def failing_nodes(items: Iterable[Item]) -> list[Failing]:
    """Return the nodes with significantly more failed jobs, most certain first.

    The sample is the job: tasks of one job fail together.  Canceled tasks do not count.
    """
    jobs = _jobs(items)
    # The first ignores what ran; the second compares jobs that ran the same.
    other = [(job.node, None, job.failed and not job.own) for job in jobs]
    same = [(job.node, job.ran, job.failed) for job in jobs if job.own or not job.failed]
    found = []
    for own, sample in ((False, other), (True, same)):
        count = Counter(node for node, _, _ in sample)
        bad = Counter(node for node, _, failed in sample if failed)
        found += [
            Failing(node, bad[node], count[node], p, own) for node, p in _p_values(sample).items()
        ]
    q_values = false_discovery([one.q for one in found])
    named = [
        one._replace(q=q)
        for one, q in zip(found, q_values, strict=True)
        if q < _ALPHA and one.failed >= _FEWEST
    ]
    return sorted(named, key=lambda one: (one.q, one.node, one.own))


def _jobs(items: Iterable[Item]) -> list[_Job]:
    held: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in items:
        state = item.state
        if state.node and (item.done or item.failed) and state.state != State.CANCELLED:
            held[state.node, state.element or str(item.index)].append(item)
    return [
        _Job(
            node,
            tuple(sorted((item.state.task.workload, item.state.task.label) for item in tasks)),
            any(item.failed for item in tasks),
            any(item.failed and _is_own(item) for item in tasks),
        )
        for (node, _), tasks in held.items()
    ]


def _is_own(item: Item) -> bool:
    """Return whether a failed task's program may have caused the failure."""
    kind = item.result.failure if item.result is not None else None
    return item.state.state not in _NOT_OF_PROGRAMS and kind not in _NOT_OF_PROGRAMS_EITHER


def _p_values(sample: Iterable[tuple[str, Hashable, bool]]) -> dict[str, float]:
    """Return the exact p of each node for its number of failed jobs, given what they ran.

    Within jobs that ran the same, the failed ones are spread over the nodes by chance.  The number
    on a node is then hypergeometric (Fisher), and independent of that for other jobs, so the
    probabilities of the sums are convolutions (the exact form of Mantel and Haenszel's test).
    """
    jobs: dict[Hashable, Counter[str]] = defaultdict(Counter)
    failed: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for node, ran, bad in sample:
        jobs[ran][node] += 1
        failed[ran][node] += bad
    nodes = sorted({node for counts in jobs.values() for node in counts})
    return {
        node: _at_least(
            sum(counts[node] for counts in failed.values()),
            [_spread(jobs[ran], failed[ran].total(), node) for ran in jobs],
        )
        for node in nodes
    }


def _spread(jobs: Mapping[str, int], bad: int, node: str) -> list[float]:
    """Return the probabilities that 0, 1, ... of the failed jobs are on a node."""
    every, own = sum(jobs.values()), jobs.get(node, 0)
    ways = math.comb(every, bad)
    return [
        math.comb(own, k) * math.comb(every - own, bad - k) / ways for k in range(min(own, bad) + 1)
    ]


def _at_least(number: int, spreads: Iterable[list[float]]) -> float:
    """Return the probability that a sum of independent numbers is at least `number`."""
    total = [1.0]
    for one in spreads:
        if len(one) == 1:
            continue
        wider = [0.0] * (len(total) + len(one) - 1)
        for at, before in enumerate(total):
            for more, p in enumerate(one):
                wider[at + more] += before * p
        total = wider
    return min(math.fsum(total[number:]), 1.0)
