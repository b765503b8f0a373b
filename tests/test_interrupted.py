"""Ends at an inconvenient moment: during imports, in the last write, on a full disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from kills import heed_signals

from perfpipe import inuse, runrecord
from perfpipe.claims import is_abandoned
from perfpipe.owner import own_mark
from perfpipe.pipelines.runs import Run
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store
from perfpipe.sweeping import sweep

RUN = ("run", "--collector", "timing", "--set", "launches=1", "--", "true")


@pytest.fixture
def ended() -> str:
    """The mark of a process of this machine that has ended."""
    words = [sys.executable, "-c", "from perfpipe.owner import own_mark; print(own_mark())"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _die(store: Store, ended: str) -> None:
    """Let the claims of this process be those of one that ended."""
    for claim in store.runs_dir.glob("*/claim@*"):
        claim.rename(claim.with_name(claim.name.replace(own_mark(), ended)))


def test_a_run_that_is_ended_in_its_last_writes_is_interrupted(
    store: Store, ended: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, twice: in the write of its end, and in that of its interruption."""
    write = Run.write

    def interrupted(run: Run) -> None:
        if run.record.status != "running":
            raise KeyboardInterrupt
        write(run)

    monkeypatch.setattr(Run, "write", interrupted)
    assert cli(*RUN) == 130
    monkeypatch.undo()
    monkeypatch.setenv("PERFPIPE_STORE", str(store.root))
    (record,) = store.runs()
    assert record.status == "running", "this process may go on"
    _die(store, ended)
    assert cli("query", "SELECT status FROM runs", "--all", "--format", "csv") == 0
    assert cli.out == "status\ninterrupted\n"
    sweep(store)
    path = store.runs_dir / record.run_id / "run.json"
    assert json.loads(path.read_text())["status"] == "interrupted"
    assert not list(store.runs_dir.glob("*/claim@*"))


def test_a_claim_stays_until_the_end_is_recorded(
    store: Store, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_run(RunRecord("dead", "w", "all", "t", status="running"))
    (store.runs_dir / "dead" / f"claim{ended}").touch()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runrecord, "write_json", full)
    sweep(store)
    assert is_abandoned(store.runs_dir / "dead")
    assert store.run("dead").status == "interrupted", "also where nothing can be written"
    monkeypatch.undo()
    sweep(store)
    assert not is_abandoned(store.runs_dir / "dead")
    assert store.run("dead").status == "interrupted"


def _running(store: Store, *claims: str) -> None:
    store.write_run(RunRecord("r", "w", "all", "t", status="running"))
    for claim in claims:
        (store.runs_dir / "r" / f"claim{claim}").touch()


def _recorded(store: Store) -> str:
    return str(json.loads((store.runs_dir / "r" / "run.json").read_text())["status"])


def _elsewhere(mark: str) -> str:
    _, host, rest = mark.split("@", 2)
    return f"@other-than-{host}@{rest}"


@pytest.mark.parametrize("place", ["here", "elsewhere", "nowhere"])
def test_a_run_whose_process_may_be_running_is_not_interrupted(
    place: str, store: Store, ended: str, cli: Cli
) -> None:
    """Its process runs here, or on a host that shares the store, or the store is a copy."""
    other = {"here": [own_mark()], "elsewhere": [_elsewhere(ended)], "nowhere": []}[place]
    _running(store, *other)
    sweep(store)
    assert (store.run("r").status, _recorded(store)) == ("running", "running")
    assert cli("ls", "--json", "--store", store.root) == 0
    assert json.loads(cli.out)["runs"][0]["status"] == "running"
    assert len([*store.runs_dir.glob("*/claim@*")]) == len(other)


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_second_process_that_was_killed_does_not_end_the_run_of_the_first(
    place: str, store: Store, ended: str
) -> None:
    first = own_mark() if place == "here" else _elsewhere(ended)
    _running(store, first, ended)
    assert store.run("r").status == "running"
    sweep(store)
    assert (store.run("r").status, _recorded(store)) == ("running", "running")
    assert [path.name for path in store.runs_dir.glob("*/claim@*")] == [f"claim{first}"]


def test_a_run_that_is_resumed_meanwhile_is_not_interrupted(
    store: Store, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inuse, "_PATIENCE_S", 0)
    _running(store, ended)
    with inuse.changing_claims(store.runs_dir / "r"):
        sweep(store)
    assert _recorded(store) == "running"
    sweep(store)
    assert _recorded(store) == "interrupted"


