"""perfpipe run --detach: a program that outlives perfpipe, prepared for perfpipe attach."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli
from running_programs import LOOP, PATIENCE_S, goes_on, until

from perfpipe.pipelines import tools
from perfpipe.pipelines.attaching.detaching import detached_of, running
from perfpipe.pipelines.attaching.target import target_of
from perfpipe.store import Store
from perfpipe.verify import verify


@pytest.fixture
def train(tmp_path: Path) -> list[str]:
    """The words of a Python program that counts its steps until it is ended."""
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    return [sys.executable, str(path), str(tmp_path / "count")]


@pytest.fixture(autouse=True)
def _end_all(store: Store) -> Iterator[None]:
    """End what a test leaves running, and wait for the keepers."""
    yield
    every = [detached_of(store, run_id) for run_id in store.run_ids()]
    for own in filter(None, every):
        if target := own.target:
            os.kill(target.pid, signal.SIGKILL)
        keeper = target_of(own.keeper)
        if keeper and keeper.started == own.keeper_started:
            until(lambda keeper=keeper: not keeper.alive)  # type: ignore[misc]


def _started(cli: Cli, *words: str, collector: str = "timing") -> dict[str, Any]:
    options = ["--detach", "--json", "--collector", collector]
    assert cli("run", *options, "--", *words, report=True) == 0, cli.err
    said: dict[str, Any] = json.loads(cli.out)
    return said


def _ended(store: Store, run_id: str) -> bool:
    """Return whether the keeper has recorded the end of a program."""
    return until((store.runs_dir / run_id / "end.json").exists)


def test_a_program_outlives_perfpipe_and_its_end_is_recorded(
    cli: Cli, train: list[str], tmp_path: Path, store: Store
) -> None:
    said = _started(cli, *train)
    run_id, pid = said["run"]["run_id"], said["pid"]
    assert goes_on(tmp_path)
    assert cli("ls") == 0
    assert "running" in cli.out and f"runs as process {pid}" in cli.out
    assert "perfpipe attach @1" in cli.out
    # It is another program's turn to be killed by this signal.
    os.kill(pid, signal.SIGTERM)
    assert _ended(store, run_id)
    assert cli("ls") == 0
    assert "failed" in cli.out and "runs as process" not in cli.out
    (run,) = store.runs()
    assert run.tasks[0].error == f"{sys.executable} was killed by SIGTERM"
    assert run.tasks[0].ran is not None and run.tasks[0].ran.exit_code == -signal.SIGTERM
    assert (store.runs_dir / run_id / "tasks/000-detach/plain.out").read_text() == "runs\n"
    assert not list(running(store))
    assert [fault for _, fault in verify(store) if fault] == []
    assert cli("attach", run_id) == 2
    assert "has ended" in cli.err


def test_a_program_that_succeeds_or_fails(cli: Cli, tmp_path: Path, store: Store) -> None:
    for code, status in ((0, "done"), (7, "failed")):
        words = [
            sys.executable,
            "-c",
            f"import os; print(os.environ['A']); raise SystemExit({code})",
        ]
        options = ["--detach", "--collector=timing", "--env", "A=b", "--cwd", str(tmp_path)]
        assert cli("run", *options, "--", *words, report=True) == 0, cli.err
        run_id = cli.out.split()[0]
        assert _ended(store, run_id)
        assert cli("ls") == 0
        run = store.run(run_id)
        assert run.status == status
        assert run.tasks[0].ran is not None and run.tasks[0].ran.exit_code == code
        assert (store.runs_dir / run_id / "tasks/000-detach/plain.out").read_text() == "b\n"
        assert cli("report", run_id, "--md", "-") == 0


def test_perfpipe_may_be_killed_and_the_program_stays(
    train: list[str], tmp_path: Path, store: Store
) -> None:
    """In a terminal that closes, everything of its session gets SIGHUP."""
    words = [sys.executable, "-m", "perfpipe", "run", "--detach", "--collector=timing", "--json"]
    done = subprocess.run(
        [*words, "--", *train],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PERFPIPE_STORE": str(store.root)},
        capture_output=True, text=True, timeout=10 * PATIENCE_S, start_new_session=True, check=True,
    )  # fmt: skip
    pid = json.loads(done.stdout)["pid"]
    target = target_of(pid)
    assert target is not None and os.getsid(pid) == pid
    assert goes_on(tmp_path)


def test_a_killed_keeper_leaves_the_program_and_its_end_is_unknown(
    cli: Cli, train: list[str], tmp_path: Path, store: Store
) -> None:
    run_id = _started(cli, *train)["run"]["run_id"]
    own = detached_of(store, run_id)
    assert own is not None
    os.kill(own.keeper, signal.SIGKILL)
    assert goes_on(tmp_path)
    assert cli("ls") == 0 and "running" in cli.out
    assert (target := own.target) is not None
    os.kill(own.pid, signal.SIGKILL)
    assert until(lambda: not target.alive)
    assert cli("ls") == 0
    (run,) = store.runs()
    assert run.status == "failed" and "is unknown" in (run.tasks[0].error or "")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--detach", "--", "./nothing"], 5, "no such program"),
        (["--detach", "--cwd", "nowhere", "--", "true"], 2, "no such directory"),
        (["--detach", "workload.yaml"], 2, "--detach needs a program after --"),
        (["--detach", "--duration", "3", "--", "true"], 2, "--detach and --duration exclude"),
        (["--detach", "--collector", "ncu", "--", "true"], 2, "--detach takes auto, nsys"),
    ],
)
def test_what_cannot_be_detached(
    words: list[str], code: int, sentence: str, cli: Cli, store: Store
) -> None:
    assert cli("run", *words, report=True) == code
    assert sentence in cli.err
    assert not store.runs()


def test_nsys_is_missing(cli: Cli, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(tools, "find_tool", lambda name: None)
    assert cli("run", "--detach", "--collector=nsys", "--", "true", report=True) == 5
    assert not store.runs()


def test_the_nsys_session_of_a_detached_program(
    cli: Cli, train: list[str], tmp_path: Path, store: Store, profilers: Path
) -> None:
    said = _started(cli, *train, collector="nsys")
    session, run_id = said["session"], said["run"]["run_id"]
    assert (profilers / "sessions" / session).is_dir()
    assert goes_on(tmp_path)
    # Its process is that of the program, not that of nsys.
    assert (target := target_of(said["pid"])) and target.command == tuple(train)
    for number in (1, 2):
        assert cli("attach", run_id, "--duration=1", "--json") == 0, cli.err
        found = json.loads(cli.out)
        (way,) = [way for way in found["ways"] if way["name"] == "nsys session"]
        assert way["used"], way
        run = store.run(found["run"]["run_id"])
        kinds = sorted(store.manifest(report).kind for report in run.reports)
        assert kinds == ["attached", "nsys"]
        log = (profilers / "nsys.log").read_text()
        assert log.count("stop --session") == number and "cancel" not in log
        assert "--sample=none" in log and "shutdown" not in log
    assert not (profilers / "sessions" / session / "records").exists()
    # By its process, the session is found as well; report and query work on both.
    assert cli("attach", str(said["pid"]), "--duration=1", "--no-timeline") == 0, cli.err
    assert (profilers / "nsys.log").read_text().count("start --session") == 2
    os.kill(said["pid"], signal.SIGTERM)
    assert _ended(store, run_id)
    assert cli("ls") == 0
    assert store.run(run_id).status == "failed"
    # The session ends with its program, and kills nothing.
    log = (profilers / "nsys.log").read_text()
    assert f"shutdown --session={session} --kill=none" in log
    assert not (profilers / "sessions" / session).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_recording_stops_with_an_interrupted_attach(
    number: int, cli: Cli, train: list[str], tmp_path: Path, store: Store, profilers: Path
) -> None:
    said = _started(cli, *train, collector="nsys")
    records = profilers / "sessions" / said["session"] / "records"
    attach = subprocess.Popen(
        [sys.executable, "-m", "perfpipe", "attach", str(said["pid"]), "--duration=600"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PERFPIPE_STORE": str(store.root)},
        stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert until(records.exists)
    attach.send_signal(number)
    attach.communicate(timeout=4 * PATIENCE_S)
    assert until(lambda: not records.exists())
    assert goes_on(tmp_path)
    log = (profilers / "nsys.log").read_text()
    assert "cancel" in log and "shutdown" not in log


def test_a_session_that_fails_gives_way_to_the_samplers(
    cli: Cli, train: list[str], tmp_path: Path, profilers: Path
) -> None:
    said = _started(cli, *train, collector="nsys")
    (profilers / "FAULT").write_text("session-start")
    assert cli("attach", str(said["pid"]), "--duration=1") == 0, cli.err
    assert "nsys start exited with code 1" in " ".join(cli.out.split())
    (profilers / "FAULT").write_text("session-stop")
    assert cli("attach", str(said["pid"]), "--duration=1") == 0, cli.err
    assert "nsys wrote no timeline" in " ".join(cli.out.split())
    assert goes_on(tmp_path)
