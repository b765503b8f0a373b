"""Verdicts on levers: against SciPy and brute force, and how often simulated runs are wrong."""

from __future__ import annotations

import importlib
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from perfpipe.analysis.gate.ab import spent
from perfpipe.analysis.gate.judging import Scatter
from perfpipe.analysis.trying.verdict import (
    ALPHA,
    GAIN,
    INCONCLUSIVE,
    MOST_PER_LEVER,
    NO_GAIN,
    SLOWER,
    Judged,
    Schedule,
    aa,
    adds,
    by_gain,
    confirmed,
    drop_once,
    judged,
    least_gain_pct,
    order,
    scatter_of,
)

_TIMES = st.lists(st.floats(100, 200), min_size=2, max_size=6)
_LEVELS = st.sampled_from([0.0001, 0.004, 0.025, 0.05])


@given(st.integers(1, 30), st.integers(1, 12))
def test_the_looks_at_all_levers_spend_the_level_once(levers: int, rounds: int) -> None:
    schedule = Schedule(levers, rounds)
    levels = [schedule.level(done) for done in range(1, rounds + 1)]
    spent_all = math.fsum(level or 0 for level in levels)
    assert levers * spent_all <= ALPHA + 1e-12
    assert spent_all == pytest.approx(min(ALPHA / levers, MOST_PER_LEVER), rel=1e-6)
    assert all(level is None for level in levels[: min(3, rounds) - 1])


def test_the_share_of_a_lever_that_gains_goes_to_the_others() -> None:
    schedule = Schedule(12, 3)
    levels = [schedule.level(3, found) for found in range(12)]
    shares = [min(ALPHA / (12 - found), MOST_PER_LEVER) for found in range(12)]
    assert levels == pytest.approx(shares)
    assert levels[0] == pytest.approx(ALPHA / 12)


@given(st.integers(1, 12), st.floats(0.001, 0.2))
def test_looks_may_share_any_level(looks: int, alpha: float) -> None:
    levels = [spent(look, looks, alpha) for look in range(1, looks + 1)]
    assert math.fsum(levels) == pytest.approx(alpha)
    assert min(levels) == levels[0] > 0


def _logs(times: Sequence[float]) -> Any:
    return np.log(times)


@given(_TIMES, st.lists(_TIMES, min_size=1, max_size=4))
def test_the_scatter_is_pooled_and_at_least_that_of_plain(
    first: list[float], arms: list[list[float]]
) -> None:
    squares = [((_logs(own) - _logs(own).mean()) ** 2).sum() for own in (first, *arms)]
    freedom = sum(len(own) - 1 for own in (first, *arms))
    found = scatter_of(first, arms)
    assert found is not None
    assert found.freedom == freedom
    expected = max(sum(squares) / freedom, _logs(first).var(ddof=1))
    assert found.variance == pytest.approx(expected, rel=1e-6, abs=1e-15)
    assert scatter_of([1], [[2], []]) is None
    assert least_gain_pct(first) == pytest.approx(max(1, 100 * _logs(first).std(ddof=1)), rel=1e-6)


@given(_TIMES, _TIMES, _LEVELS, st.floats(0.001, 0.1), st.integers(2, 60))
def test_intervals_and_p_are_those_of_a_t_test(
    plain: list[float], other: list[float], alpha: float, scatter: float, freedom: int
) -> None:
    """With the larger of the arm's own variance and that of all launches."""
    found = judged(plain, other, alpha=alpha, limit_pct=1, scatter=Scatter(scatter**2, freedom))
    variances = [max(_logs(own).var(ddof=1), scatter**2) for own in (plain, other)]
    error = math.sqrt(variances[0] / len(plain) + variances[1] / len(other))
    saved = _logs(plain).mean() - _logs(other).mean()
    margin = stats.t.isf(alpha, freedom) * error
    assert found.gain_pct == pytest.approx(100 * -math.expm1(-saved), abs=1e-9)
    assert found.low_pct == pytest.approx(100 * -math.expm1(margin - saved), rel=1e-6, abs=1e-6)
    assert found.high_pct == pytest.approx(100 * -math.expm1(-saved - margin), rel=1e-6, abs=1e-6)
    assert found.p == pytest.approx(stats.t.sf(saved / error, freedom), rel=1e-6, abs=1e-9)


@given(_TIMES, _TIMES, _LEVELS, st.floats(0.1, 5))
def test_a_gain_has_an_interval_above_zero(
    plain: list[float], other: list[float], alpha: float, limit: float
) -> None:
    found = judged(plain, other, alpha=alpha, limit_pct=limit)
    assert found.low_pct is not None and found.high_pct is not None and found.p is not None
    assert found.low_pct <= found.gain_pct <= found.high_pct
    assume(min(abs(found.p - alpha), abs(1 - found.p - alpha)) > 1e-9)
    if found.verdict == GAIN:
        assert found.low_pct > 0 and found.gain_pct > limit and found.p < alpha
    if found.verdict == SLOWER:
        assert found.high_pct < 0 and found.gain_pct < -limit
    if found.verdict == NO_GAIN:
        assert found.gain_pct < limit
    back = judged(other, plain, alpha=alpha, limit_pct=limit)
    if found.verdict == GAIN:
        assert back.verdict in (SLOWER, NO_GAIN), "as a share of the longer time it may not count"


