"""The best correct candidate is profiled, confined as it was judged; ncu is a stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cli
from scaled import RIGHT, candidate, scaled

from perfpipe.pipelines.evaluate.device import pytorch
from perfpipe.pipelines.evaluate.load import loaded
from perfpipe.pipelines.evaluate.profiling import best, profile
from perfpipe.pipelines.evaluate.result import Evidence, Judgement, Profile, Score, Status
from perfpipe.store import Store

pytestmark = pytest.mark.usefixtures("needs_torch")

#: Fails where it sees what it should not.
LOOKS = """
import os
def run(x, y):
    y.copy_(2 * x)
    assert y.abs().sum() > 0, "no inputs"
    assert "SECRET" not in os.environ, "the caller's environment"
    try:
        open("REFERENCE").read()
    except OSError:
        return
    assert not CONFINED, "the reference"
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    return scaled(tmp_path)


def _profile(workload: Path, candidate: Path) -> Profile:
    """Profile a candidate that nobody judged."""
    torch = pytorch()
    judged = loaded(torch, workload, "cpu", workload.parent)
    store = Store(workload.parent / "store")
    return profile(torch, judged, candidate, judged.problem.cases(7)[0], "cpu", store)


def test_the_best_is_profiled(cli: Cli, workload: Path, tmp_path: Path, profilers: Path) -> None:
    sources = {"wrong": "def run(x, y):\n    y.zero_()\n", "right": RIGHT}
    candidates = [f"--candidate={candidate(tmp_path, *own)}" for own in sources.items()]
    words = ["--device=cpu", "--no-timing", "--profile", "--json"]
    assert cli("evaluate", workload, *candidates, *words) == 1, "one is wrong"
    wrong, right = json.loads(cli.out)["results"]
    assert wrong["profile"] is None
    found = right["profile"]
    assert found["why"] is None, found
    assert found["isolation"] == right["isolation"]
    assert any(kernel["compute_sol_pct"] is not None for kernel in found["kernels"])
    assert all(kernel["bound"] for kernel in found["kernels"])
    assert cli("report", "--findings", found["report"]) == 0, "the report is in the store"
    given, *_ = (profilers / "ncu.log").read_text().splitlines()
    assert "--profile-from-start=off" in given


@pytest.mark.usefixtures("profilers")
def test_the_only_kernel_does_the_declared_work(cli: Cli, tmp_path: Path) -> None:
    found = _profile(scaled(tmp_path, "work: {bytes: 8 * n}\n"), candidate(tmp_path, "r", RIGHT))
    assert len(found.kernels) == 1
    assert cli("query", "SELECT bytes, flop, dtype FROM launch_work", "--format=csv",
               "--store", tmp_path / "store") == 0  # fmt: skip
    assert cli.out.split() == ["bytes,flop,dtype", "40.0,,fp32"]


@pytest.mark.usefixtures("profilers")
def test_a_candidate_is_confined_while_it_is_profiled(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "no business of a candidate")
    files = {"REFERENCE": str(tmp_path / "scaled_reference.py"), "CONFINED": "True"}
    source = LOOKS
    for name, value in files.items():
        source = source.replace(name, value)
    found = _profile(workload, candidate(tmp_path, "looks", source))
    if found.isolation.get("files"):
        assert found.why is None
        source = source.replace("except OSError", "except ValueError")
        assert "Permission denied" in (
            _profile(workload, candidate(tmp_path, "reads", source)).why or ""
        )


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("permission", "ERR_NVGPUCTRPERM"),
        ("nothing", "no kernel was launched"),
        ("", "ncu was not found"),
    ],
)
def test_why_there_is_no_profile(
    fault: str, sentence: str, workload: Path, tmp_path: Path, profilers: Path
) -> None:
    if fault:
        (profilers / "FAULT").write_text(fault)
    else:
        (profilers / "ncu").unlink()
    found = _profile(workload, candidate(tmp_path, "right", RIGHT))
    assert found.report is None
    assert found.why is not None and sentence in found.why
    assert "\n" not in found.why


def test_the_best_is_the_fastest_that_is_correct() -> None:
    def one(status: Status, *speedups: float) -> Judgement:
        scores = tuple(
            Score("c", "b", (1.0,), (1.0,), s, None, None, "faster", 4, "") for s in speedups
        )
        return Judgement("w", "c", status, "", "", "cpu", 1, (Evidence("x", "y"),), scores=scores)

    right, wrong = Status.CORRECT, Status.WRONG
    assert best([one(wrong)]) is None
    assert best([one(right), one(right)]) == 0
    assert best([one(wrong), one(right, 1.2, 1.2), one(right, 4.0, 0.5)]) == 2
