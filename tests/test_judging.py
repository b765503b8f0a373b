"""The statistics of comparisons, against SciPy, brute force and simulations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

from perfpipe.analysis.gate.choosing import judge
from perfpipe.analysis.gate.judging import (
    TIMER_STEPS,
    change_of,
    false_discovery,
    interleaved,
    timer_step,
    verdict_of,
)

_TIMES = st.lists(st.floats(100, 200), min_size=2, max_size=8)
_CHANGED = ("regressed", "improved")


@given(_TIMES, _TIMES)
def test_interval_and_p_are_welchs(before: list[float], after: list[float]) -> None:
    a, b = [math.log(x) for x in before], [math.log(x) for x in after]
    # SciPy loses precision there.
    assume(min(statistics.stdev(a), statistics.stdev(b)) > 1e-6)
    oracle = stats.ttest_ind(b, a, equal_var=False)
    interval = oracle.confidence_interval(0.95)
    found = change_of(before, after)
    assert found.low is not None
    assert found.high is not None
    difference = statistics.fmean(b) - statistics.fmean(a)
    assert math.log1p(found.ratio) == pytest.approx(difference, abs=1e-9)
    assert math.log1p(found.low) == pytest.approx(interval.low, rel=1e-6, abs=1e-8)
    assert math.log1p(found.high) == pytest.approx(interval.high, rel=1e-6, abs=1e-8)
    if difference:
        assert found.p == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-12)


@given(_TIMES, _TIMES, st.floats(0, 20))
def test_the_interval_excludes_no_change_where_the_test_rejects_it(
    before: list[float], after: list[float], resolution: float
) -> None:
    found = change_of(before, after, resolution)
    assert found.low is not None
    assert found.high is not None
    assert found.p is not None
    assume(abs(found.p - 0.05) > 1e-9)
    assert (found.p < 0.05) == (found.low > 0 or found.high < 0)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([100, 100.2, 99.8], [110, 110.3, 109.9], "regressed"),
        ([100, 100.2, 99.8], [90, 90.3, 89.9], "improved"),
        ([100, 100.2, 99.8], [100.1, 100.3, 99.9], "same"),
        ([100, 100.2, 99.8], [101, 101.2, 100.8], "same"),  # beyond zero, within the threshold
        ([100, 110, 90], [104, 115, 93], "inconclusive"),
        ([100], [200], "unreplicated"),
        ([100, 101, 102], [200], "unreplicated"),
        ([100, 100, 100], [100, 100, 100], "same"),
        ([100, 100, 100], [110, 110, 110], "regressed"),
    ],
)
def test_verdicts(before: list[float], after: list[float], verdict: str) -> None:
    assert judge(before, after)[1] == verdict


@given(_TIMES, _TIMES)
def test_the_other_way_round_is_the_inverse(before: list[float], after: list[float]) -> None:
    (there, verdict), (back, opposite) = judge(before, after), judge(after, before)
    assert (1 + there.ratio) * (1 + back.ratio) == pytest.approx(1)
    opposites = {"regressed": "improved", "improved": "regressed"}
    assert opposite == opposites.get(verdict, verdict)


def test_one_step_of_the_timer_is_no_change() -> None:
    assert judge([1504, 1504], [1536, 1536], 32)[1] == "inconclusive"
    found, verdict = judge([1504] * 5, [1536] * 5, 32)
    assert verdict == "inconclusive"
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 0, "as wide as the step"
    assert 100 * found.high == pytest.approx(200 * 32 / 1504, rel=0.02)
    assert judge([1504] * 5, [1632] * 5, 32)[1] == "regressed", "four steps are a change"
    assert judge([1504] * 5, [1504] * 5, 32)[1] == "inconclusive", "2 % are less than a step"
    assert judge([150400] * 5, [150400] * 5, 32)[1] == "same"


@example(47, 32.0, [False] * 5, [True] * 5)
@example(20, 1000.0, [True] * 7, [False] * 7)
@given(
    st.integers(20, 2000),
    st.sampled_from([32.0, 1000.0]),
    st.lists(st.booleans(), min_size=2, max_size=7),
    st.lists(st.booleans(), min_size=2, max_size=7),
)
def test_the_same_time_read_on_either_side_of_a_step_has_not_changed(
    steps: int, step: float, before: list[bool], after: list[bool]
) -> None:
    sides = [[step * (steps + up) for up in side] for side in (before, after)]
    assert judge(sides[0], sides[1], step)[1] not in _CHANGED


def _naive_bh(p_values: Sequence[float]) -> list[float]:
    """Return for each p the least level at which Benjamini and Hochberg reject it."""
    found = []
    for own in p_values:
        levels = []
        for limit in p_values:
            if limit >= own:
                rejected = sum(p <= limit for p in p_values)
                levels.append(limit * len(p_values) / rejected)
        found.append(min(1.0, *levels))
    return found


@given(st.lists(st.floats(0, 1), max_size=12))
def test_false_discovery_is_benjamini_and_hochbergs(p_values: list[float]) -> None:
    found = false_discovery(p_values)
    assert found == pytest.approx(_naive_bh(p_values))
    if p_values:
        assert found == pytest.approx(stats.false_discovery_control(p_values))
    assert all(q >= p * (1 - 1e-12) for p, q in zip(p_values, found, strict=True))


def _any_changed(times: np.ndarray) -> tuple[int, int]:
    """Return how many of some kernels are called changed: each alone, and tested together.

    A row of times is a kernel, its first half of runs the baseline.
    """
    half = times.shape[1] // 2
    changes = [change_of(row[:half], row[half:]) for row in times.tolist()]
    q_values = false_discovery([change.p or 0 for change in changes])
    alone = sum(verdict_of(change, change.p) in _CHANGED for change in changes)
    together = sum(
        verdict_of(change, q) in _CHANGED for change, q in zip(changes, q_values, strict=True)
    )
    return alone, together


def test_of_many_unchanged_kernels_hardly_any_comparison_finds_one() -> None:
    random = np.random.default_rng(1)
    found = [_any_changed(np.exp(0.03 * random.normal(size=(200, 10)))) for _ in range(60)]
    assert sum(alone > 0 for alone, _ in found) == 60, "each by itself: all comparisons"
    assert sum(together > 0 for _, together in found) <= 3, "at most 5 %"


def test_a_kernel_that_changed_is_found_among_many_that_did_not() -> None:
    random = np.random.default_rng(2)
    times = np.exp(0.01 * random.normal(size=(200, 10)))
    times[:10, 5:] *= 1.1
    changes = [change_of(row[:5], row[5:]) for row in times.tolist()]
    q_values = false_discovery([change.p or 0 for change in changes])
    found = [
        at
        for at, (change, q) in enumerate(zip(changes, q_values, strict=True))
        if verdict_of(change, q) == "regressed"
    ]
    assert set(range(10)) <= set(found)
    assert len(found) <= 12


def _ticks(step: int) -> st.SearchStrategy[tuple[int, list[int]]]:
    """A step, and at least 30 numbers of it that stay below 90 us."""
    shortest = st.integers(1, 89_999 // step)
    return st.tuples(st.just(step), st.lists(shortest, min_size=30, max_size=60, unique=True))


@given(st.sampled_from((*TIMER_STEPS, 1)).flatmap(_ticks))
def test_the_step_of_a_timer_is_seen(drawn: tuple[int, list[int]]) -> None:
    step, ticks = drawn
    durations = {tick * step for tick in ticks}
    beside = {
        own: sum(any(abs(d - near) <= 1 for near in _multiples(d, own)) for d in durations)
        for own in TIMER_STEPS
    }
    fits = [own for own in TIMER_STEPS if beside[own] >= 0.9 * len(durations)]
    assert timer_step(durations) == max(fits, default=1)
    if step > 1:
        assert max(fits) >= step


def _multiples(duration: float, step: int) -> Iterable[float]:
    return (step * (duration // step), step * (duration // step + 1))


def test_few_durations_tell_no_step() -> None:
    assert timer_step([1536, 3072, 6144]) is None
    assert timer_step([]) is None
    assert timer_step(range(1_000_000, 2_000_000, 32)) is None, "all too long"


@pytest.mark.parametrize(
    ("order", "turns"),
    [("ABBA", True), ("ABAB", True), ("ABBAABBA", True), ("AABB", False), ("AAABBB", False),
     ("AABBAABB", False), ("BA", True), ("ABBABA", True)],
)  # fmt: skip
def test_sides_that_took_turns(order: str, turns: bool) -> None:
    times = {
        side: [f"2026-11-22T10:0{at}" for at, s in enumerate(order) if s == side] for side in "AB"
    }
    assert interleaved(times["A"], times["B"]) is turns


def test_an_order_that_is_not_known() -> None:
    assert interleaved(["2026", None], ["2027", "2028"]) is None
    assert interleaved(["2026", "2026"], ["2027", "2028"]) is None


def _false_verdicts(order: str, sd: float, times: int) -> float:
    """Return the share of comparisons of unchanged, correlated runs that find a change."""
    random = np.random.default_rng(3)
    in_turns = order != "AAAAABBBBB"
    wrong = 0
    for _ in range(times):
        noise = [random.normal()]
        for _ in order[1:]:
            noise.append(0.8 * noise[-1] + 0.6 * random.normal())
        runs = [100 * math.exp(sd * own) for own in noise]
        sides = [[t for t, s in zip(runs, order, strict=True) if s == side] for side in "AB"]
        wrong += judge(sides[0], sides[1], interleaved=in_turns)[1] in _CHANGED
    return wrong / times


def test_correlated_runs_seldom_make_a_verdict() -> None:
    # Runs that follow one another are alike (AR(1), 0.8), as on a machine that warms up.
    assert _false_verdicts("AAAAABBBBB", 0.02, 600) <= 0.01
    assert _false_verdicts("ABBAABBAAB", 0.02, 600) <= 0.02
    assert _false_verdicts("ABBAABBAAB", 0.03, 600) <= 0.03
