"""Nodes on which more jobs fail than on others."""

from __future__ import annotations

import itertools
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
    jobs = {f"n{at}": own for at, (own, _) in enumerate(nodes)}
    failed = {f"n{at}": min(own, bad) for at, (own, bad) in enumerate(nodes)}
    every, bad = sum(jobs.values()), sum(failed.values())
    sample = [(n, "same", at < failed[n]) for n, own in jobs.items() for at in range(own)]
    for node, p in _p_values(sample).items():
        table = [
            [failed[node], jobs[node] - failed[node]],
            [bad - failed[node], every - jobs[node] - (bad - failed[node])],
        ]
        assert p == pytest.approx(
            scipy.stats.fisher_exact(table, alternative="greater")[1], abs=1e-9
        )


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()),
        min_size=1, max_size=8,
    )
)  # fmt: skip
def test_p_is_that_of_all_ways_to_spread_failures(sample: list[tuple[str, str, bool]]) -> None:
    """Brute force: the failures of each configuration are put on every choice of its jobs."""
    choices = []
    for ran in {ran for _, ran, _ in sample}:
        nodes = [node for node, what, _ in sample if what == ran]
        bad = sum(bad for _, what, bad in sample if what == ran)
        choices.append([Counter(one) for one in itertools.combinations(nodes, bad)])
    ways = [sum(way, Counter[str]()) for way in itertools.product(*choices)]
    for node, p in _p_values(sample).items():
        seen = sum(bad for own, _, bad in sample if own == node)
        assert p == pytest.approx(sum(way[node] >= seen for way in ways) / len(ways))


def test_a_node_on_which_most_fails_is_named() -> None:
    jobs = {f"n{at}": 15 for at in range(4)}
    (found,) = failing_nodes(items({"n2": 8, "n1": 1}, jobs))
    assert found[:3] == ("n2", 8, 15)
    assert found.q < 0.001
    (stopped,) = failing_nodes(items({"n2": 8}, jobs, State.STOPPED))
    assert (stopped.node, stopped.own) == ("n2", False), "its set-up fails"
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
    text = "13 of 13 jobs on node01 failed, more than with the same configurations on other nodes"
    assert text in texts


def test_programs_that_fail_by_design_blame_no_node() -> None:
    """Here all configurations that fail ran on one node, once each."""
    jobs = {f"n{at}": 9 for at in range(3)}
    made = [
        replace(
            item,
            state=replace(item.state, task=replace(item.state.task, label=f"n={at}")),
        )
        for at, item in enumerate(items({"n2": 8}, jobs))
    ]
    assert failing_nodes(made) == []
    lost = [
        replace(item, state=replace(item.state, state=State.LOST)) if item.failed else item
        for item in made
    ]
    (found,) = failing_nodes(lost)
    assert (found.node, found.failed, found.own) == ("n2", 8, False)
