"""The energy of units in trials: over the compared units, from real launches, and in the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from fakenvml import Gpu, install
from test_try_trial import PLAIN_MS, Behaviour, Simulated

from perfpipe.analysis.energy import COUNTER, NO_STEPS, GpuReadings, Readings, Unknown, course_of
from perfpipe.analysis.session import Session
from perfpipe.analysis.trying.energy import unit_j
from perfpipe.analysis.trying.outcomes import energy
from perfpipe.analysis.trying.pace import ITERATION, LAUNCH, Pace, Window
from perfpipe.pipelines.trying.answering import as_data, headline, lines, rows
from perfpipe.pipelines.trying.bench import Bench, energy_of, sides
from perfpipe.pipelines.trying.choosing import Candidate
from perfpipe.pipelines.trying.launching import PLAIN, Arm, Launched
from perfpipe.pipelines.trying.levers import Lever
from perfpipe.pipelines.trying.trial import Trying
from perfpipe.store import Store
from perfpipe.trialrecord import Gained, LeverTrial, StackTrial, Trial, Used, read_file, write

MS = 10**6


def _readings(watts: list[int]) -> Readings:
    """Return readings of a GPU with this power in each ms, every 10 ms."""
    times = [*range(0, len(watts) + 1, 10)]
    counter = [10**9 + sum(watts[:at]) for at in times]
    return Readings([at * MS for at in times], (GpuReadings(counter, counter, [0] * len(times)),))


def _pace(unit: str = "step", units: int = 60, **settings: Any) -> Pace:
    """Return units of 100 ms that begin at 0."""
    times = tuple(100 * MS * at for at in range(units + 1))
    return Pace(unit, times, (1,) * (units + 1), (), 6.0, (), True, units, **settings)


def test_the_energy_of_a_unit_is_that_of_the_compared_ones() -> None:
    """By hand: 300 W in the window of 40 units of 100 ms, after 100 W."""
    course = course_of(_readings([100] * 2000 + [300] * 4000))
    assert unit_j(course, _pace(), Window("step", 20, 60)) == pytest.approx(30)
    assert unit_j(course, _pace(), Window("step", 10, 40)) == pytest.approx(700 / 30)


def test_compilation_does_not_count() -> None:
    """Half a second at 50 W within the window, in spans that overlap, and one before it."""
    course = course_of(_readings([900] * 1000 + [300] * 2000 + [50] * 500 + [300] * 2500))
    spans = tuple((a * MS, b * MS) for a, b in ((500, 900), (3000, 3500), (3100, 3300)))
    pace = replace(_pace(), compiling_ns=spans)
    assert unit_j(course, pace, Window("step", 10, 60)) == pytest.approx(300 * 4.5 / 50)
    until_end = replace(_pace(), compiling_ns=((5500 * MS, 7000 * MS), (800 * MS, 1100 * MS)))
    assert unit_j(course, until_end, Window("step", 10, 60)) == pytest.approx(
        (300 * 1.9 + 50 * 0.5 + 300 * 2.0) / 50
    )


@pytest.mark.parametrize(
    ("pace", "window", "why"),
    [
        (_pace(), Window("step", 50, 60), "too short for NVML energy counter"),
        (_pace(), Window("step", 0, 61), "does not have the units"),
        (_pace(), Window("step", different_work="5 to 6 steps"), "5 to 6 steps"),
        (_pace(ITERATION), Window(ITERATION, 0, 20), NO_STEPS),
        (_pace(LAUNCH, cut=True), Window(LAUNCH), "perfpipe ended the launch"),
    ],
)
def test_what_is_unknown_has_a_reason(pace: Pace, window: Window, why: str) -> None:
    with pytest.raises(Unknown, match=why):
        unit_j(course_of(_readings([100] * 6000)), pace, window)
    whole = unit_j(course_of(_readings([100] * 6000)), _pace(LAUNCH), Window(LAUNCH))
    assert whole == pytest.approx(600)


class _Metered(Simulated):
    """Launches on a GPU that takes 200 W."""

    def launch(self, arm: Arm, **given: Any) -> Launched:
        return replace(super().launch(arm, **given), readings=_readings([200] * 2000))


def test_levers_stacks_and_plain_have_an_energy(least_s: Callable[[float], None]) -> None:
    """At constant power, a lever that halves the time halves the energy."""
    least_s(0.001)
    bench = Bench(_Metered({"half": Behaviour(0.5)}), 1e6, lambda _: None)  # type: ignore[arg-type]
    trying = Trying(bench)
    trying.measure_plain(bench.launch(PLAIN, counts=False))
    chosen = [Candidate(Lever("half", title="half", needs="any"))]
    trying.measure_levers(chosen, 3)
    (row,) = trying.levers
    stack = trying.confirm(trying.best_stack(chosen) or PLAIN, {row.name: row})
    for used in (row.energy, stack.energy):
        assert used.plain_joules == pytest.approx(0.2 * PLAIN_MS, rel=0.02)
        assert used.joules == pytest.approx(0.1 * PLAIN_MS, rel=0.02)
    window = sides(bench.plain, bench.plain).window
    plain = energy_of(bench.plain, window)
    assert (plain.source, plain.missing) == (COUNTER, None)
    some = [*bench.plain, replace(bench.plain[0], readings=Readings(missing="NVML is missing"))]
    assert energy_of(some, window).joules is None, "a median needs all launches"
    assert energy_of(some, window).missing == "NVML is missing"


def _trial(**settings: Any) -> Trial:
    gained = Gained(50, 48, 52)
    half = LeverTrial("half", "t", "gain", gained, launches=3, energy=Used(1.0, 2.0))
    stack = StackTrial(
        ("half",), "gain", gained, "identical", ms=5.0, plain_ms=10.0, energy=Used(1.1, 2.0)
    )
    found = Trial(
        "t", "w", "2026-11-22T10:00:00Z", "step", 10.0, 3, gained, "identical", (half,), stack,
        plain_energy_j=2.0, energy_source=COUNTER,
    )  # fmt: skip
    return replace(found, **settings)


def test_the_answer_states_energies_that_are_known(store: Store) -> None:
    trial = _trial()
    assert "(10 ms -> 5 ms a step; 2 J -> 1.1 J)" in headline(trial)
    assert f"Energy without changes: 2 J a step ({COUNTER};" in "\n".join(lines(trial))
    ((_, *cells),) = rows(trial)
    assert "1 J (-50.0 %)" in cells
    data = as_data(trial)
    assert data["plain"]["energy_j"] == 2.0
    assert data["levers"][0]["energy_j"] == 1.0 and data["stack"]["plain_energy_j"] == 2.0
    assert read_file(write(store.root, trial)) == trial
    with Session.open(store) as session:
        sql = "SELECT kind, energy_j, plain_energy_j, energy_source FROM trials ORDER BY kind"
        found = session.execute(sql).fetchall()
    assert found == [("lever", 1.0, 2.0, COUNTER), ("stack", 1.1, 2.0, COUNTER)]


def test_the_answer_is_silent_about_unknown_energies() -> None:
    (lever,), stack = _trial().levers, _trial().stack
    assert stack is not None
    trial = _trial(
        levers=(replace(lever, energy=Used()),), stack=replace(stack, energy=Used()),
        plain_energy_j=None, energy_source=None, energy_missing="NVML does not respond",
    )  # fmt: skip
    text = [headline(trial), *lines(trial), *(cell for row in rows(trial) for cell in row)]
    assert " J" not in " ".join(text)
    assert as_data(trial)["energy_missing"] == "NVML does not respond"
    assert energy(Used(1.5)) == "1.5 J", "no change without the energy of the plain program"


def test_launches_of_a_trial_are_metered(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_s: Callable[[float], None]
) -> None:
    install(monkeypatch, [Gpu()])
    least_s(0.001)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "program.py").write_text("import os, time\ntime.sleep(float(os.environ['S']))\n")
    content = {
        "version": 1, "name": "w", "command": ["{python}", "program.py"], "env": {"S": "0.3"},
        "levers": {"fast": {"env": {"S": "0.01"}}},
    }  # fmt: skip
    (folder / "w.yaml").write_text(json.dumps(content))
    words = ("--no-diagnosis", "--levers", "fast", "--rounds", "2", "--json")
    assert cli("try", str(folder / "w.yaml"), *words) in (0, 4), cli.err  # 4 on a busy machine
    found = json.loads(cli.out)
    assert (found["unit"], found["energy_source"]) == ("launch", COUNTER)
    assert found["plain"]["energy_j"] >= 100 * 0.3 * 0.8
    (row,) = found["levers"]
    assert row["energy_j"] > 0 and row["plain_energy_j"] >= 100 * 0.3 * 0.8
