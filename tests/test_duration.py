"""Programs that would run for hours: each launch is ended after the time that it is given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.pipelines.collectors import timing
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

ENDLESS = "import time\nwhile True: time.sleep(0.05)"


def _run(cli: Cli, program: str, *options: str, rc: int = 0, report: bool = False) -> str:
    words = ("run", *options, "--store", "st", "--", sys.executable, "-c", program)
    assert cli(*words, report=report) == rc
    return cli.out


def _result() -> TaskResult:
    (path,) = Store(Path("st")).runs_dir.glob("*/tasks/*/result.json")
    return TaskResult.read(path)


def test_a_program_that_does_not_end_is_ended(cli: Cli) -> None:
    said = _run(cli, ENDLESS, "--collector", "timing", "--duration", "0.5", report=True)
    assert "Wall time: unknown: stopped after 500 ms, as requested" in said
    result = _result()
    assert result.done
    assert (result.ended_after_s, result.wall_s) == (0.5, None)
    assert 0.5 <= result.seconds[0] < 60


def test_one_that_ends_by_itself_keeps_its_time(cli: Cli) -> None:
    _run(cli, "pass", "--collector", "timing", "--duration", "60")
    result = _result()
    assert result.ended_after_s is None
    assert result.wall_s == result.seconds[0]


def test_one_that_fails_before_has_failed(cli: Cli) -> None:
    _run(cli, "raise SystemExit(3)", "--collector", "timing", "--duration", "60", rc=1)
    assert _result().failure == "crash"


def test_one_that_ignores_the_interrupt_is_killed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_GRACE_S", 0.2)
    ignoring = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{ENDLESS}"
    _run(cli, ignoring, "--collector", "timing", "--duration", "0.5")
    assert _result().ended_after_s == 0.5


def test_nsys_ends_it(cli: Cli, profilers: Path) -> None:
    _run(cli, ENDLESS, "--collector", "nsys", "--duration", "0.5")
    log = (profilers / "nsys.log").read_text()
    assert "--duration=0.5 --kill=sigterm" in log
    assert _result().reports


@pytest.mark.parametrize("seconds", ["0", "-1", "x"])
def test_a_duration_is_a_time(cli: Cli, seconds: str) -> None:
    _run(cli, "pass", "--duration", seconds, rc=2)


def test_it_is_below_the_limit_at_which_launches_fail(cli: Cli) -> None:
    words = ("run", "--duration", "700", "--", sys.executable, "-c", "pass")
    assert cli(*words) == 2
    assert "duration (700 s) must be less than timeout (600 s)" in cli.err


@pytest.mark.parametrize("words", [("ab", "w.yaml", "--aa"), ("gate", "calibrate", "w.yaml")])
def test_without_times_there_is_nothing_to_compare(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    command = [sys.executable, "-c", ENDLESS]
    text = f"version: 1\nname: w\nduration: 0.2\ncollect: {{}}\ncommand: {json.dumps(command)}\n"
    (tmp_path / "w.yaml").write_text(text)
    assert cli(*words) == 2
    assert "prints no times and is stopped early (duration)" in cli.err
