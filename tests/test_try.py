"""`perfpipe try` as its users call it: real programs, real launches, planted causes and faults."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from perfpipe.pipelines.trying.levers import Lever, exclusive
from perfpipe.store import Store
from perfpipe.trialrecord import WAITS, read_all

TRIED = Path(__file__).with_name("tried")

#: A program that prints its times and results, as its variables say.
PRINTING = """
import json, os, pathlib, sys, time
if os.environ.get("FAIL"):
    sys.exit("ValueError: broken")
if os.environ.get("HANG"):
    time.sleep(600)
pathlib.Path("written.txt").write_text("x")
pathlib.Path("log.txt").open("a").write("one more\\n")
ms = float(os.environ.get("MS", "10")) * (1 + 0.001 * (os.getpid() % 3))
print(json.dumps({"perfpipe": "time", "ms": [ms] * 20}))
for step in range(5):
    print(f"step {step} loss {float(os.environ.get('LOSS', '2')) / (step + 1):.6f}")
"""

LEVERS = {
    "fast": {"env": {"MS": "5"}},
    "same": {"env": {"OTHER": "1"}},
    "slow": {"env": {"MS": "20"}},
    "wrong": {"env": {"MS": "5", "LOSS": "3"}},
    "broken": {"env": {"FAIL": "1"}},
}


def _workload(folder: Path, program: str, levers: Mapping[str, Any]) -> Path:
    (folder / "program.py").write_text(program)
    path = folder / "w.yaml"
    content = {
        "version": 1,
        "name": "w",
        "command": ["{python}", "program.py", "{n}"],
        "matrix": {"n": [1]},
        "levers": levers,
        "timeout": 60,
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_own_levers_are_measured_compared_and_stacked(work: Path, cli: Cli, tmp_path: Path) -> None:
    path = _workload(work, PRINTING, LEVERS)
    before = sorted(one.name for one in work.iterdir())
    assert cli("try", str(path), "--no-diagnosis", "--budget", "5m", "--json") == 0, cli.err
    found = json.loads(cli.out)
    assert {"schema_version", "program", "gpu", "unit", "plain", "aa", "levers", "stack"} <= {
        *found
    }
    assert (found["program"], found["unit"]) == ("w", "iteration")
    assert found["plain"]["median_ms"] == pytest.approx(10, abs=0.1)
    assert found["aa"]["results"] == "identical"
    rows = {row["name"]: row for row in found["levers"]}
    assert rows["fast"]["verdict"] == "gain"
    assert rows["fast"]["gain_pct"] == pytest.approx(50, abs=1)
    assert rows["fast"]["interval_pct"] == pytest.approx([50, 50], abs=1)
    assert rows["fast"]["where"] == ["MS=5"]
    assert rows["fast"]["results"] == "identical"
    assert rows["fast"]["manual"] == "export MS=5"
    assert rows["same"]["verdict"] in ("no gain", "inconclusive")
    assert rows["slow"]["verdict"] == "slower"
    assert rows["slow"]["gain_pct"] == pytest.approx(-100, abs=2)
    assert (rows["wrong"]["verdict"], rows["wrong"]["results"]) == ("gain", "differ")
    assert (rows["broken"]["verdict"], rows["broken"]["why"]) == ("failed", "ValueError: broken")
    assert found["stack"]["levers"] == ["fast"]
    assert found["stack"]["gain_pct"] == pytest.approx(50, abs=1)
    assert sorted(one.name for one in work.iterdir()) == before, "the user's files stay as they are"
    (stored,) = read_all(Store(tmp_path / "store").root)
    assert stored.trial_id == found["trial"]


def test_the_answer_says_what_to_change(work: Path, cli: Cli) -> None:
    path = _workload(work, PRINTING, {"fast": LEVERS["fast"]})
    assert cli("try", str(path), "--no-diagnosis", "--levers", "fast") == 0, cli.err
    first, *rest = cli.out.splitlines()
    gain = re.match(r"fast: -(\S+) %.* \(10 ms -> 5(\.\d+)? ms an iteration\), ", first)
    assert gain is not None, first
    assert float(gain[1]) == pytest.approx(50, abs=1)
    assert "results identical" in first
    assert "  export MS=5" in rest


def test_without_a_gain_the_answer_says_why(work: Path, cli: Cli) -> None:
    path = _workload(work, PRINTING, {"wrong": LEVERS["wrong"]})
    assert cli("try", str(path), "--no-diagnosis", "--levers", "wrong") == 0, cli.err
    assert cli.out.startswith("wrong: -")
    assert "but the results differ" in cli.out.splitlines()[0]


def test_the_reason_of_a_failure_is_no_output(work: Path, cli: Cli) -> None:
    path = _workload(work, "import sys\nprint('loss 0.5')\nsys.exit(3)\n", {"fast": LEVERS["fast"]})
    assert cli("try", str(path), "--no-diagnosis") == 1
    assert "fails without any change: exit code 3 (last output: loss 0.5)" in cli.err
    path = _workload(work, "open('../beside/x').read()\n", {"fast": LEVERS["fast"]})
    (work.parent / "beside").mkdir()
    (work.parent / "beside" / "x").touch()
    assert cli("try", str(path), "--no-diagnosis", "--protect", "copy") == 1
    assert "relative paths that lead out of it do not exist" in cli.err


def test_levers_that_make_the_same_change_are_not_stacked() -> None:
    one, other, third = (
        Lever(name, env={"MS": ms}) for name, ms in (("a", "4"), ("b", "4"), ("c", "5"))
    )
    assert exclusive(one, other) and not exclusive(one, third)


def test_a_program_that_fails_ends_it(work: Path, cli: Cli) -> None:
    path = _workload(work, "raise ValueError('no data')\n", {"fast": LEVERS["fast"]})
    assert cli("try", str(path), "--no-diagnosis") == 1
    assert "fails without any change: ValueError: no data" in cli.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--levers", "fsat"], "no lever fsat; did you mean 'fast'?"),
        (["--levers", ","], "expected names"),
        (["--budget", "0m"], "not longer than 0"),
        (["--set", "size=1,2"], "no parameter size"),
        (["--set", "n=1,2"], "2 configurations"),
    ],
)
def test_wrong_options_are_named(work: Path, cli: Cli, words: list[str], says: str) -> None:
    path = _workload(work, PRINTING, LEVERS)
    assert cli("try", str(path), "--no-diagnosis", *words) == 2
    assert says in cli.err


@pytest.mark.parametrize("words", [["--list"], ["--json", "--list"], ["--list", "--json"]])
def test_levers_are_listed(words: list[str], cli: Cli) -> None:
    assert cli("try", *words) == 0, cli.err
    if "--json" in words:
        listed = {one["name"]: one for one in json.loads(cli.out)["levers"]}
        assert "mixed_precision" in listed["tf32"]["answers"]
        names = [*listed]
    else:
        names = [line.split()[0] for line in cli.out.splitlines()]
    assert {"tf32", "workers", "compile"} <= {*names}
    assert cli("try", "--json") == 2


def test_more_loader_workers_help_a_slow_loader(work: Path, cli: Cli) -> None:
    pytest.importorskip("torch")
    path = _workload(work, (TRIED / "slow_loader.py").read_text(), {})
    words = ["--no-diagnosis", "--levers", "workers", "--rounds", "2"]
    assert cli("try", str(path), *words, "--json") == 0, cli.err
    (row,) = json.loads(cli.out)["levers"]
    assert row["where"] == ["DataLoader: 0 -> 2 workers"] or "workers" in row["where"][0]
    assert row["gain_pct"] > 0
    assert row["results"] == "identical"
    assert "num_workers=" in row["manual"]


def test_planted_faults_are_found_by_their_results(work: Path, cli: Cli) -> None:
    pytest.importorskip("torch")
    faults = {name: {"env": {"PLANT": name}} for name in ("skip", "lost", "seed", "frozen")}
    path = _workload(
        work, (TRIED / "planted.py").read_text(), faults | {"none": {"env": {"A": "1"}}}
    )
    words = ["--no-diagnosis", "--rounds", "2", "--levers", ",".join((*faults, "none"))]
    assert cli("try", str(path), *words, "--json") == 0, cli.err
    found = json.loads(cli.out)
    results = {row["name"]: row["results"] for row in found["levers"] if row["launches"]}
    assert results.pop("none") == "identical"
    assert len(results) == len(faults)
    assert not {*results.values()} & {"identical", "within_scatter", "within_tolerance"}
    assert found["stack"] is None or found["stack"]["levers"] == ["none"]


def test_nothing_is_tried_where_the_program_waits_for_requests(
    work: Path, profilers: Path, expand: Callable[[str], Path], cli: Cli
) -> None:
    (profilers / "timeline.sqlite").unlink()
    shutil.copyfile(expand("real/serve.sqlite"), profilers / "timeline.sqlite")
    path = _workload(work, PRINTING, {"fast": LEVERS["fast"]})
    assert cli("try", path, "--json") == 0, cli.err
    found = json.loads(cli.out)
    assert found["headline"].startswith("Nothing to gain: the program waits for requests")
    assert found["decided"] and found["launches"] == 1
    assert found["plain"]["median_ms"] is None and found["aa"]["results"] == "unknown"
    (trial,) = read_all(work.parent / "store")
    assert {own.why for own in trial.levers if own.name == "fast"} == {WAITS}
    # Levers that are named are tried.
    assert cli("try", path, "--levers", "fast", "--rounds", "2", "--json") == 0, cli.err
    assert json.loads(cli.out)["stack"]["levers"] == ["fast"]


def test_a_launch_that_ends_before_any_work_says_so(work: Path, cli: Cli) -> None:
    (work / "slow.py").write_text("import time; time.sleep(60)")
    words = ("--no-diagnosis", "--duration", "1", "--levers", "fused_optimizer", "--cwd", work)
    assert cli("try", *words, "--", sys.executable, "slow.py") == 0, cli.err
    first, *rest = cli.out.splitlines()
    assert first == "Nothing was tried: fused_optimizer: the program does not use PyTorch"
    (note,) = (line for line in rest if line.startswith("Note: the program was ended after "))
    assert note.endswith("before its first step, token or call of a model: use a longer --duration")


def test_a_budget_has_a_length(cli: Cli) -> None:
    assert cli("try", "--budget", "0s", "--", "true") == 2
    assert "0s is not longer than 0" in cli.err


def test_a_program_that_takes_long_is_named_once(
    work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfpipe.pipelines.trying.session._PATIENCE_S", 0.2)
    (work / "slow.py").write_text("import time; time.sleep(3)")
    words = ("--no-diagnosis", "--budget", "0.5s", "--cwd", work, "--levers", "tf32")
    assert cli("try", *words, "--", sys.executable, "slow.py") == 0, cli.err
    assert cli.err.count("the program has not ended after 500 ms; if it takes long, stop") == 1


def test_a_trial_is_no_report(work: Path, cli: Cli) -> None:
    path = _workload(work, PRINTING, {"fast": LEVERS["fast"]})
    assert cli("try", path, "--no-diagnosis", "--levers", "fast", "--json") == 0, cli.err
    trial = json.loads(cli.out)["trial"]
    assert cli("report", trial) == 2
    assert (
        f"{trial} is a trial: perfpipe query \"FROM trials WHERE trial_id = '{trial}'\"" in cli.err
    )
