"""The benchmark of `perfpipe attach`: how it reads steps, its intervals, and a whole run."""

from __future__ import annotations

import importlib
import math
import os
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from scipy import stats

#: Prints steps that take about 2 ms.
LOOP = """
import json, time
while True:
    began = time.perf_counter()
    time.sleep(0.002)
    print(json.dumps({"perfpipe": "time", "ms": 1e3 * (time.perf_counter() - began)}), flush=True)
"""


@pytest.fixture(scope="module")
def bench() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("bench_attach")


def _steps(bench: Any, *ms: float) -> list[Any]:
    return [bench.Step(one, 0.0) for one in ms]


def _program(bench: Any, file: Path) -> Any:
    """Return a program whose process is this one, so that it runs."""
    return bench.Program(os.getpid(), file)


def test_steps_are_read_once_and_when_their_line_is_complete(bench: Any, tmp_path: Path) -> None:
    file = tmp_path / "plain.out"
    file.write_text('begins\n{"perfpipe": "time", "ms": 2}\n{"perfpipe": "time", "ms"')
    program = _program(bench, file)
    assert [step.ms for step in program.steps()] == [2]
    assert program.steps() == []
    with file.open("a") as more:
        more.write(': [3, 4]}\n{"loss": 5}\n')
    assert [step.ms for step in program.steps()] == [3, 4]


def test_a_window_has_no_step_that_began_before_it(bench: Any, tmp_path: Path) -> None:
    file = tmp_path / "plain.out"
    file.write_text('{"perfpipe": "time", "ms": 1}\n')
    program, lines = _program(bench, file), iter((2, 3, 4))

    def happened() -> bool:
        if (ms := next(lines, None)) is None:
            return True
        with file.open("a") as more:
            more.write(f'{{"perfpipe": "time", "ms": {ms}}}\n')
        return False

    assert [step.ms for step in program.until(happened)] == [3, 4]


def test_ratios_are_of_medians_with_students_interval(bench: Any) -> None:
    logs = (0.01, 0.03, -0.01, 0.02)
    pairs = [
        bench.Pair(
            before=_steps(bench, 9, 10, 1000),
            during=_steps(bench, 1, 12, 13),
            around=_steps(bench, 1, 2),
            after=_steps(bench, *[10 * math.exp(log)] * 3),
            used=("stacks",),
        )
        for log in logs
    ]
    said = bench.summary(pairs)
    found = dict(line.strip("| ").split(" | ", 1) for line in said.splitlines() if "before" in line)
    count, mean, interval = found["after/before"].split(" | ")
    oracle = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert (count, mean) == ("4", f"{math.exp(statistics.fmean(logs)):.4f}")
    assert interval == f"{math.exp(oracle.low):.4f} to {math.exp(oracle.high):.4f}"
    assert found["during/before"] == "4 | 1.2000 | 1.2000 to 1.2000"
    # What has too few steps is unknown.
    assert found["around/before"] == "0 | - | -"
    assert "-: fewer than 3 steps" in said and "stacks (4 of 4)" in said
    assert bench.told(1, pairs[0]) == "| 1 | 3 | 10 | 1.0101 | 1.2000 | - |"


def test_the_control_shows_drift_between_windows_that_follow_each_other(bench: Any) -> None:
    """Every part takes 1 % longer than the one before."""
    parts = [_steps(bench, *[1.01**number] * 3) for number in range(9)]
    pairs = [bench.Pair(*parts[at : at + 2], [], parts[at + 2]) for at in (0, 3, 6)]
    assert bench.controls(pairs) == pytest.approx([math.log(1.01)] * 2)


def test_a_program_is_attached_to_and_ended(
    bench: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "loop.py").write_text(LOOP)
    options = ["--collector=timing", "--pairs=2", "--window=0.5", "--duration=1", "--warm-up=0"]
    code = bench.main([*options, "--", sys.executable, f"{tmp_path}/loop.py"])
    said, errors = capfd.readouterr()
    assert code == 0, errors
    rows = re.findall(r"^\| ([12]) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", said, re.M)
    assert [row[0] for row in rows] == ["1", "2"]
    assert all(float(row[2]) >= 2 for row in rows)
    assert re.search(r"^\| control \| 1 \| [\d.]+ \| - \|$", said, re.M)
    assert "/proc and NVML (2 of 2)" in said
    commands = (file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline"))
    assert not any(f"{tmp_path}/loop.py".encode() in command for command in commands)


def test_what_a_program_lacks_is_said(
    bench: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(bench, "find_spec", lambda _: None)
    monkeypatch.setattr(bench.shutil, "which", lambda _: None)
    for name, lacking in (("jax", "does not have jax"), ("cuda", "nvcc is not on the PATH")):
        assert bench.main([name]) != 0
        assert lacking in capfd.readouterr().err
    assert bench.main(["--collector=timing", "--", sys.executable, "-c", "import nothing"]) != 0
    assert "the program has ended: ModuleNotFoundError" in capfd.readouterr().err
