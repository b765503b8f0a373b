"""What a bisection launches next and answers: levels by an oracle, histories by simulation."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from perfpipe.analysis.gate.bisect import (
    Answer,
    Ask,
    History,
    Kind,
    Like,
    Outcome,
    Round,
    like,
    likely_places,
    next_step,
)
from perfpipe.analysis.gate.levels import levels_of


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The benchmark, whose simulation is the one of these tests."""
    path = ROOT / "benchmarks" / "bench_bisect.py"
    spec = importlib.util.spec_from_file_location("bench_bisect", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@st.composite
def _rounds(draw: st.DrawFn) -> list[dict[int, float]]:
    """Rounds of the ends 0 and 9, with or without a third place, whose noise is small."""
    places = draw(st.lists(st.sampled_from([None, 1, 2, 3]), min_size=4, max_size=10))
    number = st.floats(-0.004, 0.004)
    rounds = []
    for place in places:
        drift = draw(st.floats(-0.2, 0.2))
        own = [0, 9] if place is None else [0, 9, place]
        rounds.append({at: 100 * math.exp(0.01 * at + drift + draw(number)) for at in own})
    return rounds


@settings(max_examples=40, suppress_health_check=[*HealthCheck])
@given(_rounds())
def test_levels_are_those_of_least_squares(rounds: list[dict[int, float]]) -> None:
    """Without odd times: ordinary least squares with a column for each round and each place."""
    found = levels_of(rounds)
    places = [*found.at]
    rows, values = [], []
    for number, one in enumerate(rounds):
        for place, time in one.items():
            row = np.zeros(len(rounds) + len(places) - 1)
            row[number] = 1
            if found.at[place]:
                row[len(rounds) + found.at[place] - 1] = 1
            rows.append(row)
            values.append(math.log(time))
    design, target = np.array(rows), np.array(values)
    solved, *_ = np.linalg.lstsq(design, target, rcond=None)
    rest = target - design @ solved
    freedom = len(target) - design.shape[1]
    variance = max(float(rest @ rest) / max(1, freedom), 1e-8)
    scale = 1.4826 * np.median(np.abs(rest)) * math.sqrt(len(target) / max(1, freedom))
    assume(np.all(np.abs(rest) <= 2.49 * max(scale, 1e-4)))
    assert found.freedom == max(1, freedom)
    assert found.means[1:] == pytest.approx(solved[len(rounds) :], abs=1e-9)
    own = np.linalg.inv(design.T @ design)[len(rounds) :, len(rounds) :]
    assert found.covariance[1:, 1:] == pytest.approx(variance * own, rel=1e-6, abs=1e-15)
    distance, squared = found.apart(0, 9)
    assert distance == pytest.approx(solved[len(rounds) + found.at[9] - 1], abs=1e-9)
    assert squared > 0


def test_one_odd_time_hardly_moves_a_level() -> None:
    rng = np.random.default_rng(3)
    rounds = [{p: 100 * math.exp(rng.normal(0, 0.005)) for p in (0, 9, 4)} for _ in range(8)]
    rounds[3][4] *= 1.5
    assert abs(levels_of(rounds).apart(0, 4)[0]) < 0.02, "the mean is 5 % off"


def _searched(
    levels: Mapping[int, float] | list[float], noise: float = 0, seed: int = 0, **more: object
) -> tuple[Answer, History]:
    rng = np.random.default_rng(seed)
    history = History(len(levels) - 1, **more)  # type: ignore[arg-type]
    while not isinstance(step := next_step(history), Answer):
        times = {
            place: 1e7 * math.exp(levels[place] + rng.normal(0, noise)) for place in step.places
        }
        history = replace(history, rounds=(*history.rounds, Round(step.kind, times)))
    return step, history


@given(st.integers(1, 40), st.data())
@settings(max_examples=40)
def test_exact_times_need_no_more_probes_than_a_binary_search(
    count: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(1, count))
    change = data.draw(st.sampled_from([0.1, -0.1]))
    levels = [change if place >= step else 0.0 for place in range(count + 1)]
    found, history = _searched(levels)
    assert (found.outcome, found.before, found.after) == (Outcome.FOUND, step - 1, step)
    assert found.step is not None
    assert found.step.ratio == pytest.approx(math.expm1(change))
    assert len(history.probes) <= math.ceil(math.log2(count)) if count > 1 else not history.probes


@given(st.integers(3, 30), st.data())
@settings(max_examples=40)
def test_skipped_places_leave_a_range_that_has_the_step(count: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(1, count))
    skipped = data.draw(st.frozensets(st.integers(1, count - 1), max_size=count - 1))
    levels = [0.1 if place >= step else 0.0 for place in range(count + 1)]
    found, history = _searched(levels, skipped=skipped)
    assert found.before < step <= found.after
    assert not skipped & {place for one in history.rounds for place in one.times}
    whole = found.after - found.before == 1
    assert found.outcome == (Outcome.FOUND if whole else Outcome.RANGE)
    assert all(place in skipped for place in range(found.before + 1, found.after))


def test_a_place_that_fails_later_is_removed_from_all_rounds() -> None:
    levels = [0.0] * 4 + [0.1] * 5
    _, history = _searched(levels)
    probed = history.probes[0][0]
    left = history.without(probed)
    assert probed not in {place for one in left.rounds for place in one.times}
    assert probed not in left.places
    assert left.pair_rounds == history.pair_rounds
    assert all(len(one.times) > 1 for one in left.rounds)
    assert isinstance(next_step(left), Ask | Answer)


def test_what_is_next_depends_on_the_rounds_alone() -> None:
    """A search that continues asks for what an uninterrupted one measured."""
    levels = [0.0] * 20 + [0.03] * 20
    _, history = _searched(levels, 0.01)
    for done, one in enumerate(history.rounds):
        asked = next_step(replace(history, rounds=history.rounds[:done]))
        assert asked == Ask(one.kind, tuple(one.times))
    assert [one.kind for one in history.rounds] == sorted(
        (one.kind for one in history.rounds), key=[Kind.ENDS, Kind.PROBE, Kind.PAIR].index
    )
    assert likely_places(history) == [20]


def test_ends_that_do_not_differ_end_it() -> None:
    found, history = _searched([0.0] * 30, 0.005)
    assert found.outcome == Outcome.NOT_REPRODUCIBLE
    assert not history.probes
    small, _ = _searched([0.0] * 15 + [0.01] * 15, 0.003)
    assert small.outcome == Outcome.NOT_REPRODUCIBLE, "less than counts"
    lower, _ = _searched([0.0] * 15 + [0.01] * 15, 0.001, limit_pct=0.5)
    assert (lower.outcome, lower.after) == (Outcome.FOUND, 15)
    noisy, history = _searched([0.0] * 15 + [0.03] * 15, 0.1)
    assert noisy.outcome == Outcome.UNDECIDED
    assert len(history.rounds) == 10


def test_histories_with_several_changes() -> None:
    two = [0.0] * 10 + [0.05] * 10 + [0.1] * 10
    found, _ = _searched(two, 0.003)
    assert (found.outcome, found.after) == (Outcome.FOUND, 10), "the first step"
    assert found.step is not None and found.step.high is not None and found.total.low is not None
    assert found.step.high < found.total.low, "which is not all of it"
    spread, _ = _searched([0.03 * place / 30 for place in range(31)], 0.003)
    assert spread.outcome == Outcome.SPREAD
    assert (spread.before, spread.after, spread.others) == (0, 30, [])
    there_and_back = [0.0] * 10 + [0.2] * 10 + [0.05] * 10
    found, _ = _searched(there_and_back, 0.003)
    assert (found.outcome, found.after) == (Outcome.FOUND, 10)


@pytest.mark.parametrize(("slope", "last"), [(0.04, -0.05), (0.06, 0.02), (0.1, 0.2)])
def test_a_spread_search_names_the_part_that_it_searched(slope: float, last: float) -> None:
    """A slope over 20 places, then a step: only a part of the slope was searched."""
    levels = [slope * min(place, 20) / 20 for place in range(41)] + [last] * 20
    found, _ = _searched(levels, 0.0005)
    assert found.outcome == Outcome.SPREAD
    assert 0 < found.after - found.before < 60
    assert found.searched is not None and found.searched.counts
    ends = [(part.first, part.last) for part in found.parts]
    assert [first for first, _ in ends] == [0, *(end for _, end in ends[:-1])]
    assert ends[-1][1] == 60
    for part in found.parts:
        change = levels[part.last] - levels[part.first]
        assert math.log1p(part.ratio) == pytest.approx(change, abs=0.004)


def test_what_a_probed_place_is_like() -> None:
    _, history = _searched([0.0] * 20 + [0.1] * 20, 0.003)
    for place, _ in history.probes:
        assert like(history, place, (0, 39)) == (Like.FIRST if place < 20 else Like.SECOND)
    rounds = tuple(Round(Kind.PROBE, {0: 100, 2: 110, 1: time}) for time in (150, 150.1, 149.9))
    assert like(History(2, rounds), 1, (0, 2)) == Like.NEITHER
    (between,) = (Round(Kind.PROBE, {0: 100, 2: 102, 1: 101}),)
    assert like(History(2, (between,)), 1, (0, 2)) in (Like.UNCLEAR, Like.NEITHER)


def test_planted_slowdowns_are_found(bench: ModuleType) -> None:
    """64 commits, one step of 3 %, noise of 1 %: right in at least 95 of 100, by 12 probes."""
    (case,) = (case for case in bench.CASES if case.name == "one step of 3 %")
    right, most = 0, 0
    for seed in range(100):
        rng = np.random.default_rng([seed, 5])
        planted = case.make(rng)
        found = bench.simulate(planted, case, rng)
        right += bench.outcome_of(found.answer, planted.steps) == "found, right"
        most = max(most, found.probes)
    assert right >= 95
    assert most <= 12


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("no change", "not reproducible"),
        ("one step of -3 %", "found, right"),
        ("one step of 3 %, drift 0.5 % per launch", "found, right"),
        ("3 % in equal parts over all commits", "spread"),
    ],
)
def test_other_histories(bench: ModuleType, name: str, outcome: str) -> None:
    (case,) = (case for case in bench.CASES if case.name == name)
    counts: Counter[str] = Counter()
    for seed in range(10):
        rng = np.random.default_rng([seed, 6])
        planted = case.make(rng)
        counts[bench.outcome_of(bench.simulate(planted, case, rng).answer, planted.steps)] += 1
    assert counts[outcome] >= 7, counts
    assert not counts["found, wrong"]
