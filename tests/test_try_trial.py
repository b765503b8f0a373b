"""A trial, on launches with known times: what is measured, stacked, confirmed and refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from perfpipe.analysis.trying.launched import LOSS, Results
from perfpipe.analysis.trying.pace import Pace
from perfpipe.errors import TaskFailed
from perfpipe.pipelines.trying.bench import Bench
from perfpipe.pipelines.trying.choosing import Advice, Candidate, candidates, within_budget
from perfpipe.pipelines.trying.launching import PLAIN, Arm, Effect, Launched
from perfpipe.pipelines.trying.levers import Lever
from perfpipe.pipelines.trying.trial import Trying
from perfpipe.trialrecord import NO_BUDGET, NOT_MEASURED, Gained, LeverTrial, Trial

#: Time of a unit of the plain program, ms, and units of a launch.
PLAIN_MS, UNITS = 10.0, 60


def results(scale: float = 1.0, steps: int = UNITS) -> Results:
    """Return results whose losses fall from step to step."""
    losses = {step: (scale * 2.0 / step,) for step in range(1, steps + 1)}
    return Results(
        {(LOSS, ""): losses},
        {"": {"backward": steps, "steps": steps, "calls": steps, "tokens": 0}},
        frozenset({"fp32"}),
        exit_code=0,
    )


def pace(ms: float, units: int = UNITS) -> Pace:
    """Return a launch of equal units."""
    times = tuple(round(number * ms * 1e6) for number in range(units + 1))
    return Pace("step", times, (1,) * (units + 1), (), 1.0, (), True, units)


#: The effect of a lever that is applied once.
APPLIED = Effect((("model", 1),), effective=True)


@dataclass
class Behaviour:
    """What a lever does: its factor on the time, its results, how its launch ends."""

    factor: float = 1.0
    results: Results = field(default_factory=results)
    failure: str | None = None
    effect: Effect = APPLIED
    units: int = UNITS


class Simulated:
    """Launches with known behaviour, and scatter of 0.5 %."""

    def __init__(self, behaviours: Mapping[str, Behaviour], seed: int = 0) -> None:
        self.behaviours, self.count = behaviours, 0
        self.names: list[str] = []
        self.seconds = 1.0
        self._random = random.Random(seed)

    def launch(self, arm: Arm, **_: Any) -> Launched:
        """Return a launch of an arm whose levers multiply their factors."""
        self.count += 1
        self.names.append(arm.name)
        own = [self.behaviours[lever.name] for lever in arm.levers]
        ms = PLAIN_MS * self._random.gauss(1, 0.005)
        for one in own:
            ms *= one.factor
        failure = next((one.failure for one in own if one.failure), None)
        found = next((one.results for one in own if one.results != results()), results())
        units = min([one.units for one in own], default=UNITS)
        effects = {lever.name: self.behaviours[lever.name].effect for lever in arm.levers}
        why = "it crashed" if failure else ""
        return Launched(arm, self.seconds, pace(ms, units), found, failure, why, effects)


def _candidates(names: Sequence[str], **settings: Any) -> list[Candidate]:
    return [Candidate(Lever(name, title=name, needs="any", **settings)) for name in names]


Run = Callable[..., tuple[Trying, Simulated]]


@pytest.fixture
def run() -> Run:
    """Return a function that tries levers with some behaviours."""

    def tried(
        behaviours: Mapping[str, Behaviour], budget_s: float = 1e6, **settings: Any
    ) -> tuple[Trying, Simulated]:
        launches = Simulated(behaviours)
        bench = Bench(launches, budget_s, lambda _: None)  # type: ignore[arg-type]
        trying = Trying(bench, **settings)
        trying.measure_plain(bench.launch(PLAIN, counts=False))
        chosen = _candidates([*behaviours])
        trying.measure_levers(chosen, trying.planned_rounds(chosen))
        return trying, launches

    return tried


def _rows(trying: Trying) -> dict[str, LeverTrial]:
    return {row.name: row for row in trying.levers}


def _stack(trying: Trying, names: Sequence[str]) -> Any:
    best = trying.best_stack(trying.helpful(_candidates(names)))
    return None if best is None else trying.confirm(best, _rows(trying))


def test_a_gain_is_measured_and_confirmed_on_fresh_launches(run: Run) -> None:
    trying, launches = run({"half": Behaviour(0.5), "nothing": Behaviour()})
    rows = _rows(trying)
    assert rows["half"].verdict == "gain"
    assert rows["half"].gained.gain_pct == pytest.approx(50, abs=1.5)
    assert rows["half"].results == "identical"
    assert rows["nothing"].verdict in ("no gain", "inconclusive")
    before = launches.count
    stack = _stack(trying, ["half", "nothing"])
    assert stack.levers == ("half",)
    assert stack.verdict == "gain"
    assert stack.gained.low_pct < 50 < stack.gained.high_pct
    assert launches.names[before:].count("plain") == 3
    assert launches.names[before:].count("half") == 3


def test_levers_that_help_together_are_stacked(run: Run) -> None:
    trying, _ = run({"a": Behaviour(0.7), "b": Behaviour(0.8), "c": Behaviour(1.3)})
    assert _rows(trying)["c"].verdict == "slower"
    stack = _stack(trying, ["a", "b", "c"])
    assert stack.levers == ("a", "b")
    assert stack.gained.gain_pct == pytest.approx(44, abs=2)


@pytest.mark.parametrize(
    ("behaviour", "verdict", "why"),
    [
        (Behaviour(failure="crash"), "failed", "it crashed"),
        (Behaviour(failure="hung"), "hung", "it crashed"),
        (Behaviour(0.5, effect=Effect(refused=("no GPU",))), "not applied", "no GPU"),
        (
            Behaviour(0.5, effect=Effect((("x", 1),), effective=False, why="nothing compiled")),
            "not applied",
            "nothing compiled",
        ),
        (Behaviour(0.5, effect=Effect(failed=("ValueError: no",))), "failed", "ValueError: no"),
        (Behaviour(0.5, units=30), "different work", "31 to 61 steps"),
    ],
)
def test_a_lever_that_cannot_be_measured_ends_alone(
    run: Run, behaviour: Behaviour, verdict: str, why: str
) -> None:
    trying, _ = run({"bad": behaviour, "good": Behaviour(0.5)})
    rows = _rows(trying)
    assert rows["bad"].verdict == verdict
    assert why in rows["bad"].why
    assert rows["bad"].gained.gain_pct is None
    assert rows["good"].verdict == "gain"


def test_a_lever_that_changes_the_results_is_not_stacked(run: Run) -> None:
    trying, _ = run({"wrong": Behaviour(0.5, results(3.0)), "right": Behaviour(0.9)})
    rows = _rows(trying)
    assert rows["wrong"].verdict == "gain"
    assert rows["wrong"].results == "differ"
    assert _stack(trying, ["wrong", "right"]).levers == ("right",)


def test_a_lever_that_changes_the_results_can_be_accepted(run: Run) -> None:
    trying, _ = run({"wrong": Behaviour(0.5, results(3.0))}, accept=True)
    assert _stack(trying, ["wrong"]).levers == ("wrong",)


def test_a_lever_that_loses_the_losses_is_not_passed(run: Run) -> None:
    lost = Results(counts={"": {"backward": 0, "steps": UNITS, "calls": UNITS, "tokens": 0}})
    trying, _ = run({"lost": Behaviour(0.5, lost)})
    assert _rows(trying)["lost"].results in ("differ", "unknown")
    assert _stack(trying, ["lost"]) is None


def test_without_a_gain_there_is_no_stack(run: Run) -> None:
    trying, _ = run({name: Behaviour() for name in "abcd"})
    assert _stack(trying, "abcd") is None


def test_the_plain_program_must_run() -> None:
    class Crashing(Simulated):
        def launch(self, arm: Arm, **_: Any) -> Launched:
            return Launched(arm, 1.0, pace(PLAIN_MS), results(), "crash", "ValueError: no")

    bench = Bench(Crashing({}), 100, lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(TaskFailed, match="fails without any change: ValueError: no"):
        bench.launch(PLAIN)


def test_the_budget_limits_levers_and_rounds(run: Run) -> None:
    trying, launches = run({"half": Behaviour(0.5)}, budget_s=0.0)
    assert _rows(trying)["half"].verdict == "gain"
    assert launches.names.count("half") == 2
    chosen = trying.choose(_candidates("abc"), None)
    assert [own.left_out for own in chosen] == [NO_BUDGET] * 3
    assert "a needs a budget of about" in trying.notes[-1]


@pytest.mark.parametrize(
    ("budget_s", "units", "expected"),
    [(220, 1000, ", or --steps 250"), (170, 1000, ""), (100, 1000, ""), (2000, 1000, "")],
    ids=["fits", "few units are left", "start-up alone is too long", "fits anyway"],
)
def test_launches_can_end_so_early_that_a_lever_fits(
    budget_s: float, units: int, expected: str
) -> None:
    """A launch takes 15 s until its first unit, and 20 ms a unit."""

    class Long(Simulated):
        def launch(self, arm: Arm, **settings: Any) -> Launched:
            found = super().launch(arm, **settings)
            return replace(found, seconds=15 + 0.02 * units, pace=pace(20.0, units))

    bench = Bench(Long({}), budget_s, lambda _: None)  # type: ignore[arg-type]
    trying = Trying(bench)
    trying.measure_plain(bench.launch(PLAIN, counts=False))
    trying.choose(_candidates("a"), None)
    notes = [note for note in trying.notes if "needs a budget" in note]
    assert [note.partition("m")[2] for note in notes] == ([expected] if budget_s < 1000 else [])


def test_time_that_is_left_goes_to_levers_that_the_budget_left_out(run: Run) -> None:
    trying, launches = run({"half": Behaviour(0.5), "same": Behaviour(1.0)}, budget_s=0.0)
    found = trying.choose(_candidates(["half", "same", "third"]), None)
    assert [own.left_out for own in found] == [NO_BUDGET] * 3
    assert trying.family == 3
    trying.bench.budget_s = 1e6
    assert [own.left_out for own in trying.choose_again(found, 2)] == [
        None, None, "--most 2",
    ]  # fmt: skip
    before = len(trying.bench.plain)
    trying.measure_levers(_candidates(["same"]), 5)
    assert _rows(trying)["same"].verdict != "gain"
    assert launches.names.count("plain") > before, "with plain launches of their own"


def test_a_small_budget_is_not_spent_on_levers_that_promise_nothing(run: Run) -> None:
    advice = Advice("graphs", "launch_overhead", 60.0, "the step")
    promising = Candidate(Lever("compiled_mode", compiles=True), advice, 50.0)
    costs = {"compiled_mode": 60.0, "compile": 60.0, "tf32": 10.0}
    small = within_budget([promising, *_candidates(["tf32"])], costs, 30.0, None)
    assert [own.left_out for own in small] == [NO_BUDGET] * 2
    large = within_budget(
        [promising, replace(promising, lever=Lever("compile")), *_candidates(["tf32"])],
        costs, 75.0, None,
    )  # fmt: skip
    assert [own.left_out for own in large] == [None, NO_BUDGET, None]


def test_without_time_for_a_lever_plain_is_launched_once_more(run: Run) -> None:
    _, launches = run({}, budget_s=20.0)
    assert launches.names == ["plain"] * 4
    launches = Simulated({})
    launches.seconds = 9.0
    bench = Bench(launches, 60, lambda _: None)  # type: ignore[arg-type]
    trying = Trying(bench)
    trying.measure_plain(bench.launch(PLAIN, counts=False))
    assert launches.names == ["plain"] * 2


class _Together(Simulated):
    """Stacks of levers behave in a way of their own."""

    together = Behaviour()

    def launch(self, arm: Arm, **settings: Any) -> Launched:
        if len(arm.levers) < 2:
            return super().launch(arm, **settings)
        own = self.together
        found = Simulated({arm.name: own}, self.count).launch(Arm(arm.name, (Lever(arm.name),)))
        self.names.append(arm.name)
        effects = {lever.name: APPLIED for lever in arm.levers}
        return replace(found, arm=arm, effects=effects)


@pytest.mark.parametrize(
    ("together", "expected", "note"),
    [
        (Behaviour(0.56), ("a", "b"), "the budget did not allow comparing a+b with fewer of these"),
        (Behaviour(0.9), ("a",), "a+b: together they gain less than the best of them alone"),
        (Behaviour(1.2), ("a",), "a+b: slower on fresh launches"),
        (Behaviour(failure="crash"), ("a",), "a+b: it crashed"),
        (Behaviour(0.5, results(1.5)), ("a",), "a+b: together they change the results"),
    ],
    ids=["better", "less", "slower", "crash", "other results"],
)
def test_without_time_to_compare_stacks_all_are_confirmed_together(
    together: Behaviour, expected: tuple[str, ...], note: str
) -> None:
    """If they do not help together, the best is confirmed alone."""
    behaviours = {"a": Behaviour(0.7), "b": Behaviour(0.8)}
    launches = _Together(behaviours)
    launches.together = together
    bench = Bench(launches, 1e6, lambda _: None)  # type: ignore[arg-type]
    trying = Trying(bench)
    trying.measure_plain(bench.launch(PLAIN, counts=False))
    chosen = _candidates([*behaviours])
    trying.measure_levers(chosen, 3)
    bench.budget_s -= bench.left_s - 7.5  # a comparison takes 4 launches, and 4 are kept
    said: list[str] = []
    helpful = trying.helpful(chosen)
    best = trying.best_stack(helpful)
    assert best is not None and best.name == "a+b"
    assert launches.names.count("a+b") == 0
    stack = trying.confirm_best(best, helpful, _rows(trying), said.append)
    assert stack.levers == expected and stack.verdict == "gain"
    assert said[-1] == f"confirming {'+'.join(expected)} on fresh launches"
    assert trying.notes[0].startswith(note)


def test_levers_without_a_bound_come_by_what_is_known_of_them() -> None:
    known = [
        Lever("free", free=True),
        Lever("called", answers=("a",)),
        Lever("usual", free=True, usual_pct=25.0, needs="checkpointing"),
    ]
    advice = {"a": Advice("a", "pointwise", None, "the step")}
    found = candidates(known, advice, {"checkpointing"})
    assert [own.lever.name for own in found] == ["usual", "called", "free"]
    without = {own.lever.name: own.left_out for own in candidates(known, advice, set())}
    assert without["usual"] == "the program does not use activation checkpointing"
    promising = Candidate(Lever("compile", compiles=True), advice["a"], 50.0)
    costs = {"compile": 60.0, "usual": 10.0}
    assert within_budget([promising, found[0]], costs, 30.0, None)[1].left_out is None


def test_an_interrupted_trial_keeps_what_was_measured() -> None:
    class Interrupted(Simulated):
        def launch(self, arm: Arm, **settings: Any) -> Launched:
            if self.count == 12:
                raise KeyboardInterrupt
            return super().launch(arm, **settings)

    behaviours = {name: Behaviour(factor) for name, factor in (("half", 0.5), ("same", 1.0))}
    trying = Trying(Bench(Interrupted(behaviours), 1e6, lambda _: None))  # type: ignore[arg-type]
    trying.measure_plain(trying.bench.launch(PLAIN, counts=False))
    with pytest.raises(KeyboardInterrupt):
        trying.measure_levers(_candidates([*behaviours]), 5)
    rows = _rows(trying)
    assert {*rows} == {"half", "same"}
    assert rows["half"].gained.gain_pct == pytest.approx(50, abs=2)
    assert rows["same"].verdict == "inconclusive" and rows["same"].launches >= 2


def test_a_lever_may_take_what_is_left_of_the_budget(run: Run) -> None:
    bench = run({}, budget_s=20.0)[0].bench
    compiling = Arm("compile", (Lever("compile", compiles=True),))
    assert bench.timeout(compiling) == pytest.approx(20, abs=1)
    bench.budget_s = 0.0
    assert bench.timeout(compiling) == pytest.approx(3 * bench.plain_s)
    assert bench.timeout(PLAIN) == pytest.approx(3 * bench.plain_s + 60)


def test_what_past_trials_gained_orders_the_levers() -> None:
    known = [Lever("often", answers=("a",)), Lever("rarely", answers=("a",), prior=0.7)]
    advice = {"a": Advice("a", "host", 50.0, "the step")}
    assert [own.lever.name for own in candidates(known, advice, set())] == ["rarely", "often"]

    def trial(**gains: float) -> Trial:
        rows = tuple(
            LeverTrial(name, name, "gain", Gained(gain), bound_pct=50.0, launches=3)
            for name, gain in gains.items()
        )
        return Trial("t", "p", "2026", "step", 1.0, 3, NOT_MEASURED, "identical", rows)

    past = [trial(often=45.0, rarely=0.0), trial(often=40.0, rarely=1.0)]
    found = candidates(known, advice, set(), past)
    assert [own.lever.name for own in found] == ["often", "rarely"]
    assert found[0].expected_pct == pytest.approx(0.9 * 40.0)


def test_bounds_of_all_findings_that_a_lever_answers_add_up() -> None:
    """A static cache ends the building of kernels, and the launches that CUDA graphs replace."""
    advice = {
        "build_once": Advice("build_once", "building", 65.0, "the step"),
        "static_shapes": Advice("static_shapes", "building", 50.0, "the step"),
        "cuda_graphs": Advice("cuda_graphs", "launch_overhead", 31.0, "the step"),
        "cache_tuned": Advice("cache_tuned", "autotuning", 20.0, "the capture"),
    }
    (found,) = candidates([Lever("static", answers=tuple(advice))], advice, set())
    assert found.advice == Advice("build_once", "building", 96.0, "the step")
    advice["fusion"] = Advice("fusion", "compute", 10.0, "the step")
    (found,) = candidates([Lever("static", answers=tuple(advice))], advice, set())
    assert found.advice is not None and found.advice.bound_pct == 100.0


def test_levers_without_a_finding_are_left_out() -> None:
    known = [
        Lever("asked", answers=("workers",)),
        Lever("free", free=True),
        Lever("useless", answers=("other",)),
        Lever("jax_only", free=True, needs="jax"),
    ]
    advice = {"workers": Advice("workers", "input", 60.0, "the step")}
    found = candidates(known, advice, {"torch"})
    assert [own.lever.name for own in found if own.left_out is None] == ["asked", "free"]
    left = {own.lever.name: own.left_out for own in found if own.left_out}
    assert left == {
        "useless": "no finding calls for it",
        "jax_only": "the program does not use JAX",
    }
