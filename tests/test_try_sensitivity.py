"""Handicaps of programs, and what their slopes show."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from handicapped import Effect, Launched
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.trying.causes import Cause, contradicts, lines
from perfpipe.analysis.trying.pace import Pace
from perfpipe.analysis.trying.slopes import Estimate, Slopes, slopes_of
from perfpipe.pipelines.trying import sensitivity as pipeline
from perfpipe.pipelines.trying.sensitivity import HANDICAPS, launches, sensitivity

# --- Statistics


def _lstsq(
    rounds: Sequence[Sequence[float]], delays: Sequence[float], weights: Sequence[float]
) -> Estimate:
    """Return a contrast of levels by least squares, with a mean of its own for each round."""
    from scipy.stats import t

    count, wide = len(rounds), len(delays)
    design = np.zeros((count * wide, count + wide - 1))
    for number in range(count):
        for level in range(wide):
            row = number * wide + level
            design[row, number] = 1
            if level:
                design[row, count + level - 1] = 1
    times = np.array(rounds, dtype=float).ravel()
    found, *_ = np.linalg.lstsq(design, times, rcond=None)
    freedom = times.size - design.shape[1]
    variance = ((times - design @ found) ** 2).sum() / freedom
    contrast = np.zeros(design.shape[1])
    contrast[count:] = weights[1:]
    value = float(contrast @ found)
    inverse = np.linalg.inv(design.T @ design)
    error = math.sqrt(variance * (contrast @ inverse @ contrast)) * t.ppf(0.975, freedom)
    return Estimate(value, value - error, value + error)


_TIMES = st.floats(1, 100)


@given(st.data(), st.integers(2, 6), st.integers(2, 4))
def test_slopes_are_those_of_least_squares(data: st.DataObject, count: int, levels: int) -> None:
    rounds = data.draw(
        st.lists(st.lists(_TIMES, min_size=levels, max_size=levels), min_size=count, max_size=count)
    )
    steps = data.draw(st.lists(st.floats(0.1, 10), min_size=levels - 1, max_size=levels - 1))
    delays = [0.0, *np.cumsum(steps).tolist()]
    found = slopes_of(rounds, delays)
    middle = np.mean(delays)
    spread = sum((delay - middle) ** 2 for delay in delays)
    overall = _lstsq(rounds, delays, [(delay - middle) / spread for delay in delays])
    assert found.overall == pytest.approx(overall, rel=1e-6, abs=1e-6)
    for place, part in enumerate(found.parts):
        weights = np.zeros(levels)
        weights[place : place + 2] = np.array([-1, 1]) / (delays[place + 1] - delays[place])
        expected = _lstsq(rounds, delays, weights.tolist())
        assert part == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert (found.kink is None) == (levels == 2)
    if found.kink is not None:
        assert found.kink.value == pytest.approx(found.parts[-1].value - found.parts[0].value)


@given(st.lists(st.lists(_TIMES, min_size=3, max_size=3), min_size=2, max_size=5),
       st.lists(st.floats(-50, 50), min_size=5, max_size=5))  # fmt: skip
def test_what_all_times_of_a_round_share_does_not_count(
    rounds: list[list[float]], shifts: list[float]
) -> None:
    moved = [[time + shift for time in own] for own, shift in zip(rounds, shifts, strict=False)]
    first, second = slopes_of(rounds, [0, 1, 2]), slopes_of(moved, [0, 1, 2])
    assert first.overall == pytest.approx(second.overall, abs=1e-6)
    assert first.kink == pytest.approx(second.kink, abs=1e-6)


def test_intervals_contain_the_slope_as_often_as_they_say() -> None:
    random = np.random.default_rng(3)
    hits = 0
    for _ in range(2000):
        drift = random.normal(0, 3, size=(3, 1))
        times = 20 + drift + 0.4 * np.array([0, 2, 4]) + random.normal(0, 0.3, size=(3, 3))
        overall = slopes_of(times.tolist(), [0, 2, 4]).overall
        hits += overall.low <= 0.4 <= overall.high
    assert 0.935 <= hits / 2000 <= 0.965


@pytest.mark.parametrize(
    ("rounds", "delays"),
    [([[1, 2]], [0, 1]), ([[1], [2]], [0]), ([[1, 2], [1]], [0, 1]), ([[1, 2], [1, 2]], [1, 1])],
)
def test_too_few_rounds_or_delays_give_no_slope(
    rounds: list[list[float]], delays: list[float]
) -> None:
    with pytest.raises(ValueError, match=r"a slope needs|must ascend"):
        slopes_of(rounds, delays)


# --- What slopes mean


def _cause(
    handicap: str, value: float, low: float, high: float, *, parallel: int = 1, unit: str = "step"
) -> Cause:
    overall = Estimate(value, low, high)
    slopes = Slopes(overall, (overall, overall), Estimate(0, low - high, high - low))
    return Cause(handicap, unit, 20.0, "1 ms per call", 1000.0, 2.0, (0, 2, 4), slopes, parallel)


@pytest.mark.parametrize(
    ("slope", "kind"),
    [
        ((1.0, 0.9, 1.1), "bound"),
        ((1.6, 0.9, 2.1), "bound"),
        ((0.02, -0.1, 0.1), "hidden"),
        ((-0.2, -0.3, 0.1), "hidden"),
        ((0.5, 0.4, 0.6), "partial"),
        ((0.5, 0.1, 0.9), "unclear"),
        ((0.9, 0.1, 1.7), "unclear"),
        ((0.1, -0.7, 0.9), "unclear"),
    ],
)
def test_kinds(slope: tuple[float, float, float], kind: str) -> None:
    assert _cause("model", *slope).kind == kind


def test_workers_share_a_delay() -> None:
    """Each of four workers is delayed in every fourth batch that the program takes."""
    cause = _cause("loader", 0.25, 0.22, 0.28, parallel=4)
    assert cause.kind == "bound"
    assert "4 workers load in parallel, so a slope of 0.25 is full" in cause.meaning
    assert _cause("loader", 0.25, 0.22, 0.28).kind in ("partial", "hidden")


def _times(slack: float, delays: Sequence[float], share: float = 1.0) -> list[list[float]]:
    """Return times of three rounds of a unit that hides a delay up to its slack."""
    times = [20 + share * max(0.0, delay - slack) for delay in delays]
    noise = ((0.01, -0.01, 0.0), (0.0, 0.01, -0.01), (-0.01, 0.0, 0.01))
    return [[time + own for time, own in zip(times, one, strict=True)] for one in noise]


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("slack", [0.5, 2.0, 3.0])
def test_the_slack_is_what_a_delay_may_be_without_effect(slack: float, parallel: int) -> None:
    delays = (0.0, 2.0, 4.0)
    slopes = slopes_of(_times(slack, delays, 1 / parallel), delays)
    cause = Cause("loader", delays_ms=delays, slopes=slopes, parallel=parallel)
    # The slope is the full one only between delays that are beyond the slack.
    last = (4 - max(slack, 2)) / 2
    if last < 0.75:
        assert cause.slack_ms is None
    else:
        assert cause.slack_ms == pytest.approx(slack, abs=0.1)
        assert f"The slack is about {cause.slack_ms:.3g} ms per step." in cause.meaning


def test_no_slack_where_every_delay_counts_and_a_bound_where_none_does() -> None:
    delays = (0.0, 2.0, 4.0)
    bound = Cause("model", delays_ms=delays, slopes=slopes_of(_times(0, delays), delays))
    assert (bound.kind, bound.slack_ms, bound.more_slack) == ("bound", None, False)
    hidden = Cause("model", delays_ms=delays, slopes=slopes_of(_times(9, delays), delays))
    assert (hidden.kind, hidden.slack_ms, hidden.more_slack) == ("hidden", 4.0, True)
    assert "The slack is more than 4 ms per step." in hidden.meaning
    assert replace(hidden, handicap="cores").slack_ms is None


def _verdicts(*found: Cause) -> dict[str, str]:
    """Return the categories that causes contradict, and why."""
    known = {cause.handicap: cause for cause in found}
    said = {name: contradicts(name, known) for name in (*CATEGORIES, "input")}
    return {name: why for name, why in said.items() if why is not None}


CATEGORIES = tomllib.loads((ROOT / "analysis" / "words.toml").read_text())["category"]


def test_verdicts_that_slopes_contradict() -> None:
    hidden, bound = (0.02, -0.05, 0.09), (0.98, 0.95, 1.01)
    found = _verdicts(_cause("launch", *hidden))
    assert found == {
        "launch_overhead": "The slope of launch, 0.02 (-0.05 to 0.09), contradicts the verdict "
        "launch_overhead: a later launch does not make the step later."
    }
    assert [*_verdicts(_cause("launch", *bound))] == ["kernel_gap", "device_wait", "compute"]
    assert [*_verdicts(_cause("model", *hidden))] == ["launch_overhead", "sync", "host"]
    assert [*_verdicts(_cause("copies", *hidden))] == ["transfer"]
    assert [*_verdicts(_cause("loader", *hidden))] == ["input"]
    # A GPU that is waited for in each step is busy, and yet each delay of the host counts.
    assert not _verdicts(_cause("model", *bound), _cause("loader", *bound))


def test_what_is_not_certain_contradicts_nothing() -> None:
    assert not _verdicts(_cause("launch", 0.1, -0.4, 0.6))
    assert not _verdicts(_cause("launch", 0.8, 0.3, 1.3))
    assert not _verdicts(Cause("launch", unavailable="no GPU"))
    assert not _verdicts()


@pytest.mark.parametrize(("category", "share"), [("launch_overhead", 0.5), ("compute", 0.5),
                                                 ("launch_overhead", 1), ("compute", 0)])  # fmt: skip
def test_verdicts_are_rarely_contradicted_by_mistake(category: str, share: float) -> None:
    """Three rounds of a unit whose time scatters by 5 %, and delays of 10 and 20 % of it."""
    random = np.random.default_rng(5)
    delays, wrong = (0.0, 2.0, 4.0), 0
    for _ in range(300):
        times = 20 * np.exp(random.normal(0, 0.05, (3, 3))) + share * np.array(delays)
        cause = Cause("launch", delays_ms=delays, slopes=slopes_of(times.tolist(), delays))
        wrong += contradicts(category, {"launch": cause}) is not None
    assert wrong <= 0.05 * 300


def test_every_handicap_has_words_and_every_rule_a_category() -> None:
    path = ROOT / "analysis" / "trying" / "sensitivity.toml"
    table = tomllib.loads(path.read_text())
    assert table["handicap"].keys() == set(HANDICAPS)
    for rule in table["contradiction"]:
        assert rule["handicap"] in HANDICAPS
        assert {*rule["categories"]} <= {*CATEGORIES, "input"}
    for name in HANDICAPS:
        for slope in ((1, 0.9, 1.1), (0.5, 0.4, 0.6), (0, -0.1, 0.1)):
            meaning = _cause(name, *slope, unit="token").meaning
            assert "{" not in meaning
            assert "token" in meaning or "spare" in meaning or "hidden" in meaning


def test_text_and_rows_have_what_was_measured() -> None:
    found = {
        "loader": _cause("loader", 0.97, 0.94, 1.0),
        "launch": Cause("launch", unavailable="PyTorch has loaded no CUPTI"),
    }
    head, row, missing = lines(found)
    assert head.split() == ["handicap", "amount", "events", "slope", "meaning"]
    assert "1 ms per call  2 per step  0.97 (0.94 to 1.00)  The step waits for the loader" in row
    assert missing == "launch: not available: PyTorch has loaded no CUPTI"
    assert lines({"launch": found["launch"]}) == [missing]
    rows = json.loads(json.dumps([cause.row() for cause in found.values()]))
    assert rows[0]["slope"] == 0.97 and rows[0]["interval"] == [0.94, 1.0]
    assert rows[0]["kind"] == "bound" and rows[0]["events_per_unit"] == 2
    assert rows[1]["slope"] is None and rows[1]["interval"] is None
    assert rows[1]["unavailable"] == "PyTorch has loaded no CUPTI"


# --- The launches


@dataclass
class Simulated:
    """A program whose unit takes known times; `log` has the handicaps of each launch.

    A unit of `unit_ms` has `events` of each handicap.  It hides delays up to `slack_ms`, and
    a delay counts for 1 / `workers`.
    """

    events: Mapping[str, float]
    slack_ms: Mapping[str, float] = field(default_factory=dict)
    unit_ms: float = 20.0
    workers: int = 1
    held: int = 0
    units: int = 120
    fails: Sequence[int] = ()
    refuses: Mapping[str, str] = field(default_factory=dict)
    log: list[dict[str, float]] = field(default_factory=list)

    def __call__(
        self, entries: Sequence[Mapping[str, Any]], env: Mapping[str, str], wrapper: Sequence[str]
    ) -> Launched:
        slowed = {own["name"]: float(own["options"]["us"]) for own in entries}
        self.log.append(slowed)
        if len(self.log) in self.fails:
            return Launched(Pace("launch", (), (), (), 1.0, (), False), "crash", "it broke")
        ms = self.unit_ms * (1 + 0.001 * (len(self.log) * 7 % 5 - 2))
        for name, us in slowed.items():
            delay = us / 1000 * self.events.get(name, 0)
            ms += max(0.0, delay - self.slack_ms.get(name, 0)) / self.workers
        ends = [1000 + round(1e6 * ms * number) for number in range(self.units + 1)]
        effects = {}
        for name in slowed:
            count = [round(number * self.events.get(name, 0)) for number in range(self.units + 1)]
            counters = {"events": count[-1], "time_ns": ends, "counts": count}
            if name == "loader":
                counters |= {"parallel": self.workers, "batches_held": self.held}
            if name in self.refuses:
                counters = {"events": 0, "time_ns": [], "counts": []}
            refused = [self.refuses[name]] if name in self.refuses else []
            effects[name] = Effect(counters=counters, refused=refused)
        pace = Pace("step", tuple(ends), (1,) * len(ends), (), 9.0, (), False, self.units)
        return Launched(pace, effects=effects)


def _say(text: str) -> None:
    """Say nothing."""


def test_levels_are_launched_in_turns_and_share_the_launches_without_a_delay() -> None:
    program = Simulated({"loader": 1, "model": 4})
    found = sensitivity(program, ["loader", "model"], rounds=3, say=_say)
    assert len(program.log) == launches(["loader", "model"], 3) == 1 + 3 * 5
    assert program.log[0] == {"loader": 0, "model": 0}
    slow = [{name: us for name, us in own.items() if us} for own in program.log[1:]]
    # A tenth of 20 ms: one batch, and four calls.
    us, call_us = slow[1]["loader"], slow[3]["model"]
    assert us == pytest.approx(2000, rel=0.01) and call_us == pytest.approx(500, rel=0.01)
    turn = [{}, {"loader": us}, {"loader": 2 * us}, {"model": call_us}, {"model": 2 * call_us}]
    assert slow == [*turn, *turn[::-1], *turn]
    assert [*found] == ["loader", "model"]
    for cause in found.values():
        assert cause.slopes is not None
        assert cause.slopes.overall.value == pytest.approx(1, abs=0.05)
        assert cause.kind == "bound" and cause.launches == 9
    assert found["model"].events_per_unit == 4
    assert found["model"].amount == f"{round(call_us)} us per call"


def test_hidden_delays_and_their_slack() -> None:
    program = Simulated({"loader": 1, "model": 1}, {"loader": 99, "model": 1.5})
    found = sensitivity(program, ["loader", "model"], rounds=3, say=_say)
    assert found["loader"].kind == "hidden" and found["loader"].more_slack
    assert found["model"].slack_ms == pytest.approx(1.5, abs=0.1)


def test_delays_of_several_workers() -> None:
    program = Simulated({"loader": 1}, workers=4, held=8)
    cause = sensitivity(program, ["loader"], say=_say)["loader"]
    assert cause.slopes is not None
    assert cause.slopes.overall.value == pytest.approx(0.25, abs=0.02)
    assert (cause.kind, cause.parallel, cause.note) == ("bound", 4, "")
    short = replace(program, units=40, log=[])
    assert (
        "may have been loaded before the first of them"
        in sensitivity(short, ["loader"], say=_say)["loader"].note
    )


def test_a_few_steps_are_a_whole_launch() -> None:
    cause = sensitivity(Simulated({"model": 4}, units=3), ["model"], say=_say)["model"]
    assert (cause.unit, cause.unit_ms, cause.events_per_unit) == ("launch", 9000, 12)
    assert cause.amount_us == pytest.approx(900_000 / 12)
    assert "whole launches are compared" in cause.note


def test_handicaps_that_meet_no_event_take_no_launches() -> None:
    program = Simulated({"model": 1}, refuses={"collectives": "it has a hook of its own"})
    found = sensitivity(program, ["loader", "model", "collectives"], rounds=2, say=_say)
    assert len(program.log) == 1 + 2 * 3
    assert found["loader"].meaning == (
        "not available: the program takes no batches from a DataLoader of PyTorch"
    )
    assert found["collectives"].unavailable == "it has a hook of its own"
    assert found["model"].kind == "bound"
    assert all(own.keys() == {"model"} for own in program.log[1:])


def test_what_the_budget_does_not_allow_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "cores_by_package", lambda: [0, 1, 2, 3, 4, 5])
    program = Simulated({"loader": 1, "model": 1})
    found = sensitivity(
        program, ["loader", "model", "cores"], rounds=3, say=_say,
        fits=lambda count: len(program.log) + count <= 12,
    )  # fmt: skip
    assert len(program.log) == 1 + 3 * 3
    assert found["loader"].kind == "bound"
    assert found["model"].unavailable == "the budget does not allow its 6 launches"
    assert found["cores"].unavailable == "the budget does not allow its 10 launches"


def test_a_launch_that_fails_ends_its_round() -> None:
    program = Simulated({"model": 1}, fails=[3])
    cause = sensitivity(program, ["model"], rounds=3, say=_say)["model"]
    assert cause.kind == "bound" and cause.launches == 6
    program = Simulated({"model": 1}, fails=[3, 6])
    cause = sensitivity(program, ["model"], rounds=3, say=_say)["model"]
    assert cause.meaning == "not available: the program fails with the handicap: it broke"
    program = Simulated({"model": 1}, fails=[1])
    cause = sensitivity(program, ["model"], rounds=3, say=_say)["model"]
    assert cause.unavailable == "the program fails with the hook: it broke"
    assert len(program.log) == 1


def test_a_program_without_pytorch_has_no_slopes() -> None:
    def launch(*args: Any) -> Launched:
        return Launched(Pace("launch", (), (), (), 2.0, (), False))

    found = sensitivity(launch, ["loader", "model", "cores", "copies"], say=_say)
    assert {cause.kind for cause in found.values()} == {"not available"}
    assert all("imported no PyTorch" in cause.unavailable for cause in found.values())


def test_what_the_machine_lacks_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*args: Any) -> Launched:
        raise AssertionError("launched")

    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent")
    found = sensitivity(launch, ["cores", "launch", "sms"], say=_say)
    assert found["cores"].unavailable == "taskset is not installed"
    assert found["launch"].unavailable == "no compiler of C is installed (cc, gcc, clang)"
    assert "Multi-Process Service (MPS)" in found["sms"].unavailable


def test_a_daemon_of_mps_is_found_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not pipeline.mps_runs()
    (tmp_path / "control").touch()
    with subprocess.Popen(["sleep", "60"]) as daemon:
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{daemon.pid}\n")
        assert pipeline.mps_runs()
        daemon.kill()
    assert not pipeline.mps_runs()


@dataclass
class Machine:
    """A program on 12 cores of which it uses some; or on SMs, if MPS limits them."""

    uses: float
    obeys: bool = True
    seen: list[tuple[dict[str, str], tuple[str, ...]]] = field(default_factory=list)

    def __call__(
        self, entries: Sequence[Mapping[str, Any]], env: Mapping[str, str], wrapper: Sequence[str]
    ) -> Launched:
        self.seen.append((dict(env), tuple(wrapper)))
        cores = len(wrapper[-1].split(",")) if wrapper and self.obeys else 12
        percent = int(env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100)) if self.obeys else 100
        ms = 10 * max(1, self.uses / cores, self.uses / 12 / (percent / 100))
        ms *= 1 + 0.002 * (len(self.seen) % 3)
        ends = tuple(round(1e6 * ms * number) for number in range(60))
        counters = {"cores": cores, "threads": 6, "sms": 132 * percent // 100}
        pace = Pace("step", ends, (1,) * 60, (), 9.0, (), False, 59)
        return Launched(pace, effects={"fewer": Effect(counters=counters)})


@pytest.fixture
def twelve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "cores_by_package", lambda: [0, 6, 1, 7, 2, 8, *range(20, 26)])


@pytest.mark.usefixtures("twelve")
def test_fewer_cores_with_as_many_threads() -> None:
    machine = Machine(uses=12)
    cause = sensitivity(machine, ["cores"], say=_say)["cores"]
    assert len(machine.seen) == launches(["cores"]) == 10
    assert cause.slopes is not None
    assert cause.slopes.overall.value == pytest.approx(1, abs=0.05)
    assert (cause.kind, cause.amount) == ("bound", "cores: 12 -> 6, 4")
    assert machine.seen[0] == ({}, ())
    env, wrapper = machine.seen[2]
    assert env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "6"
    assert wrapper == ("taskset", "-c", "0,1,2,6,7,8"), "the threads of three cores"
    hidden = sensitivity(Machine(uses=2), ["cores"], say=_say)["cores"]
    assert hidden.meaning == "The step does not need all host cores."
    own = sensitivity(Machine(uses=2, obeys=False), ["cores"], say=_say)["cores"]
    assert own.unavailable == "the program chooses its host cores itself"


def test_fewer_sms_below_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "mps_runs", lambda: True)
    cause = sensitivity(Machine(uses=12), ["sms"], say=_say)["sms"]
    assert (cause.kind, cause.amount) == ("bound", "SMs: 132 -> 66, 43")
    ignored = sensitivity(Machine(uses=12, obeys=False), ["sms"], say=_say)["sms"]
    assert ignored.unavailable == "MPS did not limit the SMs (SMs: 132 -> 132, 132)"
