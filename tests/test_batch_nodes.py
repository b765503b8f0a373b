"""Nodes compared over the same work.

False alarms and power by simulation, 300 tables each (`python tests/test_batch_nodes.py`): the
share of tables, %, in which some node stands out without a change, and in which a node that is 5 %
slower does; each at 1 % scatter, with scatter that differs between works (0.2, 1 or 3 %), and with
2 % of the tasks 30 % slower.

    works x repeats, nodes    no change    slow node
    15 x 4, 4                 0, 0, 0      100, 97, 72
    20 x 3, 8                 0, 0, 2       99, 90, 48
    30 x 2, 4                 0, 0, 0      100, 92, 56
    60 x 5, 20                0, 0, 4      100, 100, 88
    1 x 12, 4                 0, 0, 0       79, 58, 63
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.batch.nodes import Compared, Model, Timed, compare_places
from perfpipe.analysis.gate.judging import false_discovery
from perfpipe.analysis.thresholds import thresholds

LIMIT = math.log1p(thresholds()["batch.node_pct"] / 100)


def table(
    seed: int, works: int, repeats: int, nodes: int, slow: float = 0, scatter: float = 0.01,
    outliers: float = 0, *, mixed: bool = False,
) -> list[Timed]:  # fmt: skip
    """Return times of works on random nodes, of which the first is slower."""
    rng = random.Random(seed)
    rows = []
    for work in range(works):
        own, base = scatter * (rng.choice([0.2, 1, 3]) if mixed else 1), rng.uniform(0.01, 100)
        for _ in range(repeats):
            node = rng.randrange(nodes)
            time = base * math.exp(rng.gauss(0, own)) * (1 + slow if node == 0 else 1)
            rows.append(
                Timed(f"w{work}", f"n{node}", time * (1.3 if rng.random() < outliers else 1))
            )
    return rows


def fit(rows: list[Timed]) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, int]:
    """Return places, their effects, these effects' (X'X)^-1, the residuals and their freedom."""
    places, works = sorted({r.place for r in rows}), sorted({r.work for r in rows})
    design = np.zeros((len(rows), len(places) + len(works)))
    for number, row in enumerate(rows):
        design[number, places.index(row.place)] = 1
        design[number, len(places) + works.index(row.work)] = 1
    logs = np.log([row.time_ms for row in rows])
    inverse = np.linalg.pinv(design.T @ design)
    solved = inverse @ design.T @ logs
    freedom = len(rows) - int(np.linalg.matrix_rank(design))
    count = len(places)
    return places, solved[:count], inverse[:count, :count], logs - design @ solved, freedom


def groups(rows: list[Timed]) -> dict[str, frozenset[str]]:
    """Return the places that work connects each one with, found by spreading along shared work."""
    reached = {row.place: {row.place} for row in rows}
    for _ in reached:
        for one in rows:
            for other in rows:
                if one.work == other.work:
                    reached[one.place] |= reached[other.place]
    return {place: frozenset(of) for place, of in reached.items()}


def oracle(rows: list[Timed], place: str) -> tuple[float, float, float] | None:
    """Return change, half interval and p of a place by regression on dummies."""
    places, effects, inverse, rest, freedom = fit(rows)
    if place not in places or freedom < 1:
        return None
    at, group = places.index(place), groups(rows)[place]
    others = [places.index(name) for name in group if name != place]
    if not others:
        return None
    among = others if len(others) == 1 else [at, *others]
    change = effects[at] - np.median(effects[among])
    contrast = np.zeros(len(places))
    contrast[at], contrast[others] = 1, -1 / len(others)
    error = math.sqrt(max(contrast @ inverse @ contrast * (rest @ rest) / freedom, 0))
    if error < 1e-9:
        return None
    return (
        change,
        scipy.stats.t.ppf(0.975, freedom) * error,
        2 * scipy.stats.t.sf(abs(change) / error, freedom),
    )


times = st.floats(0.5, 2)
tables = st.lists(
    st.builds(Timed, st.sampled_from("abcd"), st.sampled_from(["n1", "n2", "n3"]), times),
    max_size=16,
)


@given(tables)
def test_effects_and_intervals_are_those_of_a_regression_on_dummies(rows: list[Timed]) -> None:
    places_of: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        places_of[row.work].add(row.place)
    shared = [row for row in rows if len(places_of[row.work]) > 1]
    found = compare_places(rows)
    assert bool(found.places) != bool(found.reason)
    if not shared or fit(shared)[-1] < 1:
        assert found.reason
        return
    names = sorted({row.place for row in shared})
    assert [place.name for place in found.places] == names
    expected = [oracle(shared, name) for name in names]
    if None in expected:
        return
    for place, one in zip(found.places, expected, strict=True):
        assert one is not None
        assert math.log(place.ratio) == pytest.approx(one[0], abs=1e-9)
        assert math.log(place.high) - math.log(place.ratio) == pytest.approx(one[1], rel=1e-6)
        assert place.tasks == sum(row.place == place.name for row in shared)
    q_values = false_discovery([one[2] for one in expected if one])
    assert [place.q for place in found.places] == pytest.approx(q_values, abs=1e-7)


@given(tables)
def test_leaving_out_the_task_that_says_most_is_a_fit_without_it(rows: list[Timed]) -> None:
    shared = sorted(r for r in rows if any(o.work == r.work and o.place != r.place for o in rows))
    if not shared or fit(shared)[-1] < 2:
        return
    model, rest = Model(shared), fit(shared)[3]
    for place, name in enumerate(model.names):
        change = model.effect(place).change
        own = [at for at, row in enumerate(shared) if row.place == name]
        by = sorted((rest[at] * math.copysign(1, change), at) for at in own)
        if abs(change) < 1e-6 or (len(by) > 1 and by[-1][0] - by[-2][0] < 1e-9):
            continue
        expected = refitted(shared, by[-1][1], name)
        found = model.without_most(place)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found.change == pytest.approx(expected[0], abs=1e-6)
            assert found.p == pytest.approx(expected[1], abs=1e-4)


def refitted(rows: list[Timed], without: int, place: str) -> tuple[float, float] | None:
    """Return change and p of a place from a fit without one row; None if it then cannot be told."""
    left = [row for number, row in enumerate(rows) if number != without]
    places, effects, *_ = fit(rows)
    again, moved, inverse, rest, freedom = fit(left)
    group = groups(rows)[place]
    # Not comparable any more: the row was all that connected some places.
    if groups(left).get(place) != group or again != places:
        return None
    at = places.index(place)
    others = [places.index(name) for name in group if name != place]
    contrast = np.zeros(len(places))
    contrast[at], contrast[others] = 1, -1 / len(others)
    among = others if len(others) == 1 else [at, *others]
    change = effects[at] - np.median(effects[among]) + contrast @ (moved - effects)
    error = math.sqrt(max(contrast @ inverse @ contrast * (rest @ rest) / freedom, 0))
    if error < 1e-9:
        return change, float(abs(change) < 1e-9)
    return change, 2 * scipy.stats.t.sf(abs(change) / error, freedom)


@given(tables)
def test_what_stands_out_is_certain_and_large(rows: list[Timed]) -> None:
    for place in compare_places(rows).places:
        if place.verdict:
            assert place.q < 0.05
            assert abs(math.log(place.ratio)) > LIMIT
            assert (place.low > 1, place.high < 1) == (
                place.verdict == "slower",
                place.verdict == "faster",
            )


@given(tables, st.randoms(use_true_random=False), st.floats(0.1, 10))
def test_neither_order_nor_unit_matters(
    rows: list[Timed], rng: random.Random, scale: float
) -> None:
    before = compare_places(rows)
    mixed = list(rows)
    rng.shuffle(mixed)
    assert compare_places(mixed) == before
    scaled = compare_places([row._replace(time_ms=row.time_ms * scale) for row in rows])
    assert [p.ratio for p in scaled.places] == pytest.approx([p.ratio for p in before.places])


def odd(found: Compared) -> list[tuple[str, str]]:
    return [(place.name, place.verdict) for place in found.places if place.verdict]


def test_a_node_that_is_five_percent_slower_is_found() -> None:
    hits = [odd(compare_places(table(seed, 15, 4, 4, slow=0.05))) for seed in range(40)]
    assert hits.count([("n0", "slower")]) >= 38


@pytest.mark.parametrize("mixed", [False, True])
def test_no_node_stands_out_by_chance(mixed: bool) -> None:
    alarms = [odd(compare_places(table(seed, 20, 3, 8, mixed=mixed))) for seed in range(60)]
    assert sum(map(bool, alarms)) <= 3


def test_one_odd_task_is_not_an_odd_node() -> None:
    rows = table(1, 40, 5, 20, scatter=0.001)
    at = next(at for at, row in enumerate(rows) if row.place == "n0")
    rows[at] = rows[at]._replace(time_ms=rows[at].time_ms * 2)
    (place, *_) = compare_places(rows).places
    assert (place.name, place.verdict) == ("n0", "")
    assert place.q < 0.05
    assert place.ratio > 1.05
    second = next(
        at for at, row in enumerate(rows) if row.place == "n0" and row.time_ms > 0 and at > 60
    )
    rows[second] = rows[second]._replace(time_ms=rows[second].time_ms * 2)
    assert odd(compare_places(rows)) == [("n0", "slower")]


def test_work_that_only_some_nodes_share_does_not_confound() -> None:
    # n0 got the long work, n2 the short; only what they share tells how fast they are.
    rows = [Timed("long", "n0", 100.0), Timed("long", "n1", 100.1), Timed("short", "n1", 1.0),
            Timed("short", "n2", 1.001), Timed("long", "n0", 99.9), Timed("short", "n2", 0.999)]  # fmt: skip
    assert all(abs(place.ratio - 1) < 0.01 for place in compare_places(rows).places)


def test_groups_without_common_work_are_compared_within() -> None:
    pairs = [("a", "n1", 1.0), ("a", "n1", 1.001), ("a", "n2", 1.1), ("a", "n2", 1.101)]
    pairs += [(work + "2", node + "x", time * 50) for work, node, time in pairs]
    found = compare_places(Timed(*pair) for pair in pairs)
    assert odd(found) == [("n2", "slower"), ("n2x", "slower")]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "no task was timed"),
        ([("a", "n1", 0.0), ("a", "n2", 0.0)], "no task was timed"),
        ([("a", "n1", 1.0), ("b", "n1", 2.0)], "all times are from one node"),
        ([("a", "n1", 1.0), ("b", "n2", 2.0)], "no configuration was timed on more than one node"),
        ([("a", "n1", 1.0), ("a", "n2", 2.0)], "too few tasks"),
    ],
)
def test_nothing_is_said_without_shared_work(
    rows: list[tuple[str, str, float]], reason: str
) -> None:
    found = compare_places(Timed(*row) for row in rows)
    assert not found.places
    assert reason in found.reason


def test_the_same_times_everywhere_are_no_difference() -> None:
    rows = [Timed(work, node, 5.0) for work in "abc" for node in ("n1", "n2", "n3")]
    found = compare_places(rows)
    assert [place.ratio for place in found.places] == [1, 1, 1]
    assert not odd(found)
    assert all(one.ratio == other.ratio for one, other in pairwise(found.places))


def simulate() -> None:
    """Print the table of the docstring."""
    kinds: tuple[dict[str, Any], ...] = ({}, {"mixed": True}, {"outliers": 0.02})
    for shape in ((15, 4, 4), (20, 3, 8), (30, 2, 4), (60, 5, 20), (1, 12, 4)):
        for slow in (0, 0.05):
            for kind in kinds:
                made = (table(seed, *shape, slow=slow, **kind) for seed in range(300))
                found = [odd(compare_places(rows)) for rows in made]
                hits = sum(("n0", "slower") in of if slow else bool(of) for of in found)
                print(shape, f"slow {slow:.0%}", kind, f"{hits / len(found):.1%}")  # noqa: T201


if __name__ == "__main__":
    simulate()
