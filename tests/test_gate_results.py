"""The gate compares what programs print besides their times; the verdict is that of the times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.analysis.trying.results import Compared
from perfpipe.analysis.trying.series import Kind
from perfpipe.pipelines.gate.results import compared_results
from perfpipe.store import Store

PROGRAM = """
import json, os, random, time
print(json.dumps({"perfpipe": "time", "ms": [float(os.environ.get("MS", "10"))] * 3}))
rng = random.Random()
for epoch in range(4):
    loss = float(os.environ.get("LOSS", 2)) * 0.7**epoch + (rng.gauss(0, 0.2) if "SEED" in os.environ else 0)
    print(f"epoch {epoch}: loss {loss:.6f}, {time.time() % 7:.4f} s, lr 0.1, pid {os.getpid()}")
if "SHORT" not in os.environ:
    print("accuracy 91.5 %")
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = tmp_path / "w.yaml"
    path.write_text("version: 1\nname: w\ncommand: ['{python}', program.py]\n")
    return path


def test_arms_with_other_results(workload: Path, cli: Cli, tmp_path: Path) -> None:
    words = ["--b", "env.LOSS=3", "--rounds", "3", "--json", "o.json", "--md", "o.md"]
    assert cli("ab", workload, *words, "--html", "o.html") == 0, cli.err
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["verdict"] == "same", "results have no part in the verdict"
    note = (
        "the first loss 2 -> 3 (50 %); 0.1 % is allowed, and launches of arm a repeat bit for bit."
    )
    assert found["results"] == {"kind": "differ", "why": note.capitalize()}
    for name in ("o.md", "o.html"):
        assert f"Results differ: {note[:16]}" in (tmp_path / name).read_text()
    assert cli("ab", workload, "--b", "env.LOSS=3", "--rounds", "2") == 0, cli.err
    assert "Results differ: the first loss 2 -> 3 (50 %" in " ".join(cli.out.split())


@pytest.mark.parametrize(
    ("words", "kind", "why"),
    [
        (["env.OTHER=1"], "identical", "is equal bit for bit"),
        (["env.LOSS=2.0001"], "within_tolerance", "loss differs by at most 5e-05"),
        (["env.SHORT=1"], "unknown", "does not print accuracy"),
    ],
)
def test_arms_with_results_that_are_alike(
    workload: Path, cli: Cli, words: list[str], kind: str, why: str
) -> None:
    assert cli("ab", workload, "--b", *words, "--rounds", "2", "--json") == 0, cli.err
    found = json.loads(cli.out)["results"]
    assert found["kind"] == kind and why in found["why"]


def test_an_unseeded_program_is_unknown(workload: Path, cli: Cli) -> None:
    words = ["--a", "env.SEED=none", "--b", "env.SEED=none", "--b", "env.LOSS=3"]
    assert cli("ab", workload, *words, "--rounds", "3", "--json") == 0, cli.err
    found = json.loads(cli.out)["results"]
    assert found["kind"] == "unknown" and "no fixed seed" in found["why"]


def test_runs_with_other_results(
    workload: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    for loss in ("2", "2", "3", "2"):
        monkeypatch.setenv("LOSS", loss)
        assert cli("run", workload, "--collector", "timing") == 0, cli.err
        runs = [run.run_id for run in Store(tmp_path / "store").runs()]
        names += [name for name in runs if name not in names]
    base = ["--baseline", names[0], "--baseline", names[1]]
    cli("compare", names[0], names[2], "--json")
    found = json.loads(cli.out)["results"]
    assert found["kind"] == "unknown" and "one launch does not show" in found["why"]
    for name, kind in ((names[2], "differ"), (names[3], "identical")):
        assert cli("check", name, *base, "--json") == 0, cli.err
        assert json.loads(cli.out)["results"]["kind"] == kind
    assert cli("check", names[2], *base) == 0
    assert "runs of the baseline repeat bit for bit" in " ".join(cli.out.split())


def test_runs_without_output_are_unknown(workload: Path, cli: Cli, tmp_path: Path) -> None:
    for _ in range(2):
        assert cli("run", workload, "--collector", "timing") == 0, cli.err
    store = Store(tmp_path / "store")
    for path in store.runs_dir.rglob("plain*.out"):
        path.unlink()
    one, other = store.runs()
    assert compared_results(store, [one], [other], "a").kind == Kind.UNKNOWN
    assert compared_results(store, [], [other], "a").kind == Kind.UNKNOWN


def test_the_names_of_sides() -> None:
    found = Compared(Kind.DIFFER, "Loss differs; plain launches repeat.").of("arms")
    assert found.why == "Loss differs; arms repeat."
