"""Energies in the gate: next to times, which decide, or deciding themselves if asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from fakenvml import Gpu, install
from test_gate import FAST, times

from perfpipe.analysis.gate.ab import Round, side_of_rounds
from perfpipe.analysis.gate.check import Exported, document_of, exported_from
from perfpipe.analysis.gate.choosing import judge
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.decision import Action, Endpoint, Verdict, decide
from perfpipe.analysis.gate.sides import LAUNCH_ENERGY, STEP_ENERGY, Key, Side, side_of
from perfpipe.energyrecord import Energy
from perfpipe.errors import InputError
from perfpipe.pipelines.gate.outputs import bencher, openmetrics, rows
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store

#: Joules of a step in five runs, which scatter by 0.1 %.
JOULES = [time / 1e6 for time in FAST]


def _energy(step_j: float | None, launch_j: float | None) -> Energy:
    """Return the energy of one launch of 10 s."""
    why = "the launch: 1 s is too short" if launch_j is None else None
    return Energy(
        "NVML energy counter", (launch_j,), (10.0,), (None,), (step_j,), "step", gpus=1,
        missing=why, steps_missing=None if step_j else "perfpipe observed no steps",
    )  # fmt: skip


def _runs(
    name: str, times_ms: Sequence[float], energies: Sequence[Energy | None], label: str = "n=1"
) -> list[RunRecord]:
    """Return runs of a side; those of sides a and b alternate."""
    return [
        RunRecord(
            f"{name}{at}", "w", "timing", f"2026-11-22T10:0{at}:{'00' if name == 'a' else '30'}Z",
            status="done",
            tasks=(TaskResult(0, label, {"n": 1}, times_ms=(ms,), energy=energy),),
        )
        for at, (ms, energy) in enumerate(zip(times_ms, energies, strict=True))
    ]  # fmt: skip


def _side(name: str, factor: float, joules: float | None, launch: float | None = None) -> Side:
    energies = [
        _energy(None if joules is None else joules * own, None if launch is None else launch * own)
        for own in JOULES
    ]
    return side_of(None, _runs(name, [10 * factor * own for own in JOULES], energies), [])


@pytest.mark.parametrize(
    ("faster", "less", "of_time", "of_energy"),
    [
        (1.0, 1.0, Verdict.SAME, Verdict.SAME),
        (0.9, 1.2, Verdict.IMPROVED, Verdict.REGRESSED),
        (1.1, 0.8, Verdict.REGRESSED, Verdict.IMPROVED),
    ],
)
def test_time_decides_unless_energy_is_asked_for(
    faster: float, less: float, of_time: Verdict, of_energy: Verdict
) -> None:
    pairs = pairs_of(_side("a", 1, 2, 50), _side("b", faster, 2 * less, 50 * less))
    by_time, by_energy = decide(pairs), decide(pairs, endpoint=Endpoint.ENERGY)
    assert (by_time.verdict, by_energy.verdict) == (of_time, of_energy)
    (other,) = by_time.others
    assert other.key.part == STEP_ENERGY, "one energy of a configuration, that of a step"
    assert [pair.key.part for pair in by_energy.others] == ["iteration"]
    change, verdict = judge([2 * j for j in JOULES], [2 * less * j for j in JOULES])
    assert by_energy.endpoints[0].verdict == verdict
    assert by_energy.endpoints[0].change == pytest.approx(change), "the statistics of times"
    confirmed = decide(pairs, endpoint=Endpoint.ENERGY, confirmed=True)
    assert (confirmed.action == Action.REVERT) == (of_energy == Verdict.REGRESSED)


def test_without_steps_the_energy_of_a_launch_decides() -> None:
    pairs = pairs_of(_side("a", 1, None, 50), _side("b", 1, None, 60))
    found = decide(pairs, endpoint=Endpoint.ENERGY)
    assert found.verdict == Verdict.REGRESSED
    assert found.reason.startswith("n=1 energy per execution: +20.0 %")
    one_sided = pairs_of(_side("a", 1, 2, 50), _side("b", 1, None, 60))
    assert decide(one_sided, endpoint=Endpoint.ENERGY).reason == found.reason


def test_an_unknown_energy_is_not_comparable_with_its_reason() -> None:
    for before, after, why in (
        (
            _side("a", 1, 2, 50),
            _side("b", 1, None, None),
            "n=1 has no known energy now: the launch",
        ),
        (_side("a", 1, None, None), _side("b", 1, 2, 5), "n=1 has no known energy in the baseline"),
        (_side("a", 1, None, None), _side("b", 1, None, None), "perfpipe observed no steps"),
    ):
        pairs = pairs_of(before, after)
        found = decide(pairs, endpoint=Endpoint.ENERGY)
        assert found.verdict == Verdict.NOT_COMPARABLE
        assert why in found.reason
        by_time = decide(pairs)
        assert (by_time.verdict, by_time.others) == (Verdict.SAME, ())
    old = side_of(None, _runs("a", FAST, [None] * 5), [])
    found = decide(pairs_of(old, _side("b", 1, 2, 5)), endpoint=Endpoint.ENERGY)
    assert found.reason == "n=1 has no known energy in the baseline: it was not measured"


def test_clocks_do_not_explain_an_energy() -> None:
    side = _side("a", 1, 2, 50)
    assert side[Key("", "n=1", STEP_ENERGY)].sm_mhz == [None] * 5


def test_rounds_have_energies() -> None:
    results = [
        replace(run.tasks[0], label="other") for run in _runs("a", FAST, [_energy(2, 50)] * 5)
    ]
    side = side_of_rounds("a", [Round(at, (own,)) for at, own in enumerate(results)], ["x"])
    assert side[Key("", "x", LAUNCH_ENERGY)].medians == [50.0] * 5
    assert side.no_energy == {}
    none = replace(results[0], energy=_energy(None, None))
    lacking = side_of_rounds("a", [Round(0, (none,))], ["x"])
    assert lacking.no_energy == {"x": "the launch: 1 s is too short; perfpipe observed no steps"}


def test_an_exported_baseline_keeps_energies() -> None:
    side = _side("a", 1, 2, None)
    document = json.loads(json.dumps(document_of(Exported(side))))
    assert exported_from(document, "x").side.measured == side.measured
    lacking = _side("a", 1, None, None)
    kept = exported_from(json.loads(json.dumps(document_of(Exported(lacking)))), "x").side
    assert kept.no_energy == lacking.no_energy != {}
    for entry in document["measured"]:
        if entry["part"] == STEP_ENERGY:
            entry["medians"][0] = 0.0
    with pytest.raises(InputError, match="energies must be positive"):
        exported_from(document, "x")


def test_other_tools_read_joules() -> None:
    pairs = pairs_of(_side("a", 1, 2, 50), _side("b", 1, 3, 75))
    found = decide(pairs, endpoint=Endpoint.ENERGY)
    (energy, time) = rows(found)
    assert energy[:4] == ("n=1 energy per step", "2 J", "3 J", "+50.0 %")
    assert time[:4] == ("n=1", "10 ms", "10 ms", "+0.0 %")
    ((name, measure),) = json.loads(bencher(found)).items()
    assert (name, measure["energy"]["value"]) == ("n=1 energy per step", 3.0)
    text = openmetrics(found)
    assert "# UNIT perfpipe_energy_joules joules" in text
    assert 'perfpipe_energy_joules{configuration="n=1 energy per step",side="after"} 3.0' in text
    assert 'perfpipe_time_seconds{configuration="n=1",side="after"} 0.01' in text
    assert "Energy after / before" in text


def test_check_decides_by_energy(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is faster and takes more energy."""
    monkeypatch.setenv("COLUMNS", "120")
    store = Store(tmp_path / "store")
    for name, factor, joules in (("a", 1.0, 2.0), ("b", 0.9, 2.4)):
        energies = [_energy(joules * own, 10 * joules * own) for own in JOULES]
        for run in _runs(name, times(factor), energies):
            store.write_run(run)
    names = [f"{side}{at}" for side in "ab" for at in range(5)]
    sides = (*names[5:], *(word for name in names[:5] for word in ("--baseline", name)))
    assert cli("check", *sides) == 0, cli.err
    assert "Improved: n=1: -10.0 %" in cli.out
    assert "n=1 energy per step" in cli.out and "+20.0 %" in cli.out
    assert cli("check", *sides, "--endpoint", "energy", "--json") == 3
    answer: dict[str, Any] = json.loads(cli.out)
    assert (answer["verdict"], answer["endpoint"]) == ("regressed", "energy")
    (row,) = answer["endpoints"]
    assert (row["before_j"], row["after_j"]) == (pytest.approx(2.0), pytest.approx(2.4))
    assert [own["part"] for own in answer["others"]] == ["iteration"]
    page = tmp_path / "page.html"
    assert cli("check", *sides, "--endpoint", "energy", "--html", page) == 3
    assert "Regression check: energy" in page.read_text()
    assert cli("check", *sides, "--endpoint", "power") == 2

    store.write_run(replace(_runs("b", [0.9e6], [_energy(None, None)])[0], run_id="c"))
    alone = ("check", "c", "--baseline", "a0", "--endpoint", "energy")
    assert cli(*alone) == 4
    assert "n=1 has no known energy now" in cli.err
    assert cli(*alone, "--allow-not-comparable") == 0


def test_ab_shows_energy_beside_times(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_s: Callable[[float], None]
) -> None:
    """On a GPU that always takes 100 W; the time decides."""
    install(monkeypatch, [Gpu()])
    least_s(0.001)
    code = 'import time; time.sleep(0.2); print(\'{"perfpipe": "time", "ms": [1.0]}\')'
    (tmp_path / "w.yaml").write_text(
        f"version: 1\nname: w\ncommand: ['{{python}}', -c, {json.dumps(code)}]\n"
        "matrix: {n: [1]}\n"
    )
    words = ("ab", "w.yaml", "--aa", "--rounds", "3", "--no-early-stop", "--json")
    assert cli(*words) == 0, cli.err
    answer = json.loads(cli.out)
    assert answer["verdict"] == "same"
    (other,) = answer["others"]
    assert other["part"] == LAUNCH_ENERGY
    assert other["before_j"] > 20 * 0.5 and other["low_pct"] is not None