@pytest.mark.parametrize(
    ("plain", "other", "verdict"),
    [
        ([100, 101, 99], [70, 71, 69], GAIN),
        ([100, 101, 99], [130, 131, 129], SLOWER),
        ([100, 101, 99], [100.5, 101.5, 99.5], INCONCLUSIVE),  # a gain of 1 % is not ruled out
        ([100, 100.2, 99.8], [100.1, 100.3, 99.9], NO_GAIN),
        ([100, 100.2, 99.8], [99.5, 99.7, 99.3], NO_GAIN),  # real, and less than counts
        ([100, 101], [70, 71], GAIN),
        ([100, 120, 80], [95, 115, 75], INCONCLUSIVE),
        ([100], [50], INCONCLUSIVE),
        ([100, 100, 100], [100, 100, 100], NO_GAIN),
        ([100, 100, 100], [50, 50, 50], GAIN),
        ([100, 130, 130, 130], [100, 100, 100, 130], INCONCLUSIVE),  # two modes
    ],
)
def test_verdicts(plain: list[float], other: list[float], verdict: str) -> None:
    assert judged(plain, other, alpha=0.004, limit_pct=1).verdict == verdict


def test_time_saved_is_a_share_of_plain() -> None:
    assert judged([100, 100], [70, 70], alpha=0.01, limit_pct=1).gain_pct == pytest.approx(30)
    assert judged([100, 100], [150, 150], alpha=0.01, limit_pct=1).gain_pct == pytest.approx(-50)
    same = judged([100, 100], [100, 100], alpha=0.01, limit_pct=1)
    assert math.copysign(1, same.gain_pct) == 1


def test_a_lever_without_launches_of_its_own_scatter_uses_that_of_the_others() -> None:
    known = scatter_of([100, 101, 99, 100], [])
    found = judged([100], [50], alpha=0.01, limit_pct=1, scatter=known)
    assert found.verdict == GAIN
    alike = judged([100, 100], [97, 97], alpha=0.01, limit_pct=1, scatter=Scatter(0.05**2, 30))
    assert alike.verdict == INCONCLUSIVE, "two launches are alike by chance"


@given(st.integers(2, 16), st.floats(0, 0.1))
def test_drift_cancels_in_plain_against_plain(launches: int, drift: float) -> None:
    times = [math.exp(drift * at) for at in range(launches)]
    gain, low, high = aa(times)
    if launches % 2 or launches % 4 == 0:
        assert gain == pytest.approx(0, abs=1e-9)
    assert abs(gain) <= 100 * math.expm1(drift) + 1e-9, "less than from one launch to the next"
    assert low is not None and high is not None
    assert low <= gain <= high
    assert low <= 1e-9 and high >= -1e-9, "no gain is in the interval"


def test_plain_against_plain_of_one_launch_has_no_interval() -> None:
    assert aa([100]) == (0.0, None, None)


@given(st.integers(1, 6), st.integers(2, 5), st.integers())
def test_orders_are_random_and_repeatable(round_: int, arms: int, seed: int) -> None:
    names = [str(number) for number in range(arms)]
    assert sorted(order(round_, names, seed)) == names
    assert order(round_, names, seed) == order(round_, names, seed)


def test_each_order_comes_as_often() -> None:
    """Each position of each arm in rounds 1, 2, ... of a seed and of many seeds."""
    for orders in (
        [tuple(order(round_, "abc", 1)) for round_ in range(3000)],
        [tuple(order(2, "abc", seed)) for seed in range(3000)],
    ):
        counts = Counter(orders)
        assert len(counts) == 6
        assert stats.chisquare([*counts.values()]).pvalue > 1e-4


def _gain(gain_pct: float, verdict: str = GAIN) -> Judged:
    return Judged(gain_pct, 0, 0, 0, verdict)


def test_levers_are_stacked_from_the_largest_gain_down() -> None:
    levers = {
        "workers": _gain(30), "tf32": _gain(5), "compile": _gain(12),
        "slow": _gain(-20, SLOWER), "open": _gain(40, INCONCLUSIVE),
    }  # fmt: skip
    assert by_gain(levers) == ["workers", "compile", "tf32"]
    assert by_gain({}) == []


