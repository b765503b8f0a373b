"""Calibration: what launches of an unchanged program show, and what commands make of it."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import scipy
from conftest import ROOT, Cli
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe import calibrationrecord
from perfpipe.analysis.gate import calibrate as calibration
from perfpipe.analysis.gate.calibrate import calibrate
from perfpipe.analysis.gate.choosing import judge
from perfpipe.calibrationrecord import Calibrated, Calibration
from perfpipe.errors import StoreError
from perfpipe.pipelines.place import machine
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store

_LAUNCHES = st.lists(
    st.lists(st.floats(100, 110), min_size=1, max_size=4), min_size=6, max_size=10
).filter(lambda own: statistics.pstdev([statistics.median(s) for s in own]) > 1e-3)


def _of(times: list[float], **more: float) -> Calibrated:
    return calibrate("a", [[time] for time in times], rounds=5, change_pct=3, **more)


def _times(logs: np.ndarray) -> list[float]:
    found: list[float] = (10 * np.exp(logs)).tolist()
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=30)
@given(_LAUNCHES)
def test_scatter_and_drift_are_those_of_textbooks(launches: list[list[float]]) -> None:
    with patch.multiple(calibration, _DRAWS=2, _UNCHANGED=1, _CHANGED=1, ROUNDS=()):
        found = calibrate("a", launches, rounds=3, change_pct=3)
    logs = [math.log(statistics.median(own)) for own in launches]
    count = len(logs)
    assert found.between_pct == pytest.approx(100 * statistics.stdev(logs))
    variance = statistics.variance(logs) * (count - 1)
    ends = scipy.stats.chi2.ppf([0.975, 0.025], count - 1)
    interval = [100 * math.sqrt(variance / end) for end in ends]
    assert [found.between_low_pct, found.between_high_pct] == pytest.approx(interval)
    line = scipy.stats.linregress(np.linspace(0, 1, count), logs)
    margin = scipy.stats.t.ppf(0.975, count - 2) * line.stderr
    assert math.log1p(found.drift_pct / 100) == pytest.approx(line.slope, abs=1e-9)
    ends = line.slope - margin, line.slope + margin
    told = [math.log1p(end / 100) for end in (found.drift_low_pct, found.drift_high_pct)]
    assert told == pytest.approx(ends, abs=1e-9)
    rest = np.array(logs) - line.intercept - line.slope * np.linspace(0, 1, count)
    if found.autocorrelation is not None and (rest**2).sum() > 1e-12:
        expected = (rest[1:] * rest[:-1]).sum() / (rest**2).sum()
        assert found.autocorrelation == pytest.approx(expected, abs=1e-6)
    several = [np.log(own).std(ddof=1) for own in launches if len(own) > 1]
    assert (found.within_pct is None) == (not several)
    if several:
        assert found.within_pct == pytest.approx(100 * np.median(several), abs=1e-9)


@patch.multiple(calibration, _UNCHANGED=20, _CHANGED=20)
def test_what_launches_show() -> None:
    rng = np.random.default_rng(3)
    plain = _of(_times(rng.normal(0, 0.01, 30)))
    assert not plain.drifts
    assert not plain.correlated
    assert plain.modes is None
    drifting = _of(_times(np.linspace(0, 0.05, 30) + rng.normal(0, 0.003, 30)))
    assert drifting.drifts
    assert drifting.drift_pct == pytest.approx(5.1, abs=0.7)
    waves = _of(_times(0.02 * np.sin(np.arange(40) / 3) + rng.normal(0, 0.002, 40)))
    assert waves.correlated
    modes = _of(_times(0.04 * (np.arange(30) % 3 == 0) + rng.normal(0, 0.002, 30)))
    assert modes.modes is not None
    assert modes.modes.slow_pct == pytest.approx(100 / 3, abs=1)
    assert modes.modes.slow_ms / modes.modes.fast_ms == pytest.approx(1.04, abs=0.003)
    assert _of([10.0] * 10).autocorrelation is None
    assert plain == _of(_times(np.random.default_rng(3).normal(0, 0.01, 30))), "always the same"


@pytest.mark.parametrize("scatter", [0.002, 0.01, 0.02])
def test_what_is_proposed_holds(scatter: float) -> None:
    """On fresh launches that scatter like those of the calibration."""
    rng = np.random.default_rng(11)
    drawn = rng.normal(0, 1, 30)
    logs = scatter * (drawn - drawn.mean()) / drawn.std(ddof=1)
    found = _of(_times(logs))
    rounds, limit = found.proposed.rounds, found.proposed.limit_pct
    assert 4 <= rounds <= 25
    assert limit >= 0.5
    shares = []
    for change in (0, 0.03):
        verdicts = []
        for _ in range(800):
            old, new = (
                _times(rng.normal(mean, scatter, rounds)) for mean in (0, math.log1p(change))
            )
            verdicts.append(judge(old, new, limit_pct=limit)[1])
        shares.append([verdicts.count("regressed"), verdicts.count("improved")])
    (slower, faster), (hits, _) = shares
    assert slower + faster <= 16, "at most 1 % expected"
    assert hits >= 0.93 * 800
    assert found.proposed.detectable_pct <= 3
    assert found.now.rounds == 5
    assert found.now.limit_pct == 1.75


def test_a_change_that_cannot_be_seen() -> None:
    found = _of(_times(np.random.default_rng(2).normal(0, 0.15, 20)))
    assert found.proposed.rounds == found.now.rounds
    assert found.proposed.found_pct < 95
    assert found.proposed.limit_pct > 10, "and few false alarms"
    coarse = _of([10.0] * 10, resolution_ms=0.2)
    assert coarse.proposed.limit_pct >= 2, "a step of the timer"


def _calibration(where: str, limit_pct: float, runs: int = 20) -> Calibration:
    own = _of(_times(np.random.default_rng(1).normal(0, 0.001, 20)))
    own = replace(own, label="-", proposed=replace(own.proposed, rounds=7, limit_pct=limit_pct))
    return Calibration("w", where, "2026-11-22T10:00:00Z", 3.0, ("r",) * runs, (own,))


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    modes = _of(_times(0.04 * (np.arange(30) % 3 == 0)))
    before = replace(_calibration("a b/c", 1.5), configurations=(modes,))
    path = calibrationrecord.write(tmp_path, before)
    assert calibrationrecord.read(tmp_path, "w", "a b/c") == before
    assert calibrationrecord.read(tmp_path, "w", "another") is None
    path.write_text(path.read_text().replace('"at":', '"later":'))
    with pytest.raises(StoreError, match="not a complete calibration"):
        calibrationrecord.read(tmp_path, "w", "a b/c")
    path.write_text('{"schema_version": 99}')
    with pytest.raises(StoreError, match="schema version 99"):
        calibrationrecord.read(tmp_path, "w", "a b/c")


# The commands


def _run(store: Path, run_id: str, ms: float, minute: int, where: str) -> str:
    at = f"2026-11-22T10:{minute:02}:00Z"
    ran = Ran(at, at, 1.0, "node", machine=where)
    task = TaskResult(0, "-", {}, times_ms=(ms, ms * 1.0001), ran=ran)
    Store(store).write_run(RunRecord(run_id, "w", "timing", at, "done", (), (task,)))
    return run_id


@pytest.mark.parametrize(
    ("command", "words", "code", "sentence"),
    [
        ('print(\'{"perfpipe": "time", "ms": [0]}\')', [], 1, "the program printed the time 0"),
        ("import sys; sys.exit(7)", [], 1, "perfpipe: the program exited with code 7"),
        ("pass", ["--set", "x=1,2"], 2, "an arm takes one value per parameter"),
        ("pass", ["--set", "wrapper=env A=1"], 0, ""),
    ],
)
def test_what_cannot_be_calibrated(
    command: str, words: list[str], code: int, sentence: str, cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"version: 1\nname: w\ncommand: ['{{python}}', -c, {json.dumps(command)}]\n")
    assert cli("gate", "calibrate", str(path), "--rounds", "3", *words) == code, cli.err
    assert sentence in cli.err


def test_check_goes_by_the_calibration_of_workload_and_machine(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "store"
    jitter = (1.0, 1.0005, 0.9995, 1.001)
    old, new = (
        [_run(store, f"{name}{at}", factor * own, 2 * at + (at + arm) % 2, "H200")
         for at, own in enumerate(jitter)]
        for arm, (name, factor) in enumerate((("a", 10.0), ("b", 10.25)))
    )  # fmt: skip
    words = ["check", *new, *(f"--baseline={run}" for run in old)]
    assert cli(*words) == 3, "2.5 % are more than usual"
    assert (
        "Changes below 1.75 % are treated as noise (default threshold, not calibrated)" in cli.out
    )
    calibrationrecord.write(store, _calibration("another GPU", 5.0))
    assert cli(*words) == 3
    calibrationrecord.write(store, _calibration("H200", 4.0))
    assert cli(*words, "--json") == 0
    found = json.loads(cli.out)
    assert found["verdict"] == "same"
    assert found["basis"] == (
        "Changes below 4 % are treated as noise (calibrated 2026-11-22 from 20 launches; machine: "
        "H200)"
    )
    calibrationrecord.write(store, _calibration("H200", 0.8))
    assert cli(*words) == 3


def test_a_workload_is_calibrated_and_compared_by_it(cli: Cli, tmp_path: Path) -> None:
    workload = str(ROOT / "workloads" / "cpu_noise.yaml")
    words = ["--set", "clock=work", "--set", "noise=0.002"]
    assert cli("gate", "calibrate", workload, *words, "--rounds", "4", "--json") == 0, cli.err
    found = json.loads(cli.out)
    (own,) = found["configurations"]
    assert own["launches"] == len(found["runs"]) == 8
    assert own["label"] == "slowdown=0 noise=0.002 modes=0 clock=work"
    assert 0.05 < own["between_pct"] < 0.6
    assert own["proposed"]["limit_pct"] < 1.75
    store = Store(tmp_path / "store")
    kept = calibrationrecord.read(store.root, "cpu_noise", machine({}))
    assert kept is not None
    assert kept.rounds == found["rounds"]
    arms = [f"--{arm}={what}" for arm in "ab" for what in ("clock=work", "noise=0.0001")]
    assert cli("ab", workload, *arms, "--b", "slowdown=0.016", "--no-confirm", "--json") == 3
    assert "(calibrated 2" in json.loads(cli.out)["basis"]
    assert cli("gate", "calibrate", workload, *words, "--rounds", "3") == 0, cli.err
    assert "no significant drift" in cli.out or "drift:" in cli.out
    assert "'perfpipe ab' measures up to" in cli.out
    assert cli("gate", "calibrate", workload, "--set", "env.PYTHONHOME=/nowhere") == 1
