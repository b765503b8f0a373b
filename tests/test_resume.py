"""Interrupted runs go on where they ended: stand-in profilers, real processes, real signals."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli
from kills import PERFPIPE

from perfpipe.store import Store

PROGRAM = """
import json, os, pathlib, sys, time
kind = sys.argv[1]
with open("launched", "a") as file:
    file.write(f"{kind} {os.environ['PERFPIPE_COLLECTOR']}\\n")
if pathlib.Path("slow").exists() and kind == pathlib.Path("slow").read_text():
    time.sleep(60)
if pathlib.Path("broken").exists() and kind == pathlib.Path("broken").read_text():
    sys.exit("broken")
print(json.dumps({"perfpipe": "time", "ms": [1.0]}))
"""


@pytest.fixture
def sweep(tmp_path: Path, profilers: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = tmp_path / "w.yaml"
    path.write_text(textwrap.dedent("""
        version: 1
        name: w
        command: ["{python}", program.py, "{kind}"]
        matrix: {kind: [a, b, c]}
        collect: {nsys: {}, ncu: {}}
        """))  # fmt: skip
    return path


def launched(sweep: Path) -> list[str]:
    log = sweep.parent / "launched"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return [line.split()[0] for line in lines if line.endswith("plain")]


@contextlib.contextmanager
def _started(sweep: Path, collector: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run and give its process as soon as the second task sleeps."""
    (sweep.parent / "slow").write_text("b")
    words = [*PERFPIPE, "run", str(sweep), "--collector", collector, "--store", "store"]
    # A test run in the background ignores interrupts, and would hand that down.
    process = subprocess.Popen(
        words,
        cwd=sweep.parent,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until = time.monotonic() + 240
    while "b plain" not in _text(sweep.parent / "launched"):
        assert time.monotonic() < until and process.poll() is None, process.stderr
        time.sleep(0.05)
    try:
        yield process
    except BaseException:
        process.kill()
        raise
    finally:
        process.communicate(timeout=240)
        (sweep.parent / "slow").unlink()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("number", "code", "recorded"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGKILL, -9, "running")],
)
def test_an_interrupted_sweep_runs_only_what_is_missing(
    number: signal.Signals, code: int, recorded: str, sweep: Path, cli: Cli
) -> None:
    store = Store(sweep.parent / "store")
    with _started(sweep, "all") as process:
        process.send_signal(number)
    assert process.returncode == code
    assert launched(sweep) == ["a", "b"]
    (before,) = store.runs()
    path = store.runs_dir / before.run_id / "run.json"
    assert json.loads(path.read_text())["status"] == recorded, "who was killed recorded nothing"
    assert before.status == "interrupted"
    assert cli("ls", "--json", "--store", store.root) == 0
    (listed,) = json.loads(cli.out)["runs"]
    assert listed["status"] == "interrupted"
    (kept,) = [task for task in before.tasks if task.done]
    assert cli("run", sweep, "--collector", "all", "--resume", "--store", store.root) == 0, cli.err
    assert f"resuming {before.run_id}" in cli.err
    assert launched(sweep) == ["b", "c"]
    (after,) = store.runs()
    assert after.status == "done"
    assert not list(store.root.glob("runs/*/claim@*"))
    assert [task.params["kind"] for task in after.tasks] == ["a", "b", "c"]
    assert after.tasks[0] == kept
    assert len(after.reports) == 2
    assert cli("run", sweep, "--collector", "all", "--resume", "--store", store.root) == 0
    assert launched(sweep) == []


def test_a_run_is_resumed_by_one_process_at_a_time(sweep: Path, cli: Cli) -> None:
    with _started(sweep, "timing") as process:
        assert cli("run", sweep, "--collector", "timing", "--resume") == 2
        assert f"process {process.pid} on " in cli.err
        *_, before, sentence = cli.err.splitlines()
        assert before.startswith("resuming ") and sentence.startswith("perfpipe: ")
        assert launched(sweep) == ["a", "b"], "nothing is launched a second time"
        (claim,) = (sweep.parent / "store").glob("runs/*/claim@*")
        process.kill()
    assert claim.exists()
    elsewhere = claim.rename(claim.with_name("claim@another-machine@1@7@1"))
    assert cli("run", sweep, "--collector", "timing", "--resume") == 2
    assert f"in use by process 7 on another-machine; if it has ended, remove {elsewhere}" in cli.err


