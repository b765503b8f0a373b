"""The order of two arms in the rounds, and what their first launches show."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.gate.ab import Round, side_of_rounds
from perfpipe.analysis.gate.first_run import first_run_effect
from perfpipe.analysis.gate.limits import USUAL
from perfpipe.analysis.gate.order import orders
from perfpipe.analysis.gate.sides import Side
from perfpipe.runrecord import TaskResult


@given(st.integers(0, 10**9), st.integers(3, 30))
def test_noise_with_a_short_period_is_never_in_step_with_an_arm(seed: int, rounds: int) -> None:
    own = [*islice(orders(str(seed)), rounds)]
    assert {*own} == {(0, 1), (1, 0)}
    arms = [arm for order in own for arm in order]
    for period in (2, 4):
        for pattern in range(2**period):
            slow = [pattern >> at % period & 1 for at in range(len(arms))]
            if len({*slow}) > 1:
                assert slow != arms
                assert slow != [1 - arm for arm in arms]


def test_orders_are_random_and_repeat() -> None:
    found = [[order for order, _ in islice(orders(str(seed)), 300)] for seed in range(20)]
    assert found[3] == [order for order, _ in islice(orders("3"), 300)]
    assert len({tuple(own) for own in found}) == 20
    assert 0.45 < float(np.mean(found)) < 0.55


def _result(ms: float) -> TaskResult:
    return TaskResult(0, "-", {}, times_ms=(float(ms),))


def _effect(rng: np.random.Generator, first: tuple[float, float], scatter: float) -> str:
    """Return the effect of first launches that take as many times the usual time, by arm."""
    arms: list[tuple[str, Side, list[TaskResult]]] = []
    for name, factor in zip("ab", first, strict=True):
        times = 10 * np.exp(rng.normal(0, scatter, 6))
        rounds = [Round(at, (_result(ms),)) for at, ms in enumerate(times[1:])]
        side = side_of_rounds(name, rounds, ["-"])
        arms.append((name, side, [_result(factor * times[0])] if factor else []))
    return first_run_effect(arms, ["-"], USUAL)


def test_first_run_effects_are_reported_if_they_exceed_the_scatter() -> None:
    rng = np.random.default_rng(0)
    found = [bool(_effect(rng, (1, 1), 0.02)) for _ in range(1000)]
    # 1 % of programs without an effect; three standard errors above that.
    assert 0 < sum(found) <= 20
    assert not any(_effect(rng, (1.01, 1.01), 0.0001) for _ in range(20)), "below the threshold"
    found = [bool(_effect(rng, (1, 1.3), 0.02)) for _ in range(100)]
    assert all(found)
    both = _effect(rng, (1.1, 1.3), 0.001)
    assert both.startswith(
        "An iteration of arm a took 11 ms in the first launch and 10 ms in later "
    )
    assert "; an iteration of arm b took 13 ms in the first launch" in both
    assert "An iteration of arm a took 1" in _effect(rng, (1.3, 0), 0.001), (
        "of an arm that was not launched"
    )
    assert _effect(rng, (1, 1), 0.001) == ""