def test_a_stack_keeps_what_it_needs() -> None:
    whole = [70.0, 71.0, 69.0]
    assert adds([80, 81, 79], whole, 1)
    assert not adds([70.5, 71.5, 69.5], whole, 1)
    without = {"workers": [100.0, 99, 101], "a": [70.2, 71.2, 69.1], "b": [69.0, 70, 68]}
    assert drop_once(whole, without, 1) == "b", "one at a time: a may replace b"
    del without["b"]
    assert drop_once(whole, without, 1) == "a"
    assert drop_once(whole, {"workers": without["workers"]}, 1) is None
    assert drop_once(whole, {}, 1) is None


def test_a_stack_has_a_95_percent_interval() -> None:
    plain, stack = [100.0, 101, 99], [70.0, 71, 69]
    found = confirmed(plain, stack, limit_pct=1)
    oracle = stats.ttest_ind(_logs(plain), _logs(stack)).confidence_interval(0.95)
    assert found.verdict == GAIN
    # The larger variance of the arms and of both together.
    assert found.low_pct is not None and found.high_pct is not None
    assert found.low_pct <= 100 * -math.expm1(-oracle.low) < found.gain_pct
    assert found.gain_pct < 100 * -math.expm1(-oracle.high) <= found.high_pct


@pytest.fixture(scope="module")
def simulated() -> Any:
    """The simulation whose rates the docs show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("bench_try")


_NOISES = (
    "log-normal 2 %", "heavy tails", "one in ten is 30 % slower", "drift 10 %",
    "period of 2 launches, 5 %", "period of 4 launches, 5 %", "two modes 8 %, 1/2",
    "the first launch is 30 % slower",
)  # fmt: skip

_REPEATS = 120


def _most(repeats: int) -> int:
    """Return the most runs with a false gain that chance explains (one test in a thousand)."""
    return int(stats.binom.ppf(0.999, repeats, ALPHA))


@pytest.mark.parametrize("noise", _NOISES)
def test_runs_of_twelve_null_levers_rarely_report_a_gain(simulated: Any, noise: str) -> None:
    assert simulated.false_gains(simulated.Run(noise, 3), _REPEATS) <= _most(_REPEATS)


@pytest.mark.parametrize("noise", ["period of 2 launches, 5 %", "two modes 8 %, 1/2"])
def test_a_single_null_lever_is_not_in_step_with_the_noise(simulated: Any, noise: str) -> None:
    for rounds in (2, 3, 4):
        run = simulated.Run(noise, rounds, (0.0,))
        assert simulated.false_gains(run, _REPEATS) <= _most(_REPEATS)


def test_the_simulation_finds_out_a_test_of_each_lever_by_itself(
    simulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the scatter of its own launches: two modes then make gains."""
    monkeypatch.setattr(simulated.verdict, "scatter_of", lambda *_: None)
    run = simulated.Run("two modes 8 %, 1/2", 2)
    assert simulated.false_gains(run, _REPEATS) > _most(_REPEATS)


@pytest.mark.parametrize("rounds", [2, 3])
def test_few_rounds_decide_a_gain_of_30_percent(simulated: Any, rounds: int) -> None:
    run = simulated.Run("log-normal 2 %", rounds, (0.3, *(0.0,) * 11))
    assert simulated.found_pct(run, 40) >= 95


def test_levers_that_do_not_gain_are_dropped_at_the_first_look(simulated: Any) -> None:
    """With a scatter as large as the least gain, a fifth of launches is not needed."""
    run = simulated.Run("log-normal 1 %", 8, (0.0,) * 12)
    launches = [run.tried(seed).launches for seed in range(10)]
    assert statistics.fmean(launches) < 0.85 * (3 + 8 * 13)


def test_the_figure_of_a_stack_is_not_that_of_the_best_of_many(simulated: Any) -> None:
    """Twelve variants that all save 4 %: the best one seems to save more, its fresh rounds do not."""
    run = simulated.Run("log-normal 2 %", 3, (0.04,) * 12)
    best, fresh = [], []
    for seed in range(60):
        tried = run.tried(seed)
        best.append(max(own.gain_pct for own in tried.levers.values()) - 4)
        if tried.confirmed:
            fresh.append(tried.confirmed.gain_pct - tried.true_pct)
    assert statistics.fmean(best) > 1
    assert abs(statistics.fmean(fresh)) < 4 * statistics.stdev(fresh) / math.sqrt(len(fresh))


def test_noise_of_each_kind_is_what_its_name_says(simulated: Any) -> None:
    rng = np.random.default_rng(1)
    for length, noise in ((2, "period of 2 launches, 5 %"), (4, "period of 4 launches, 5 %")):
        seen = simulated.NOISES[noise](rng, 8 * length) > 0.025
        assert list(seen[length:]) == list(seen[:-length])
        assert sum(seen) == 4 * length
    slow = simulated.NOISES["one in ten is 30 % slower"](rng, 2000) > 0.15
    assert 150 < sum(slow) < 250
    assert all(len(noise(rng, 20)) == 20 for noise in simulated.NOISES.values())
