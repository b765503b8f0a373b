"""perfpipe search: agents, records, duplicates, confirmation, and going on after a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import ROOT, Cli
from searches import agent, problem

from perfpipe import searchrecord
from perfpipe.pipelines.evaluate.device import pytorch
from perfpipe.pipelines.evaluate.worker import ForkServer
from perfpipe.pipelines.searching.page import difference
from perfpipe.searchrecord import Attempt, Search
from perfpipe.store import Store
from perfpipe.sweeping import sweep

pytestmark = pytest.mark.usefixtures("needs_torch")

#: How long a step of a search may take on a machine that is busy, s.
_PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def one_fork_server() -> Iterator[None]:
    """All judges fork candidates from one process, which loads PyTorch for long."""
    with ForkServer.opened(pytorch(), "cpu") as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServer, "opened", lambda *_: nullcontext(opened))
        yield


def _only(store: Path) -> tuple[Search, list[Attempt], Path]:
    (name,) = searchrecord.identifiers(store)
    folder = searchrecord.directory(store) / name
    return searchrecord.read(folder), searchrecord.read_attempts(folder), folder


@pytest.mark.usefixtures("one_fork_server")
def test_what_agents_leave_is_judged_and_recorded(cli: Cli, tmp_path: Path) -> None:
    workload = problem(tmp_path / "p")
    words: list[str | Path] = [
        "search",
        workload,
        "--device",
        "cpu",
        "--generations",
        "1",
        "--variants",
        "4",
    ]
    assert cli(*words, "--agent", agent(tmp_path / "p", "useless"), "--parallel", "2") == 0, cli.err
    assert "No proven gain: none of 4 candidates is correct and timed." in cli.out
    search, attempts, folder = _only(tmp_path / "store")
    assert search.state == "done" and search.baseline == "base"
    wrong, same, failed, again = attempts
    if again.status == "wrong result":  # the agents run at the same time
        wrong, again = again, wrong
    assert (wrong.status, same.status, failed.status) == (
        "wrong result", "unchanged", "agent failed",
    )  # fmt: skip
    assert (again.status, again.same_as) == ("duplicate", wrong.name)
    assert failed.agent is not None and failed.agent.exit_code == 1 and "no idea" in failed.reason
    assert wrong.evidence and wrong.parents == ("baseline",) and wrong.uses == ()
    log = (folder / "candidates" / "g1v1" / "agent.log").read_text()
    for name in ("PROBLEM.md", "FEEDBACK.md", "HISTORY.md", "PROMPT.md", "feedback.json"):
        assert name in log
    assert "abcdef123456" not in log
    assert [path.name for path in (folder / "candidates/g1v1/files").iterdir()] == ["kernel.py"]
    assert not (folder / "work").exists()
    assert cli("ls") == 0 and search.search_id in cli.out and "No proven gain" in cli.out
    assert cli("report", "rows", "--md", "-") == 0
    assert "it equals" in cli.out and "no idea" in cli.out
    assert cli("store", "verify") == 0
    # A hand-made candidate is another generation of the same search.
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "kernel.py").write_text("def run(x, y):\n    y.fill_(1)\n")
    assert cli("search", "--resume", "rows", "--candidate", mine) == 0, cli.err
    _, attempts, folder = _only(tmp_path / "store")
    assert [(own.name, own.proposer, own.status) for own in attempts[4:]] == [
        ("g2v1", "given", "wrong result")
    ]
    workload.write_text(workload.read_text().replace("n: 512", "n: 513"))
    assert cli("search", "--resume", "rows", "--candidate", mine) == 2
    assert "the problem changed" in cli.err
    assert cli("store", "rm", search.search_id) == 0 and not folder.exists()


@pytest.mark.usefixtures("one_fork_server")
def test_by_hand_and_at_the_end_of_the_budget(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = problem(tmp_path / "p")
    zero = "def run(x, y):\n    y.zero_()\n"
    edits = iter(f"# {n}\n{zero}N = {n}\n" for n in range(9))

    class Keyboard:
        def readline(self) -> str:
            (folder,) = (tmp_path / "store" / "searches").glob("*/work")
            for name in sorted(path.name for path in folder.iterdir()):
                (folder / name / "kernel.py").write_text(next(edits))
            return "\n"

    monkeypatch.setattr(sys, "stdin", Keyboard())
    words: list[str | Path] = [
        "search",
        workload,
        "--device",
        "cpu",
        "--by-hand",
        "--variants",
        "1",
    ]
    assert cli(*words, "--generations", "3", "--budget", "0.1s", "--json") == 0, cli.err
    told = json.loads(cli.out)
    assert not told["proven"] and len(told["candidates"]) < 3
    search, attempts, _ = _only(tmp_path / "store")
    assert "the budget was used up" in search.stopped
    assert all(own.proposer == "hand" for own in attempts)
    assert cli("search", "--resume", search.search_id, "--budget", "1h") == 0, cli.err
    _, attempts, _ = _only(tmp_path / "store")
    assert [own.name for own in attempts] == ["g1v1", "g2v1", "g3v1"]


@pytest.mark.usefixtures("one_fork_server")
def test_the_shipped_tuner_is_an_agent(cli: Cli, tmp_path: Path) -> None:
    """On the CPU, Triton interprets its kernels."""
    shipped = shutil.copytree(ROOT / "workloads" / "searches", tmp_path / "p")
    workload, tuner = shipped / "biased_softmax.yaml", shipped / "tuner.py"
    small = workload.read_text().replace("m: 8192, n: 2048", "m: 2, n: 64")
    workload.write_text(small.replace("device_mb:", "host_mb: 1, device_mb:"))
    words: list[str | Path] = ["search", workload, "--device", "cpu", "--generations", "1"]
    code = cli(*words, "--variants", "2", "--agent", f"{sys.executable} {tuner}")
    assert code == 0, cli.err
    _, attempts, _ = _only(tmp_path / "store")
    assert [own.status for own in attempts] == ["correct", "correct"], cli.err
    assert [own.params["fused"] for own in attempts] == [0, 1]
    assert "triton" in attempts[1].uses


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--agent", "no-such-program-anywhere"), "no such program"),
        (("--agent", "unbalanced '"), "No closing quotation"),
        ((), "nobody proposes candidates"),
        (("--by-hand", "--baseline", "bas"), "did you mean"),
        (("--candidate", "nowhere"), "no such candidate directory"),
    ],
)
def test_bad_input_writes_nothing(
    words: tuple[str, ...], sentence: str, cli: Cli, tmp_path: Path
) -> None:
    workload = problem(tmp_path / "p")
    assert cli("search", workload, "--device", "cpu", *words) in (2, 5)
    assert sentence in cli.err
    assert not (tmp_path / "store" / "searches").exists()


def _start(folder: Path, *words: str | Path) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "AGENT_SLEEPS": "1.5"}
    return subprocess.Popen(
        [sys.executable, "-m", "perfpipe", "search", *map(str, words), "--store", folder / "store"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def _kill_when(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    """Kill a search when something is on disk."""
    until = time.monotonic() + _PATIENCE_S
    while not ready():
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert time.monotonic() < until
        time.sleep(0.02)
    process.kill()
    process.communicate()


def test_a_search_of_equal_variants_goes_on_after_kills_and_proves_nothing(tmp_path: Path) -> None:
    workload = problem(tmp_path / "p")
    searches = tmp_path / "store" / "searches"
    words = ["--generations", "2", "--variants", "1", "--device", "cpu"]
    words += ["--agent", agent(tmp_path / "p", "equal")]
    # While the agent writes the first candidate.
    _kill_when(_start(tmp_path, workload, *words), lambda: any(searches.glob("*/work/g1v1/best"))
               or any(searches.glob("*/work/g1v1/kernel.py")))  # fmt: skip
    (name,) = searchrecord.identifiers(tmp_path / "store")
    # While the first one is judged.
    proposed = searches / name / "candidates" / "g1v1" / "candidate.json"
    _kill_when(_start(tmp_path, "--resume", name), proposed.exists)
    assert json.loads(proposed.read_text())["status"] == "proposed"
    # While the finalists are confirmed, once a round is done.
    _kill_when(
        _start(tmp_path, "--resume", name),
        lambda: bool(searchrecord.read(searches / name).confirmations),
    )
    before = {own.name: own for own in searchrecord.read_attempts(searches / name)}
    rounds = searchrecord.read(searches / name).confirmations[-1].rounds
    assert rounds and [*before] == ["g1v1", "g2v1"]
    ended = _start(tmp_path, "--resume", name)
    out, _ = ended.communicate(timeout=_PATIENCE_S)
    assert ended.returncode == 0 and "No proven gain: " in out, out
    search, attempts, _ = _only(tmp_path / "store")
    assert {own.name: own for own in attempts} == before, "nothing is judged twice"
    (confirmation,) = search.confirmations
    assert confirmation.rounds[: len(rounds)] == rounds
    assert all(len(own) == 12 for own in confirmation.gains().values())
    assert all(own.correct for own in attempts)
    assert any(times.against == searchrecord.INCUMBENT for times in attempts[1].times)
    sweep(Store(tmp_path / "store"))
    assert not list((tmp_path / "store").rglob(".tmp-*"))
    # Nothing is left to do.
    again = _start(tmp_path, "--resume", name)
    assert again.communicate(timeout=_PATIENCE_S)[0].startswith("No proven gain: ")
    assert searchrecord.read(searches / name).confirmations == search.confirmations


def test_an_interrupted_search_says_how_to_go_on(tmp_path: Path) -> None:
    workload = problem(tmp_path / "p")
    searches = tmp_path / "store" / "searches"
    process = _start(
        tmp_path, workload, "--device", "cpu", "--agent", agent(tmp_path / "p", "equal")
    )
    until = time.monotonic() + _PATIENCE_S
    while not any(searches.glob("*/work/g1v1/kernel.py")) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=_PATIENCE_S)
    search, _, _ = _only(tmp_path / "store")
    assert search.state == "interrupted"
    assert process.returncode == 128 + signal.SIGTERM
    assert f"perfpipe search --resume {search.search_id}" in out


def test_the_difference_of_two_candidates(tmp_path: Path) -> None:
    for name, text in (("a", "x = 1\n"), ("b", "x = 2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.py").write_text(text)
    (tmp_path / "b" / "more.py").write_text("y\n")
    (tmp_path / "b" / "binary").write_bytes(b"\0\1")
    found = difference(tmp_path / "a", tmp_path / "b").splitlines()
    assert "-x = 1" in found and "+x = 2" in found and "+y" in found and "+[2 bytes]" in found
