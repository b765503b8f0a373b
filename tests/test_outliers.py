"""Outliers, and the rank test that they do not disturb: against oracles, and by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
import scipy
from hypothesis import assume, given
from hypothesis import strategies as st

from perfpipe.analysis.gate.choosing import change_between, judge
from perfpipe.analysis.gate.judging import change_of
from perfpipe.analysis.gate.outliers import (
    _chance,
    _chances,
    _rank,
    can_decide,
    outlying,
    rank_change,
)

_TIMES = st.lists(st.integers(1000, 1400).map(float), min_size=3, max_size=7)


@pytest.mark.parametrize(("one", "other"), [(1, 1), (2, 3), (3, 3), (5, 4), (4, 6)])
def test_chances_are_those_of_all_orders(one: int, other: int) -> None:
    counts = [0] * (one * other + 1)
    for chosen in combinations(range(one + other), one):
        counts[sum(at - rank for rank, at in enumerate(chosen))] += 1
    found = np.cumsum(counts) / sum(counts)
    assert _chances(one, other) == pytest.approx(found.tolist())


def test_many_runs_have_nearly_the_exact_distribution() -> None:
    exact = _chances(51, 50)
    for share in (0.005, 0.025, 0.2):
        assert sum(chance <= share for chance in exact) == pytest.approx(
            _rank(51, 50, share), abs=2
        )
    for most in (800, 1000, 1275):
        assert _chance(51, 50, most) == pytest.approx(exact[most], abs=2e-3)


@given(_TIMES, _TIMES, st.sampled_from([0.02, 0.1, 0.3]))
def test_the_test_is_that_of_scipy_and_the_interval_its_inversion(
    before: list[float], after: list[float], alpha: float
) -> None:
    assume(len({*before, *after}) == len(before) + len(after))
    found = rank_change(before, after, 0, alpha)
    oracle = scipy.stats.mannwhitneyu(before, after, method="exact")
    assert found.p == pytest.approx(oracle.pvalue)
    shifts = [math.log(new / old) for old in before for new in after]
    assert math.log1p(found.ratio) == pytest.approx(np.median(shifts), abs=1e-12)
    assert found.low is not None and found.high is not None and found.p is not None
    assume(min(abs(shift) for shift in shifts) > 1e-9)
    assert (found.p <= alpha) == (found.low > 0 or found.high < 0)
    assert found.within is not None
    assert found.within >= abs(found.ratio) - 1e-12


@given(_TIMES, _TIMES, st.sampled_from([0.5, 1.0, 2.0]))
def test_the_difference_of_the_sides_has_no_part_in_the_choice(
    before: list[float], after: list[float], factor: float
) -> None:
    assert outlying(before, after) == outlying(before, [factor * time for time in after])


@given(st.integers(1, 9), st.integers(1, 9))
def test_ranks_can_decide_if_the_least_p_value_is_below_the_level(one: int, other: int) -> None:
    least = rank_change(
        [1.0 + at for at in range(one)], [100.0 + at for at in range(other)], 0, 0.1
    )
    assert least.p is not None
    for level in (0.01, 0.05, 0.2):
        if abs(least.p - level) > 1e-9:
            assert can_decide(range(one), range(other), level) == (least.p < level)


def test_one_outlier_does_not_hide_a_change() -> None:
    before, after = [100.0, 100.4, 99.7, 100.1, 160.0], [103.0, 103.3, 102.8, 103.1, 102.9]
    assert outlying(before, after)
    found = change_between(before, after)
    assert found.outliers
    assert found.ratio == pytest.approx(0.029, abs=0.002)
    assert judge(before, after)[1] == "inconclusive", "one of five runs is slower than all of B"
    before[4] = 100.2
    assert not change_between(before, after).outliers
    before = [100.0, 100.4, 99.7, 100.1, 100.2, 99.9]
    after = [103.0, 103.3, 102.8, 103.1, 160.0, 102.9]
    assert judge(before, after)[1] == "regressed"
    assert (change_of(before, after).p or 0) > 0.05, "Welch's test finds nothing"


def test_few_runs_and_many_tests_are_left_to_welch() -> None:
    before, after = [100.0, 100.1, 150.0], [103.0, 103.1, 102.9]
    assert outlying(before, after)
    assert not change_between(before, after).outliers
    before, after = before * 3, after * 3
    assert change_between(before, after).outliers
    assert not change_between(before, after, tests=10_000).outliers


def test_a_difference_below_the_resolution_is_no_change() -> None:
    found = rank_change([100.0] * 5, [101.0] * 5, 1.0, 0.05)
    assert found.p == 1.0
    assert found.low is not None and found.low < 0
    assert (rank_change([100.0] * 5, [102.0] * 5, 1.0, 0.05).p or 0) < 0.01


def _outliers(rng: np.random.Generator, count: int) -> np.ndarray:
    longer = np.log1p(rng.uniform(0.2, 1, count))
    found: np.ndarray = rng.normal(0, 0.005, count) + longer * (rng.random(count) < 0.1)
    return found


def _two_modes(rng: np.random.Generator, count: int) -> np.ndarray:
    return 0.08 * (rng.random(count) < 0.5) + rng.normal(0, 0.003, count)


@pytest.mark.parametrize(
    ("noise", "runs", "most_false_pct", "least_found_pct"),
    [(_outliers, 5, 5, 55), (_outliers, 10, 5, 80), (_two_modes, 5, 5, 0)],
)
def test_false_alarms_and_power(
    noise: Callable[[np.random.Generator, int], np.ndarray],
    runs: int,
    most_false_pct: float,
    least_found_pct: float,
) -> None:
    rng = np.random.default_rng(3)
    verdicts: dict[float, list[str]] = {0.0: [], 0.1: []}
    for change, found in verdicts.items():
        for _ in range(400):
            before, after = noise(rng, runs), noise(rng, runs) + math.log1p(change)
            found.append(judge(np.exp(before).tolist(), np.exp(after).tolist())[1])
    false = sum(verdict in ("improved", "regressed") for verdict in verdicts[0.0])
    assert false <= 4 * most_false_pct
    assert verdicts[0.1].count("regressed") >= 4 * least_found_pct