def test_what_has_changed_is_launched_again(sweep: Path, cli: Cli) -> None:
    assert cli("run", sweep, "--collector", "timing") == 0
    launched(sweep)
    (sweep.parent / "beside.py").write_text("")
    assert cli("run", sweep, "--collector", "timing", "--resume") == 0
    assert launched(sweep) == ["a", "b", "c"], "a module beside the program has changed"
    sweep.write_text(sweep.read_text() + "env: {A: b}\n")
    assert cli("run", sweep, "--collector", "timing", "--resume", "--filter", "kind=a") == 0
    assert launched(sweep) == ["a"]
    sweep.write_text(sweep.read_text().replace("[a, b, c]", "[a, d]"))
    assert cli("run", sweep, "--collector", "timing", "--resume") == 0
    assert launched(sweep) == ["d"], "only the new value"


def test_failed_tasks_stay_until_they_are_asked_for(sweep: Path, cli: Cli) -> None:
    (sweep.parent / "broken").write_text("b")
    assert cli("run", sweep, "--collector", "timing") == 1
    assert launched(sweep) == ["a", "b", "c"]
    (sweep.parent / "broken").unlink()
    assert cli("run", sweep, "--collector", "timing", "--resume") == 1
    assert launched(sweep) == []
    assert cli("run", sweep, "--collector", "timing", "--rerun-failed") == 0
    assert launched(sweep) == ["b"]


def test_a_profiler_that_was_not_run_is_missing(sweep: Path, cli: Cli, tmp_path: Path) -> None:
    assert cli("run", sweep, "--collector", "timing") == 0
    launched(sweep)
    assert cli("run", sweep, "--collector", "ncu", "--resume") == 0
    assert launched(sweep) == ["a", "b", "c"]
    (run,) = Store(tmp_path / "store").runs()
    assert all(len(task.reports) == 1 for task in run.tasks)
    assert cli("run", sweep, "--collector", "timing", "--resume") == 0
    assert launched(sweep) == [], "more than is asked for does no harm"


def test_half_a_result_does_not_count(sweep: Path, cli: Cli, tmp_path: Path) -> None:
    assert cli("run", sweep, "--collector", "timing") == 0
    launched(sweep)
    results = sorted((tmp_path / "store" / "runs").glob("*/tasks/*/result.json"))
    assert len(results) == 3
    assert json.loads(results[0].read_text())["schema_version"] == 1
    results[0].write_text(results[0].read_text()[:40])
    results[1].write_text('{"schema_version": 99}')
    assert cli("run", sweep, "--collector", "timing", "--resume") == 0
    assert launched(sweep) == ["a", "b"]


def test_the_first_run_has_nothing_to_resume(sweep: Path, cli: Cli) -> None:
    assert cli("run", sweep, "--collector", "timing", "--resume") == 0
    assert "no run of w to resume" in cli.err
    assert launched(sweep) == ["a", "b", "c"]


def test_filters_choose_configurations(sweep: Path, cli: Cli) -> None:
    assert cli("run", sweep, "--filter", "kind=[ab]", "--dry-run") == 0
    assert cli.out.count("program.py") == 2
    assert cli("run", sweep, "--filter", "kind=c,a", "--dry-run", "--json") == 0
    assert [task["label"] for task in json.loads(cli.out)["tasks"]] == ["kind=a", "kind=c"]
    assert cli("run", sweep, "--filter", "kid=a", "--dry-run") == 2
    assert "no such parameter; did you mean 'kind'?" in cli.err
    assert cli("run", sweep, "--filter", "kind=z", "--dry-run") == 2
    assert "no configurations left" in cli.err
    assert cli("run", sweep, "--filter", "kind", "--dry-run") == 2


def test_the_record_is_one_json_document(sweep: Path, cli: Cli) -> None:
    assert cli("run", sweep, "--collector", "timing", "--json") == 0
    assert [t["status"] for t in json.loads(cli.out)["run"]["tasks"]] == ["done"] * 3
