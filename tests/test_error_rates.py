"""What the gate's rules say, by oracles; how often they are wrong, by simulation."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest
import scipy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfpipe.analysis.gate.ab import ALPHA, level_after
from perfpipe.analysis.gate.choosing import judge
from perfpipe.analysis.gate.judging import change_of, verdict_of
from perfpipe.analysis.gate.modes import best_split, modes_explain, two_modes
from perfpipe.analysis.gate.power import detectable, found_share, further_runs

_VALUES = st.lists(st.integers(0, 40).map(lambda value: value / 8), min_size=4, max_size=9)
_TIMES = st.lists(st.floats(100, 200), min_size=2, max_size=8)


def _squares(values: tuple[float, ...]) -> float:
    return statistics.pvariance(values) * len(values)


@settings(max_examples=25)
@given(_VALUES)
def test_the_best_split_is_the_best_of_all_partitions(values: list[float]) -> None:
    """Of all ways to part the values, not only those that are sorted."""
    least = math.inf
    for size in range(2, len(values) - 1):
        for chosen in itertools.combinations(range(len(values)), size):
            low = tuple(values[at] for at in chosen)
            high = tuple(value for at, value in enumerate(values) if at not in chosen)
            least = min(least, _squares(low) + _squares(high))
    found = best_split(values)
    assert found is not None
    assert found.squares == pytest.approx(least, abs=1e-9)
    ordered = sorted(values)
    low, high = tuple(ordered[: found.lower]), tuple(ordered[found.lower :])
    assert _squares(low) + _squares(high) == pytest.approx(least, abs=1e-9)


@given(_VALUES, _VALUES)
def test_modes_are_the_same_from_either_side(one: list[float], other: list[float]) -> None:
    found = modes_explain(one, other)
    assert found == modes_explain(other, one)
    if max(one) < min(other):
        last = sorted(one + other)[(best_split(one + other) or (0,))[0] - 1]
        assert not found or last != max(one), "a change of all runs is none of modes"


def test_modes() -> None:
    fast, slow = [1.0, 1.001, 0.999], [1.03, 1.031]
    assert modes_explain(fast + slow, fast + slow + fast)
    assert not modes_explain(fast, slow)
    assert not modes_explain([1.0, 1.002, 1.001, 1.004], [1.003, 1.001, 1.002, 1.005])
    assert not modes_explain(fast + slow[:1], fast), "one odd run is no mode"
    assert two_modes(fast + slow) is not None
    assert two_modes(fast * 2) is None
    assert best_split([1, 2, 3]) is None


@given(_TIMES, _TIMES, st.sampled_from([0.01, 0.05, 0.2]))
def test_equivalence_is_two_one_sided_tests(
    before: list[float], after: list[float], alpha: float
) -> None:
    a, b = np.log(before), np.log(after)
    assume(min(a.std(), b.std()) > 1e-6)
    found = change_of(before, after, alpha=alpha)
    assert found.within is not None
    margin = math.log1p(found.within)
    sides = (
        scipy.stats.ttest_ind(b - margin, a, equal_var=False, alternative="less"),
        scipy.stats.ttest_ind(b + margin, a, equal_var=False, alternative="greater"),
    )
    assert max(side.pvalue for side in sides) == pytest.approx(alpha, rel=1e-6)


def _last_level(runs: int) -> float:
    """Return the level of the last look of `perfpipe ab`."""
    return level_after(runs, runs) or ALPHA


def _decided(rng: np.random.Generator, change: float, scatter: float, runs: int) -> np.ndarray:
    """Return which of 400 pairs of sides are decided at the last look, by the rules."""
    logs = rng.normal(0, scatter, (2, 400, runs)) + np.array([0, change])[:, None, None]
    level, limit = _last_level(runs), math.log1p(0.0175)
    size = abs(logs[1].mean(axis=1) - logs[0].mean(axis=1))
    error = np.sqrt(logs.var(axis=2, ddof=1).sum(axis=0) / runs)
    two, one = scipy.stats.t.ppf([1 - level / 2, 1 - level], 2 * runs - 2)
    found: np.ndarray = (size > np.maximum(limit, two * error)) | (size + one * error <= limit)
    return found


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([0.01, 0.02, 0.03]), st.sampled_from([0.0, 0.03, 0.05]), st.integers(0, 9999)
)
def test_further_runs_decide_most_comparisons(scatter: float, change: float, seed: int) -> None:
    """With the estimate and the upper end of the scatter; one run fewer decides less than 80 %."""
    rng = np.random.default_rng(seed)
    sides = [np.exp(rng.normal(mean, scatter, 5)) for mean in (0, change)]
    more = further_runs(sides[0].tolist(), sides[1].tolist(), 0.0175, level_at=_last_level)
    logs = [np.log(own) for own in sides]
    upper = math.sqrt(sum(own.var(ddof=1) for own in logs) / 2 * 8 / scipy.stats.chi2.ppf(0.2, 8))
    estimate = abs(logs[1].mean() - logs[0].mean())
    if more is not None:
        assert _decided(rng, estimate, upper, 5 + more).mean() > 0.72
    if more is None or more > 1:
        fewer = 100 if more is None else 4 + more
        assert _decided(rng, estimate, upper, fewer).mean() < 0.88


def test_the_proposed_runs_decide_most_comparisons_that_were_open() -> None:
    """Over true changes and scatters: each comparison that five rounds leave open is repeated."""
    rng = np.random.default_rng(0)
    decided = []
    for change, scatter in itertools.product((0, 0.03, 0.05), (0.01, 0.02, 0.03)):
        for _ in range(40):
            before, after = (
                np.exp(rng.normal(mean, scatter, 5)).tolist() for mean in (0, math.log1p(change))
            )
            seen = change_of(before, after, alpha=_last_level(5))
            if verdict_of(seen, seen.p, alpha=_last_level(5)) != "inconclusive":
                continue
            more = further_runs(before, after, 0.0175, level_at=_last_level)
            if more is not None:
                decided.append(_decided(rng, math.log1p(change), scatter, 5 + more).mean())
    assert len(decided) > 50
    assert np.mean(decided) > 0.8, "about 0.9"


def test_no_number_of_runs_decides_what_may_be_drift() -> None:
    before, after = [1.0, 1.001, 0.999], [1.03, 1.031, 1.029]
    assert further_runs(before, after, 0.0175) == 1
    assert further_runs(before, after, 0.0175, least=0.05) is None
    assert further_runs(before[:1], after, 0.0175) is None


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize("limit", [0.0, 0.0175])
def test_power_is_what_a_simulation_finds(runs: int, limit: float) -> None:
    rng = np.random.default_rng(runs)
    smallest = detectable(0.01, runs, limit)
    assert found_share(smallest, 0.01, runs, limit) == pytest.approx(0.95, abs=1e-3)
    for change in (smallest, 0.015, 0.0):
        found = 0
        for _ in range(600):
            one, other = (np.exp(rng.normal(mean, 0.01, runs)) for mean in (0, math.log1p(change)))
            seen = change_of(one.tolist(), other.tolist())
            found += seen.p is not None and seen.p < 0.05 and seen.ratio > limit
        expected = found_share(change, 0.01, runs, limit)
        # Welch's test has fewer degrees of freedom than the pooled one that is calculated with.
        assert found / 600 == pytest.approx(expected, abs=0.06 if runs < 5 else 0.045)


def test_what_cannot_be_detected() -> None:
    assert detectable(0.01, 1) == math.inf
    assert detectable(0.0, 5, 0.02) == 0.02
    assert detectable(0.01, 5) < detectable(0.01, 3)


def _normal(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(0, 0.01, 10)


def _two_modes(rng: np.random.Generator) -> np.ndarray:
    return 0.03 * (rng.random(10) < 0.5) + rng.normal(0, 0.003, 10)


def _correlated(rng: np.random.Generator) -> np.ndarray:
    logs = rng.normal(0, 0.01, 10)
    for at in range(1, 10):
        logs[at] = 0.8 * logs[at - 1] + 0.6 * logs[at]
    return logs


_ARM_B = np.array([0, 1, 1, 0, 0, 1, 1, 0, 0, 1], dtype=bool)


def _verdicts(noise: Callable[[np.random.Generator], np.ndarray], change: float) -> list[str]:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(1500):
        times = np.exp(noise(rng) + math.log1p(change) * _ARM_B)
        found.append(judge(times[~_ARM_B].tolist(), times[_ARM_B].tolist())[1])
    return found


@pytest.mark.parametrize(("noise", "most_pct"), [(_normal, 1), (_two_modes, 1), (_correlated, 1)])
def test_few_false_alarms(
    noise: Callable[[np.random.Generator], np.ndarray], most_pct: float
) -> None:
    found = _verdicts(noise, 0)
    false = sum(verdict in ("improved", "regressed") for verdict in found)
    # Three standard errors above what is allowed.
    assert false <= 15 * most_pct + 3 * math.sqrt(15 * most_pct)


def test_a_slowdown_of_three_percent_is_found() -> None:
    found = _verdicts(_normal, 0.03).count("regressed")
    assert found >= 0.95 * 1500 - 3 * math.sqrt(1500 * 0.95 * 0.05)
