"""The example without a GPU: noise and slowdown are those that were ordered."""

from __future__ import annotations

import importlib
import json
import statistics
from collections.abc import Callable

import pytest
from conftest import ROOT, Cli

cpu_noise = importlib.import_module("perfpipe.workloads.cpu_noise")
Run = Callable[..., list[float]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return the times that the program prints."""

    def times(*words: str) -> list[float]:
        monkeypatch.setattr("sys.argv", ["cpu_noise.py", "--warmup", "0", *words])
        assert cpu_noise.main() == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line[0] == "{"]
        found: list[float] = json.loads(line)["ms"]
        return found

    return times


def test_slowdown_noise_and_modes_are_as_ordered(run: Run) -> None:
    exact = ("--clock", "work", "--noise", "0", "--iterations", "2")
    assert run(*exact) == [1.0, 1.0]
    assert run(*exact, "--slowdown", "0.03") == [1.03, 1.03]
    words = ("--clock", "work", "--iterations", "1", "--hashes", "1000")
    noisy = [run(*words, "--noise", "0.02", "--seed", str(seed))[0] for seed in range(150)]
    assert statistics.stdev(noisy) == pytest.approx(0.02, rel=0.25)
    modes = [
        run(*words, "--noise", "0", "--modes", "0.05", "--seed", str(seed))[0]
        for seed in range(150)
    ]
    assert {*modes} == {1.0, 1.05}
    assert modes.count(1.05) / 150 == pytest.approx(1 / 3, abs=0.12)
    assert all(time > 0 for time in run("--hashes", "20", "--iterations", "3"))


def test_it_can_be_compared_without_a_gpu(cli: Cli) -> None:
    workload = str(ROOT / "workloads" / "cpu_noise.yaml")
    words = ["--a", "slowdown=0", "--b", "slowdown=0.05"]
    words += [f"--{arm}={setting}" for arm in "ab" for setting in ("clock=work", "noise=0.001")]
    assert cli("ab", workload, *words, "--no-confirm") == 3, cli.err
    assert cli.out.startswith("Regressed: noise=0.001 modes=0 clock=work: +")
