"""Exported baselines: what hands may do to them, whose runs they hold, and their calibration."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from perfpipe import calibrationrecord
from perfpipe.calibrationrecord import Calibrated, Calibration, Setting
from perfpipe.pipelines.place import machine
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store

_JITTER = (1.0, 1.0005, 0.9995, 1.001)


def _runs(store: Path, name: str, ms: float, machine: str = "H200") -> list[str]:
    """Write runs of a workload with two configurations; those of two names take turns."""
    found = []
    for at, jitter in enumerate(_JITTER):
        began = f"2026-11-22T10:{2 * at + (at + ord(name[0])) % 2:02}:00Z"
        ran = Ran(began, began, 1.0, "n", machine=machine)
        tasks = tuple(
            TaskResult(number, label, {}, times_ms=(ms * jitter,), key=label, ran=ran)
            for number, label in enumerate(("n=1", "n=2"))
        )
        run = RunRecord(f"{name}{at}", "w", "timing", began, "done", (), tasks)
        Store(store).write_run(run)
        found.append(run.run_id)
    return found


@pytest.fixture
def exported(cli: Cli, tmp_path: Path) -> Path:
    """A baseline of the runs a0 to a3; the store also has the runs b0 to b3, which are 2.5 % slower."""
    old = _runs(tmp_path / "store", "a", 10.0)
    _runs(tmp_path / "store", "b", 10.25)
    assert cli("gate", "baseline", "export", ",".join(old), "base.json") == 0, cli.err
    return tmp_path / "base.json"


def _calibration(machine: str, limit_pct: float) -> Calibration:
    setting = Setting(7, limit_pct, 1.0, 95.0, 2.0)
    own = Calibrated(
        "n=1", 20, 10.0, 0.1, 0.05, 0.2, None, 0.0, -0.1, 0.1, None, False, None, setting, setting
    )
    return Calibration("w", machine, "2026-11-22T10:00:00Z", 3.0, ("r",) * 20, (own,))


def _set(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def edit(content: Any) -> None:
        for word in path[:-1]:
            content = content[word]
        content[path[-1]] = to

    return edit


def _drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def edit(content: Any) -> None:
        for word in path[:-1]:
            content = content[word]
        del content[path[-1]]

    return edit


def _again(content: dict[str, Any]) -> None:
    content["measured"].append(content["measured"][0])


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (_drop("names"), "names is missing"),
        (_drop("measured"), "measured is missing"),
        (_drop("facts"), "facts is missing"),
        (_drop("facts", "settings"), "facts.settings is missing"),
        (_drop("measured", 0, "launches"), "measured[0].launches is missing"),
        (_set("names", to=[]), "names has no runs"),
        (_set("names", 1, to="a0"), "names has a0 twice"),
        (_drop("names", 3), "began has 4 values for 3 runs"),
        (_set("began", 0, to="yesterday"), "began: 'yesterday' is not a time"),
        (_set("measured", to=[]), "measured has no times of a program"),
        (_again, "measured has n=1 iteration twice"),
        (_set("measured", 1, "label", to="n=1"), "measured has n=1 iteration twice"),
        (_drop("measured", 0, "medians", 0), "n=1 iteration: 4 totals for 3 medians"),
        (_set("measured", 0, "medians", to=[]), "n=1 iteration: 0 medians for 4 runs"),
        (_set("measured", 0, "medians", to=[1e7] * 5), "n=1 iteration: 5 medians for 4 runs"),
        (_set("measured", 0, "medians", 2, to=0), "n=1 iteration: times must be positive"),
        (_set("measured", 0, "medians", 2, to=float("nan")), "times must be positive"),
        (_set("measured", 0, "totals", 2, to=float("inf")), "totals must be finite"),
        (_drop("measured", 1, "launches", 0), "n=2 iteration: 3 launches for 4 medians"),
        (_set("measured", 0, "sm_mhz", to=[]), "n=1 iteration: 0 sm_mhz for 4 medians"),
        (_set("measured", 0, "sm_mhz", 0, to=float("nan")), "sm_mhz must be finite"),
        (_set("timers", "", to=0), "timers: times must be positive"),
        (_set("facts", "conditions", "SM clock", to=[1980.0]), "SM clock has 1 values for 4 runs"),
        (_set("facts", "conditions", "power", to=[float("nan")] * 4), "power: values must be fin"),
        (_set("calibration", to={}), "calibration.workload is missing"),
        (_set("calibration", to=[]), "incomplete or invalid baseline (calibration is [])"),
    ],
)  # fmt: skip
def test_a_baseline_that_no_runs_can_have_is_refused(
    edit: Callable[[dict[str, Any]], None], said: str, exported: Path, cli: Cli
) -> None:
    assert cli("gate", "baseline", "show", "base.json") == 0, cli.err
    content = json.loads(exported.read_text())
    edit(content)
    exported.write_text(json.dumps(content))
    for words in (
        ["gate", "baseline", "show", "base.json"],
        ["check", "b0", "--baseline", "base.json"],
    ):
        assert cli(*words) == 2
        assert "base.json: " in cli.err
        assert said in cli.err
        assert cli.err.count("\n") == 1, "one sentence"


def test_what_a_baseline_contains(exported: Path, cli: Cli) -> None:
    assert cli("gate", "baseline", "show", str(exported)) == 0, cli.err
    assert cli.out.splitlines() == [
        "runs: a0, a1, a2, a3",
        "workload: w",
        "machine: H200",
        "configurations: n=1, n=2",
        "iteration of n=1: 10 ms in the median of 4 runs",
        "iteration of n=2: 10 ms in the median of 4 runs",
        "calibration: none",
    ]
    assert cli("gate", "baseline", "show", str(exported), "--json") == 0
    first = json.loads(cli.out)["times"][0]
    assert (first["part"], first["runs"]) == ("iteration", 4)
    assert first["median_ms"] == pytest.approx(10, rel=1e-3)
    assert cli("gate", "baseline", "show", "none.json") == 2
    assert "none.json: no such file" in cli.err


def test_an_exported_run_is_not_compared_with_itself(exported: Path, cli: Cli) -> None:
    assert cli("check", "a1", "b1", "--baseline", "base.json") == 2
    assert "a1 is on both sides of the comparison" in cli.err
    assert cli("compare", "base.json", "base.json") == 2
    assert cli("check", "b1", "b2", "--baseline", "base.json") == 3


def test_another_machine_model_is_not_comparable(exported: Path, cli: Cli, tmp_path: Path) -> None:
    other = _runs(tmp_path / "store", "c", 10.0, machine="another CPU")
    words = ["check", *other, "--baseline", str(exported)]
    assert cli(*words) == 4
    assert "not comparable: machine model: H200 before, another CPU after" in cli.err
    assert cli(*words, "--allow-mixed") == 0


def test_a_baseline_carries_its_calibration(exported: Path, cli: Cli, tmp_path: Path) -> None:
    """As in CI, where each job begins with an empty store."""
    store = tmp_path / "store"
    old, new = ([f"{name}{at}" for at in range(4)] for name in "ab")
    ci = tmp_path / "ci"
    words = ["check", *_runs(ci, "b", 10.25), "--baseline", "base.json", "--store", str(ci)]
    assert cli(*words) == 3, "2.5 % are more than usual"
    path = calibrationrecord.write(store, _calibration("H200", 4.0))
    assert cli("gate", "baseline", "export", ",".join(old), "base.json") == 0, cli.err
    assert "calibration: 2026-11-22" in _shown(cli)
    assert cli(*words) == 0, cli.err
    assert "Changes below 4 % are treated as noise (calibrated 2026-11-22 from 20" in cli.out
    calibrationrecord.write(ci, _calibration("H200", 1.0))
    assert cli(*words) == 3, "the store's own calibration comes first"
    path.unlink()
    (ci / "calibrations" / path.name).unlink()
    content = json.loads(exported.read_text())
    content["calibration"]["machine"] = "another machine"
    exported.write_text(json.dumps(content))
    assert cli(*words) == 3, "the calibration is of another machine"
    content["calibration"]["configurations"][0]["proposed"]["limit_pct"] = float("nan")
    exported.write_text(json.dumps(content))
    assert cli("check", *new, "--baseline", "base.json") == 2
    assert "calibration of n=1: rounds and threshold must be positive" in cli.err


def _shown(cli: Cli) -> str:
    assert cli("gate", "baseline", "show", "base.json") == 0, cli.err
    return cli.out


def test_ab_takes_the_calibration_of_a_baseline(exported: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import json, os\nprint(json.dumps({'perfpipe': 'time', 'ms': [float(os.environ['MS'])]}))\n"
    )
    (tmp_path / "w.yaml").write_text("version: 1\nname: w\ncommand: ['{python}', program.py]\n")
    words = ["ab", "w.yaml", "--a", "env.MS=10", "--b", "env.MS=10.3", "--store", "ci"]
    words += ["--calibration", "base.json", "--no-early-stop", "--no-confirm"]
    assert cli(*words) == 2
    assert "base.json: has no calibration; run 'perfpipe gate calibrate'" in cli.err
    for where, code, said in (
        (machine({}), 0, "Changes below 4 % are treated as noise (calibrated 2026-11-22"),
        ("another machine", 3, "base.json: its calibration is not used (it is of w on another"),
    ):
        content = json.loads(exported.read_text())
        content["calibration"] = asdict(_calibration(where, 4.0))
        exported.write_text(json.dumps(content))
        assert cli(*words) == code, cli.err
        assert said in cli.out + cli.err
        rounds = 7 if code == 0 else 5
        assert f"[{rounds}/{rounds}]" in cli.err, "the rounds are those of the calibration"
