"""Nodes on which more jobs fail than on others."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
import scipy
from batches import simulated
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.batch.failing import _p_values, failing_nodes
from perfpipe.analysis.batch.items import Item
from perfpipe.analysis.batch.page import batch_report
from perfpipe.batchrecord import State


def items(failed: dict[str, int], jobs: dict[str, int], state: State = State.FAILED) -> list[Item]:
    _, made = simulated(configurations=1, repeats=1, workloads=["gemm"], failures={})
    return [
        Item(
            replace(
                made[0].state,
                state=state if at < failed.get(node, 0) else State.DONE,
                node=node,
                element=f"{node}_{at}",
            )
        )
        for node, count in jobs.items()
        for at in range(count)
    ]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=5))
def test_p_is_fishers(nodes: list[tuple[int, int]]) -> None:
    jobs = Counter({f"n{at}": own for at, (own, _) in enumerate(nodes)})
    failed = Counter({f"n{at}": min(own, bad) for at, (own, bad) in enumerate(nodes)})
    every, bad = jobs.total(), failed.total()
    for node, p in _p_values(jobs, failed).items():
        table = [
            [failed[node], jobs[node] - failed[node]],
            [bad - failed[node], every - jobs[node] - (bad - failed[node])],
        ]
        assert p == pytest.approx(
            scipy.stats.fisher_exact(table, alternative="greater")[1], abs=1e-9
        )


def test_a_node_on_which_most_fails_is_named() -> None:
    jobs = {f"n{at}": 15 for at in range(4)}
    (found,) = failing_nodes(items({"n2": 8, "n1": 1}, jobs))
    assert found[:3] == ("n2", 8, 15)
    assert found.q < 0.001
    assert failing_nodes(items({"n2": 8}, jobs, State.CANCELLED)) == []
    assert failing_nodes(items({"n2": 2}, {"n2": 2, "n1": 1000})) == []
    assert failing_nodes(items({"n2": 8}, {"n2": 15})) == []
    assert failing_nodes([]) == []


def test_tasks_of_one_job_fail_together() -> None:
    jobs = {f"n{at}": 15 for at in range(4)}
    made = items({"n2": 8}, jobs)
    one_job = [
        replace(item, state=replace(item.state, element="1_1")) if item.failed else item for item in made
    ]  # fmt: skip
    assert failing_nodes(one_job) == []


def test_chance_names_no_node() -> None:
    alarms = 0
    for seed in range(200):
        rng = random.Random(seed)
        jobs = {f"n{at}": 12 for at in range(8)}
        failed = {
            node: sum(rng.random() < 0.1 for _ in range(count)) for node, count in jobs.items()
        }
        alarms += bool(failing_nodes(items(failed, jobs)))
    assert alarms <= 10


def test_the_page_says_so() -> None:
    batch, made = simulated(failures={})
    made = [
        Item(replace(item.state, state=State.FAILED)) if item.state.node == "node01" else item
        for item in made
    ]
    texts = [fact.text for fact in batch_report(batch, made, {}).statements]
    assert "13 of 13 jobs on node01 failed, more than elsewhere" in texts