def test_an_end_that_is_recorded_meanwhile_is_read(
    store: Store, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _running(store, ended)

    def ends(directory: Path) -> bool:
        store.write_run(RunRecord("r", "w", "all", "t", status="done"))
        return is_abandoned(directory)

    monkeypatch.setattr("perfpipe.store.is_abandoned", ends)
    assert store.run("r").status == "done"


def test_a_full_disk_leaves_no_empty_run(
    store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runrecord, "write_json", full)
    assert cli(*RUN) == 2
    assert "No space left on device" in cli.err
    assert list(store.runs_dir.iterdir()) == []


#: Interrupts the process where a module is imported.
INTERRUPTING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == os.environ["AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""

SCRIPT = "import sys; sys.argv[0] = '/x/perfpipe'; from perfpipe.__main__ import main; main()"


@pytest.mark.parametrize("words", [("-m", "perfpipe"), ("-c", SCRIPT)], ids=["module", "script"])
@pytest.mark.parametrize(
    "at",
    [
        "perfpipe.functions",
        "perfpipe.pipelines",
        "perfpipe.pipelines.signals",
        "click",
        "perfpipe.pipelines.cli",
        "perfpipe.pipelines.commands.query",
    ],
)
def test_ctrl_c_while_modules_are_imported(words: Sequence[str], at: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    store = Store(tmp_path / "store")
    store.write_run(RunRecord("r", "w", "all", "t", status="done"))
    done = subprocess.run(
        [sys.executable, *words, "query", "SELECT 1", "--store", str(store.root)],
        env={**os.environ, "AT": at, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=heed_signals,
    )
    # click begins a new line, behind the ^C of a terminal.
    assert (done.returncode, done.stderr.lstrip("\n")) == (130, "interrupted\n")


def test_other_programs_keep_their_interrupts() -> None:
    program = "import perfpipe, signal; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, preexec_fn=heed_signals
    )
    assert done.stdout == "default_int_handler\n"


TIMES = ("times_ms", "seconds", "launches_ms", "confirm_ms")


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_configuration_with_times_that_are_no_numbers_failed(
    name: str, value: float, store: Store, cli: Cli
) -> None:
    """Also in records of earlier versions, which stored what a program printed."""
    good, bad = (TaskResult(at, f"n={at}", {"n": at}, times_ms=(1.0, 2.0), seconds=(0.1,))
                 for at in range(2))  # fmt: skip
    for name_of_run in "or":
        run = RunRecord(name_of_run, "w", "timing", "2026-01-01T00:00:00Z", "done",
                        tasks=(good, bad))  # fmt: skip
        store.write_run(run)
    path = store.runs_dir / "r" / "run.json"
    record = json.loads(path.read_text())
    record["tasks"][1][name] = [[1.0, value]] if name in TIMES[2:] else [1.0, value]
    path.write_text(json.dumps(record))
    said = f"{name} has a value that is not a finite number"
    kept, failed = store.run("r").tasks
    assert kept == good
    assert getattr(failed, name) == ()
    assert (failed.status, failed.failure, failed.error) == ("failed", "invalid_time", said)
    assert RunRecord.read(path) == store.run("r")
    for words in (("report", "r"), ("report", "r", "--html"), ("compare", "o", "r"),
                  ("history", "w"), ("ls",), ("store", "verify")):  # fmt: skip
        assert cli(*words) == 0, (words, cli.err)
        assert "nan" not in cli.out.lower() and "inf " not in cli.out.lower(), words
    assert cli("check", "r", "--baseline", "o") == 1
    assert f"n=1: {said}" in cli.err
    sql = "SELECT label, status, failure, error, median_ms, times_ms FROM run_tasks ORDER BY 1"
    assert cli("query", sql, "--all", "--format", "json") == 0
    assert said in cli.out and "NaN" not in cli.out


def test_why_a_configuration_failed_stays_its_reason(store: Store) -> None:
    task = TaskResult(0, "-", {}, times_ms=(float("nan"),), status="failed",
                      failure="crash", error="exit code 1")  # fmt: skip
    assert (task.times_ms, task.failure, task.error) == ((), "crash", "exit code 1")


def test_a_recording_without_numbers_is_refused(cli: Cli, tmp_path: Path) -> None:
    shipped = Path(__file__).parent.parent / "workloads"
    text = (shipped / "recordings/vector_add-h200/recording.yaml").read_text()
    at = text.index("times_ms: [") + len("times_ms: [")
    own = tmp_path / "recordings/vector_add-h200/recording.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f"{text[:at]}1.0e+999, {text[at:]}")
    shutil.copy(shipped / "vector_add.yaml", tmp_path)
    assert cli("run", tmp_path / "vector_add.yaml", "--collector", "replay") == 2
    assert "recording.yaml:10: Input should be a finite number" in cli.err
