"""The gate passes nothing that it did not measure: through the command line, from run records."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store


def _run(store: Path, run_id: str, *tasks: TaskResult, at: str, workload: str = "w") -> str:
    run = RunRecord(run_id, workload, "timing", at, "done", (), tasks)
    Store(store).write_run(run)
    return run_id


def _runs(store: Path, name: str, *tasks: TaskResult, workload: str = "w") -> list[str]:
    """Write five runs of some configurations; those of several names take turns."""
    minute = ord(name[0]) % 60
    return [
        _run(
            store,
            f"{name}{number}",
            *tasks,
            at=f"2026-11-22T{10 + number}:{minute:02}:00Z",
            workload=workload,
        )
        for number in range(5)
    ]


def _silent(label: str, seconds: float, *printed: float) -> TaskResult:
    """Return a configuration that took some seconds, and what it printed as its times."""
    return TaskResult(0, label, {}, times_ms=printed, seconds=(seconds,), key="k")


def test_the_wall_time_is_compared_where_no_times_are_printed(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "store"
    _runs(store, "a", _silent("-", 0.4))
    _runs(store, "b", _silent("-", 0.4))
    _runs(store, "c", _silent("-", 0.8))
    old, same, slow = ([f"{name}{at}" for at in range(5)] for name in "abc")
    assert cli("gate", "baseline", "set", "main", *old) == 0
    assert cli("gate", "baseline", "export", "main", "b.json") == 0
    assert "its wall time is compared" in cli.err
    for baseline in ("main", "b.json"):
        assert cli("check", *same, "--baseline", baseline) == 0, cli.err
        assert cli.out.startswith("Same: wall time: ")
        assert cli("check", *slow, "--baseline", baseline) == 3
        assert "regressed: wall time: +100.0 %" in cli.err


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([], "n=2 was measured in the baseline, but not now"),
        ([_silent("n=2", 0.4)], "n=2 printed usable times in the baseline, but not now"),
        ([_silent("n=2", 0.4, 0.0)], "n=2 printed usable times in the baseline, but not now"),
        ([_silent("n=2", 0.4, -1.0)], "n=2 printed usable times in the baseline, but not now"),
        (
            [_silent("n=2", 0.4, 1.0, math.nan)],
            "n=2: times_ms has a value that is not a finite number",
        ),
        ([_silent("n=3", 0.4, 1.0)], "n=2 was measured in the baseline, but not now"),
    ],
)
def test_a_lost_configuration_fails(
    after: list[TaskResult], said: str, cli: Cli, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    old = _runs(store, "a", _silent("n=1", 0.4, 1.0), _silent("n=2", 0.4, 1.0))
    new = _runs(store, "b", _silent("n=1", 0.4, 1.0), *after)
    assert cli("gate", "baseline", "set", "main", *old) == 0
    assert cli("gate", "baseline", "export", "main", "b.json") == 0
    for baseline in ("main", "b.json"):
        assert cli("check", *new, "--baseline", baseline, "--json", "d.json") == 1
        assert f"perfpipe: {said}" in cli.err
        found = json.loads((tmp_path / "d.json").read_text())
        assert (found["verdict"], found["action"]) == ("failed", "investigate")
    assert cli("compare", ",".join(old), ",".join(new)) == 0
    if not after:
        fewer = [f"--baseline={run}" for run in new]
        assert cli("check", *old, *fewer) == 0, "what is new is not lost"


def test_a_configuration_that_is_silent_in_some_runs_fails(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "store"
    old = _runs(store, "a", _silent("-", 0.4, 1.0))
    new = _runs(store, "b", _silent("-", 0.4, 1.0))
    _run(store, new[3], _silent("-", 0.4), at="2026-11-22T13:38:00Z")
    baseline = [f"--baseline={run}" for run in old]
    assert cli("check", *new, *baseline) == 1
    assert "the only configuration printed no usable times in 1 of 5 runs" in cli.err


@pytest.mark.parametrize("labels", [("n=1", "n=3"), ("n=1", "n=1"), ("-", "-")])
def test_another_workload_is_not_comparable(
    labels: tuple[str, str], cli: Cli, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    old = _runs(store, "a", _silent(labels[0], 0.4, 1.0), workload="one")
    new = _runs(store, "b", _silent(labels[1], 0.4, 3.0), workload="other")
    assert cli("gate", "baseline", "set", "main", *old) == 0
    assert cli("gate", "baseline", "export", "main", "b.json") == 0
    for baseline in ("main", "b.json"):
        assert cli("check", *new, "--baseline", baseline, "--json", "d.json") == 4
        found = json.loads((tmp_path / "d.json").read_text())
        assert (found["verdict"], found["action"]) == ("not comparable", "investigate")
        assert "not comparable: workload: one before, other after" in cli.err
        assert cli("check", *new, "--baseline", baseline, "--allow-not-comparable") == 0


def test_an_empty_baseline_is_not_exported(cli: Cli, tmp_path: Path) -> None:
    ended = TaskResult(0, "-", {}, seconds=(5.0,), ended_after_s=5.0, key="k")
    for number, task in enumerate((TaskResult(0, "-", {}, key="k"), ended)):
        _run(tmp_path / "store", f"r{number}", task, at="2026-11-22T10:00:00Z")
        assert cli("gate", "baseline", "export", f"r{number}", "b.json") == 2
        assert f"r{number} has no measurements: " in cli.err
        assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize("time", ["0", "-1", "NaN", "Infinity"])
def test_an_exported_baseline_with_an_impossible_time_is_refused(
    time: str, cli: Cli, tmp_path: Path
) -> None:
    run = _run(tmp_path / "store", "a", _silent("-", 0.4, 1.0), at="2026-11-22T10:00:00Z")
    assert cli("gate", "baseline", "export", run, "b.json") == 0
    path = tmp_path / "b.json"
    path.write_text(path.read_text().replace("1000000.0", time, 1))
    _run(tmp_path / "store", "b", _silent("-", 0.4, 1.0), at="2026-11-22T11:00:00Z")
    assert cli("check", "b", "--baseline", "b.json") == 2
    assert "times must be positive" in cli.err
