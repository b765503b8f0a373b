"""A user of batches: the command line, programs that go wrong, and what lies in the store."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kills
import pytest
from conftest import Cli

from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

#: How long a condition may take on a busy machine, s.
PATIENCE_S = 240.0

#: Until a file `mended`, or `mended1` for n=1, is there, each kind goes wrong in its own way.
PROGRAM = """
import os, signal, sys, time
kind, n = sys.argv[1], sys.argv[2]
mended = lambda: os.path.exists("mended") or os.path.exists("mended" + n)
with open("launched", "a") as file:
    file.write(f"{kind}{n} {os.environ.get('SLURMD_NODENAME')}\\n")
if kind == "fail" and not mended():
    sys.exit("no such kind")
if kind == "killer" and not mended():
    # perfpipe started a supervisor, and that this.
    os.kill(int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1]), 9)
while kind != "ok" and not mended():
    time.sleep(0.05)
print('{"perfpipe": "time", "ms": [%s, %s]}' % (n, n))
"""

PERFPIPE = (*kills.PERFPIPE, "batch")


def write_workload(folder: Path, name: str = "w", **more: Any) -> Path:
    """Write a workload of the program above; `more` replaces parts of the file."""
    (folder / "program.py").write_text(PROGRAM)
    content: dict[str, Any] = {
        "version": 1,
        "name": name,
        "command": ["{python}", "-IS", "program.py", "{kind}", "{n}"],
        "matrix": {"kind": ["ok"], "n": [1]},
        "slurm": {"gpus": 0, "time": "10m", "tasks_per_job": 1},
    }
    for key, value in more.items():
        known = content.get(key)
        content[key] = {**known, **value} if isinstance(known, dict) else value
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(content))  # which is YAML
    return path


class Site:
    """The command line of a user, in the test's directory, and what lies in the store."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.cli, self.folder = cli, folder

    def batch(self, *words: str | Path, code: int = 0) -> str:
        """Run a command about batches and return its output."""
        assert self.cli("batch", *words) == code, self.cli.err
        return self.cli.out

    def submit(self, *words: str | Path, collector: str = "timing") -> str:
        """Submit without pages and return the batch's id."""
        if collector:
            words = (*words, "--collector", collector)
        return self.batch("submit", *words, "--no-pages").strip()

    def status(self, batch: str) -> dict[str, Any]:
        """Return the status as data."""
        found: dict[str, Any] = json.loads(self.batch("status", batch, "--json"))
        return found

    def states(self, batch: str) -> list[str]:
        """Return the state of each task."""
        return [task["state"] for task in self.status(batch)["tasks"]]

    def until(self, batch: str, wanted: Callable[[list[str]], bool]) -> list[str]:
        """Ask for the states until they are as wanted."""
        wait_for(lambda: wanted(self.states(batch)), lambda: self.batch("status", batch))
        return self.states(batch)

    def launched(self) -> Counter[str]:
        """Return how often each configuration was launched."""
        path = self.folder / "launched"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(line.split()[0] for line in lines)

    def mend(self, n: int | str = "") -> None:
        """Let every program succeed, or those with this number."""
        (self.folder / f"mended{n}").touch()

    def finish(self, batch: str, store: Path | None = None) -> list[TaskResult]:
        """Wait for success and return the results of the runs, each of which is there once."""
        where = ("--store", store) if store else ()
        self.batch("wait", batch, "--interval", "1", *where)
        directory = (store or self.folder / "store") / "batches" / batch
        known = [json.loads(line) for line in (directory / "tasks.jsonl").read_text().splitlines()]
        runs = {run.run_id: run for run in Store(directory.parent.parent).runs()}
        results = []
        for run_id in dict.fromkeys(task["run_id"] for task in known):
            assert runs[run_id].status == "done"
            results += list(runs[run_id].tasks)
        assert [task.key for task in results] == [task["key"] for task in known]
        assert all(task.done for task in results)
        return results

    def left(self) -> list[str]:
        """Return the programs that still run in the test's directory."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                here = (entry / "cwd").readlink() == self.folder
                if here and b"program.py" in words:
                    found.append(b" ".join(words).decode())
        return found


def wait_for(ready: Callable[[], bool], told: Callable[[], object] = lambda: "in vain") -> None:
    until = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < until, told()
        time.sleep(0.1)


@pytest.fixture
def site(cli: Cli, tmp_path: Path) -> Iterator[Site]:
    """A user's place; no program of it may be left behind."""
    made = Site(cli, tmp_path)
    yield made
    made.mend()
    wait_for(lambda: not made.left(), made.left)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Counter[str]]:
    """Count the calls of Slurm's commands, those of jobs too with `setup` as it is here."""
    folder = tmp_path / "wrappers"
    folder.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "sinfo", "scancel", "sacct", "srun"):
        real = shutil.which(name)
        script = f'#!/bin/sh\necho {name} >> {folder}/calls\nexec {real} "$@"\n'
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def taken() -> Counter[str]:
        path = folder / "calls"
        found = Counter(path.read_text().split()) if path.exists() else Counter[str]()
        path.unlink(missing_ok=True)
        return found

    return taken
