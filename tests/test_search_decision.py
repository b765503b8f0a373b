"""When a search may claim a gain: simulated noise, exact tests by counting, convergence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.search_decision import (
    FALSE_GAINS,
    FINALISTS,
    convergence,
    decided,
    log_gains,
    proven,
    ranked,
    sign_flip_p,
    speedup_of,
)
from perfpipe.searchrecord import INCUMBENT, Attempt, Confirmation, Round, Times

#: Launches of a confirmation by default.
LAUNCHES = 12

Random = np.random.Generator
Draw = Callable[[Random, tuple[int, int]], np.ndarray]

#: What one side's logarithm of a time does from launch to launch, if nothing differs.
NOISE: dict[str, Draw] = {
    "quiet": lambda random, shape: 0.01 * random.normal(size=shape),
    "busy": lambda random, shape: 0.4 * random.normal(size=shape),
    "two modes": lambda random, shape: np.log(1.4) * (random.random(shape) < 0.5),
    "rare spikes": lambda random, shape: (
        (random.random(shape) < 0.1) * random.exponential(2, shape)
    ),
    "heavy tails": lambda random, shape: 0.05 * random.standard_t(1.5, shape),
    "few values": lambda random, shape: 0.02 * random.integers(0, 3, shape),
}


def _searches(draw: Draw, gain: float, count: int) -> int:
    """Return how many of some simulated searches claim a gain: all share the baseline's noise."""
    random = np.random.default_rng(7)
    claimed = 0
    for _ in range(count):
        baseline = draw(random, (1, LAUNCHES))
        own = draw(random, (FINALISTS, LAUNCHES))
        logs = math.log1p(gain) + baseline - own
        gains = {f"g{n}": tuple(map(float, row)) for n, row in enumerate(logs)}
        claimed += proven(gains).winner is not None
    return claimed


@pytest.mark.parametrize("kind", NOISE)
def test_noise_alone_is_no_gain(kind: str) -> None:
    count = 1500
    assert _searches(NOISE[kind], 0.0, count) <= FALSE_GAINS * count


@pytest.mark.parametrize("kind", ["quiet", "few values"])
def test_a_gain_of_a_fifth_is_found(kind: str) -> None:
    assert _searches(NOISE[kind], 0.2, 200) == 200


def test_a_gain_of_a_fifth_is_found_with_noise_of_a_twentieth() -> None:
    found = _searches(lambda random, shape: 0.05 * random.normal(size=shape), 0.2, 400)
    assert found >= 0.99 * 400


def test_a_gain_too_small_to_count_is_not_claimed() -> None:
    gains = {"g": [math.log(1.01) + 1e-4 * n for n in range(LAUNCHES)]}
    made = proven(gains)
    assert made.winner is None and made.leader == "g"
    assert (made.speedups["g"].low or 0) > 1, "it is a gain, but smaller than what counts"


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_the_exact_test_counts_sign_patterns(values: list[int]) -> None:
    signs = [*itertools.product((1, -1), repeat=len(values))]
    sums = [sum(s * v for s, v in zip(pattern, values, strict=True)) for pattern in signs]
    expected = sum(total >= sum(values) for total in sums) / len(signs)
    assert sign_flip_p([float(v) for v in values]) == pytest.approx(expected)


def test_the_exact_test_of_many_launches_stays_fast_and_sound() -> None:
    assert sign_flip_p([0.1] * 40) == 2.0**-10
    assert sign_flip_p([-0.1] * 40) == 1.0
    alternating = [0.1, 0.1, -0.1, -0.1] * 10
    assert sign_flip_p(alternating) > 0.4


@given(
    st.lists(st.floats(-0.5, 0.5), min_size=10, max_size=14),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_more_finalists_and_later_looks_prove_less(
    gains: list[float], finalists: int, look: int
) -> None:
    one = proven({"g": gains}, look, finalists)
    stricter = (
        proven({"g": gains}, look, finalists + 1),
        proven({"g": gains}, look + 1, finalists),
    )
    for other in stricter:
        assert other.level < one.level
        assert (other.speedups["g"].low or 0) <= (one.speedups["g"].low or 0) + 1e-12
        assert other.winner is None or one.winner is not None


def test_all_looks_together_claim_few() -> None:
    levels = [proven({"g": [0.0, 0.1]}, look).level / 2 for look in range(60)]
    assert sum(levels) <= FALSE_GAINS


def _timed(name: str, generation: int, gain: float, over: float | None = None) -> Attempt:
    """Return a candidate with four launches: its speedup over the baseline and the incumbent."""
    wobble = (0.999, 1.0, 1.001, 1.0)
    times = [Times("c", "base", tuple(w / gain for w in wobble), (1.0,) * 4)]
    if over is not None:
        times.append(Times("c", INCUMBENT, tuple(w / over for w in wobble), (1.0,) * 4))
    return Attempt(name, generation, "correct", times=tuple(times))


def test_only_times_of_the_same_launch_are_compared() -> None:
    """A candidate that is slow in all, and whose baseline was slower still, is the faster one."""
    fast_machine = Attempt("a", 1, "correct", times=(Times("c", "base", (1.0, 1.1), (1.0, 1.1)),))
    slow_machine = Attempt("b", 1, "correct", times=(Times("c", "base", (5.0, 9.0), (10.0, 18.0)),))
    assert [own.name for own, _ in ranked([fast_machine, slow_machine], "base")] == ["b", "a"]
    assert log_gains(slow_machine, "base") == pytest.approx([math.log(2)] * 2)
    assert speedup_of(log_gains(slow_machine, "other")) is None


def test_cases_are_averaged_within_a_launch() -> None:
    own = Attempt("a", 1, "correct", times=(
        Times("small", "base", (1.0, 1.0), (4.0, 4.0)),
        Times("large", "base", (1.0, 1.0), (1.0, 1.0)),
    ))  # fmt: skip
    found = speedup_of(log_gains(own, "base"))
    assert found is not None and found.ratio == pytest.approx(2.0)


def test_convergence_needs_a_bound_on_the_last_generation() -> None:
    first = [_timed("g1v1", 1, 1.2)]
    assert not convergence(first).proven
    same = convergence([*first, _timed("g2v1", 2, 1.2, over=1.0)])
    assert same.proven and "up to" in same.why
    faster = convergence([*first, _timed("g2v1", 2, 1.5, over=1.25)])
    assert not faster.proven and (faster.most_pct or 0) > 20
    failed = convergence([*first, Attempt("g2v1", 2, "crash")])
    assert not failed.proven and failed.most_pct is None


def test_a_finalist_that_fails_keeps_its_share_of_the_level() -> None:
    half = (0.5,) * 6
    gains: dict[str, tuple[float, ...]] = {"a": half, "b": half}
    rounds = (Round("a", 1, gains), Round("b", 2, {"a": half}, {"b": "wrong result"}))
    made = decided(Confirmation(0, ("a", "b"), rounds))
    assert made.winner == "a" and made.tested == 2 and [*made.speedups] == ["a"]
