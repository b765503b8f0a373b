"""The fastest configuration of a search is launched again, in turns with the default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.runrecord import RunRecord
from perfpipe.store import Store

#: In the search x=2 takes 1.0 ms, x=1 1.5; the times of later launches are those of `later`.
PROGRAM = """
import json, sys
from pathlib import Path
x, order = int(sys.argv[1]), Path("order.txt")
with order.open("a") as file:
    print(x, file=file)
turn = order.read_text().split().count(str(x))
def say(what, **more): print(json.dumps({"perfpipe": what, **more}), flush=True)
if turn == 1:
    say("time", ms=[{1: 1.5, 2: 1.0, 3: 4.0}[x]])
elif x in {LATER}:
    say("time", ms=[{LATER}[x] + turn / 1000])
else:
    say("validation", ok=False)
"""

WORKLOAD = """
version: 1
name: t
command: ["{python}", -IS, program.py, "{x}"]
tune:
  parameters: {x: [1, 2, 3]}
  default: {x: 1}
  generations: 1
  population: 3
  confirm: 4
"""


def _write(directory: Path, later: dict[int, float], text: str = WORKLOAD) -> Path:
    (directory / "program.py").write_text(PROGRAM.replace("{LATER}", str(later)))
    (directory / "t.yaml").write_text(text)
    return directory / "t.yaml"


def _run(store: Path) -> RunRecord:
    (run,) = Store(store / "store").runs()
    return run


def _launched(directory: Path) -> list[str]:
    return (directory / "order.txt").read_text().split()


@pytest.mark.parametrize(
    ("again_ms", "verdict", "said"), [(0.9, "improved", "faster"), (1.1, "regressed", "slower")]
)
def test_launches_after_the_search_judge_the_winner(
    again_ms: float, verdict: str, said: str, cli: Cli, tmp_path: Path
) -> None:
    workload = _write(tmp_path, {1: 1.0, 2: again_ms})
    assert cli("run", workload, "--collector", "timing") == 0, cli.err
    launched = _launched(tmp_path)
    assert launched[3:] == ["2", "1", "1", "2"] * 2, "in turns, after the search"
    tasks = {task.params["x"]: task for task in _run(tmp_path).tasks}
    assert {x: task.default for x, task in tasks.items()} == {1: True, 2: False, 3: False}
    assert {x: len(task.confirm_ms) for x, task in tasks.items()} == {1: 4, 2: 4, 3: 0}
    assert {len(task.launches_ms) for task in tasks.values()} == {1}
    assert cli("report", "--tuning", "--json") == 0
    document = json.loads(cli.out)
    assert document["gain_over_default_pct"] == pytest.approx(100 * (1 / again_ms - 1), abs=0.2)
    assert document["gain_verdict"] == verdict
    assert document["gain_confirmed"]
    assert cli("report", "--tuning") == 0
    assert f"% {said} than the default (1.003" in cli.out
    assert (
        "4 and 4 alternating launches after the search; during the search it was 50.0 % faster."
        in cli.out
    )
    assert cli("run", workload, "--collector", "timing", "--resume") == 0
    assert _launched(tmp_path) == launched, "nothing is launched a second time"


def test_a_winner_that_fails_later_is_not_confirmed(cli: Cli, tmp_path: Path) -> None:
    workload = _write(tmp_path, {1: 1.0})
    assert cli("run", workload, "--collector", "timing") == 0, cli.err
    tasks = {task.params["x"]: task for task in _run(tmp_path).tasks}
    assert not any(task.confirm_ms for task in tasks.values())
    assert "time failed: wrong result" in tasks[2].notes[0]
    assert cli("report", "--tuning") == 0
    assert "unreplicated: 1 and 1 launches" in cli.out


def test_no_confirmation_where_none_is_wanted(cli: Cli, tmp_path: Path) -> None:
    workload = _write(tmp_path, {1: 1.0, 2: 1.0}, WORKLOAD.replace("confirm: 4", "confirm: 0"))
    assert cli("run", workload, "--collector", "timing") == 0, cli.err
    assert len(_launched(tmp_path)) == 3


def test_without_a_default_nothing_is_called_one(cli: Cli, tmp_path: Path) -> None:
    workload = _write(tmp_path, {}, WORKLOAD.replace("  default: {x: 1}\n", ""))
    assert cli("run", workload, "--collector", "timing") == 0, cli.err
    assert len(_launched(tmp_path)) == 3
    assert cli("report", "--tuning") == 0
    assert "than the default" not in cli.out
