"""Batches on a real Slurm, through the command line: what users do, and all that may go wrong.

After each fault the states are right, and a resume ends with every result exactly once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli, lacking
from slurm_cluster import SlurmCluster

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

PERFPIPE = (sys.executable, "-m", "pipelines", "batch")


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
        self.batch("wait", batch, "--interval", "1")
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
                here = Path(os.readlink(entry / "cwd")) == self.folder
                if here and b"program.py" in words:
                    found.append(b" ".join(words).decode())
        return found


def wait_for(ready: Callable[[], bool], told: Callable[[], object] = lambda: "in vain") -> None:
    until = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < until, told()
        time.sleep(0.3)


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


@pytest.mark.parametrize("accounting", [False, True])
def test_from_submit_to_resume(
    accounting: bool,
    request: pytest.FixtureRequest,
    site: Site,
    calls: Callable[[], Counter[str]],
    tmp_path: Path,
) -> None:
    request.getfixturevalue("accounted_slurm" if accounting else "slurm")
    calls()  # those of the fixture
    more = {"setup": [f"export PATH={tmp_path}/wrappers:$PATH"]}
    kinds = write_workload(tmp_path, matrix={"kind": ["ok", "fail", "killer"]}, slurm=more)
    late = write_workload(tmp_path, "late", matrix={"kind": ["slow"]}, timeout=8, slurm=more)
    batch = site.submit(kinds, late)
    assert "4 tasks in 4 jobs" in site.cli.err
    at_submit = calls()
    assert at_submit == {"sbatch": 2, "scontrol": 1, "sinfo": 1}, "one array and the collector"
    assert {*site.states(batch)} <= {"waiting", "running", "done", "failed", "lost"}
    assert calls()["squeue"] == 1, "one call for all"
    began = time.monotonic()
    site.batch("wait", batch, "--interval", "2", code=1)
    ticks = (time.monotonic() - began) / 2 + 1
    # Those of the collector are among them.
    asked = calls()
    assert asked.pop("squeue") <= ticks + 1
    asked.pop("sacct", None)  # which is not the controller
    assert not asked
    assert batch in site.cli.err
    states = site.states(batch)
    assert states == ["done", "failed", "lost", "timeout"]
    listed = site.batch("status")
    assert "1 done, 1 failed, 1 timeout, 1 lost" in listed
    assert "no such kind" in listed
    assert "took longer than 8 s" in listed
    assert "signal 9" in listed
    assert f"perfpipe batch resume {batch}" in listed
    log = site.batch("logs", "1")
    assert "[1] w kind=fail n=1: the program exited with code 1: no such kind" in log
    assert "attempt-1/plain.err" in log
    assert "1 done" in site.batch("ls")
    before = site.launched()
    site.mend()
    # Two at once: one submits, the other is told of it or finds nothing to do.
    both = [subprocess.Popen([*PERFPIPE, "resume", batch], stderr=subprocess.PIPE) for _ in "ab"]
    errors = [process.communicate(timeout=PATIENCE_S)[1].decode() for process in both]
    assert 0 in [process.returncode for process in both], errors
    assert all("runs it" in text or not text for text in errors)
    results = site.finish(batch)
    assert site.launched() == before + Counter(["fail1", "killer1", "slow1"]), "each once more"
    assert [task.ran and task.ran.attempt for task in results] == [1, 2, 2, 2]
    assert site.states(batch) == ["done"] * 4
    assert site.batch("resume", batch).startswith("nothing to resume")


def test_cancel_and_warnings(slurm: SlurmCluster, site: Site, tmp_path: Path) -> None:
    path = write_workload(tmp_path, matrix={"kind": ["slow"], "n": [1, 2, 3, 4, 5, 6, 7, 8]},
                          slurm={"tasks_per_job": 2, "array_parallelism": 3})  # fmt: skip
    batch = site.submit(path)
    (array, collector) = site.status(batch)["jobs"]
    at_first = site.until(batch, lambda states: states.count("running") == 3)
    assert at_first == ["running", "waiting"] * 3 + ["waiting"] * 2
    # What Slurm sends before the time limit: the program must run by then.
    wait_for(lambda: len(site.launched()) == 3)
    slurm.run("scancel", "--signal=USR1", "--batch", f"{array}_0")
    site.until(batch, lambda states: states[:2] == ["timeout", "stopped"])
    assert "before the time limit" in site.batch("logs", "0")
    assert site.batch("cancel", "2").strip() == "2 tasks canceled: 2, 3"
    states = site.until(batch, lambda states: states[6] == "running" and states[2] == "cancelled")
    assert states[4:] == ["running", "waiting", "running", "waiting"], "others go on"
    assert "CANCELLED" in site.batch("logs", "2")
    assert site.batch("cancel", "9", code=2) == ""
    assert "the batch has the tasks 0 to 7" in site.cli.err
    assert site.batch("cancel").startswith("4 tasks canceled: 4, 5, 6, 7")
    site.batch("wait", batch, "--interval", "1", code=1)
    assert site.states(batch) == ["timeout", "stopped"] + ["cancelled"] * 6
    wait_for(lambda: not site.left(), site.left)
    steps = [f"slurmstepd: [{array}".encode(), f"slurmstepd: [{collector}".encode()]
    wait_for(lambda: not any(step in _processes() for step in steps))
    site.mend()
    again = json.loads(site.batch("resume", batch, "--only", "timeout", "--json"))
    assert again["tasks"] == [0]
    site.batch("wait", batch, "--interval", "1", code=1)
    site.batch("resume", batch)
    assert site.cli.out.startswith("7 tasks submitted again")
    site.finish(batch)
    assert site.launched()["slow1"] == 2
    assert site.launched()["slow8"] == 1


def _processes() -> bytes:
    found = b""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += (entry / "cmdline").read_bytes() + b"\n"
    return found


@pytest.mark.parametrize("accounting", [False, True])
def test_what_the_cluster_breaks(
    accounting: bool, own_slurm: Callable[..., SlurmCluster], site: Site, tmp_path: Path
) -> None:
    """A node goes down, jobs reach their limits, the controller is away for 20 s, and forgets."""
    cluster = own_slurm(accounting=accounting)
    # A job fills a node, so that each has one.
    slow = {"kind": ["slow"], "n": [1, 2]}
    batch = site.submit(write_workload(tmp_path, matrix=slow, slurm={"gpus": 2}))
    on_n1 = {"partition": "debug", "warn_s": 120}
    slow = {"kind": ["slow"], "n": [3]}
    warned = site.submit(write_workload(tmp_path, "warned", matrix=slow, slurm=on_n1))
    on_n1["warn_s"] = 0
    slow["n"] = [4]
    killed = site.submit(write_workload(tmp_path, "killed", matrix=slow, slurm=on_n1))
    wait_for(lambda: len(site.launched()) == 4, site.launched)
    if not accounting:
        for one, ends_in in ((warned, 100), (killed, 5)):
            job = site.status(one)["jobs"][0]
            cluster.run("scontrol", "update", f"jobid={job}_0", f"endtime=now+{ends_in}")
    nodes = [task["node"] for task in site.status(batch)["tasks"]]
    assert sorted(nodes) == ["n1", "n2"], "both write the same store"
    cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    site.until(batch, lambda states: sorted(states) == ["node failure", "running"])
    with subprocess.Popen(
        [*PERFPIPE, "wait", batch, "--interval", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as waiting:  # fmt: skip
        try:
            if not accounting:
                # Limits are enforced up to half a minute late.
                _away(cluster, site, batch, 1 + nodes.index("n1"))
                for one in (warned, killed):
                    site.until(one, lambda states: states == ["timeout"])
            else:
                site.batch("cancel", "--batch", killed)
                site.until(killed, lambda states: states == ["cancelled"])
            site.mend()
            said = waiting.communicate(timeout=PATIENCE_S)
        finally:
            waiting.kill()
    assert waiting.returncode == 0, said
    assert "report.html" in said[0]
    assert ("Slurm does not answer" in said[1]) != accounting
    results = site.finish(batch)
    assert {task.ran.host for task in results if task.ran} == {"n1"}
    assert sorted(task.ran.attempt or 0 for task in results if task.ran) == [1, 2]
    assert {key: site.launched()[key] for key in ("slow1", "slow2")} in (
        {"slow1": 1, "slow2": 2}, {"slow1": 2, "slow2": 1}
    )  # fmt: skip
    site.batch("wait", warned, "--interval", "1", code=0 if accounting else 1)
    site.batch("wait", killed, "--interval", "1", code=1)
    cluster.forget()
    assert site.states(warned) == ["done" if accounting else "timeout"], "there is a result"
    assert site.states(killed) == ["cancelled" if accounting else "lost"]
    for one in (warned, killed):
        site.batch("resume", one)
    for one in (warned, killed):
        (result,) = site.finish(one)
        assert result.ran
        assert result.ran.attempt == (1 if accounting and one is warned else 2)


def _away(cluster: SlurmCluster, site: Site, batch: str, n: int) -> None:
    """Stop the controller for 20 s, in which the task n ends, and ask meanwhile."""
    cluster.stop("slurmctld")
    stopped = time.monotonic()
    site.mend(n)
    shown = site.status(batch)
    states = [task["state"] for task in shown["tasks"]]
    assert states.pop(n - 1) in ("done", "unknown")
    assert states == ["unknown"]
    assert "squeue: " in shown["unknown_because"]
    assert not shown["finished"]
    site.batch("resume", batch, code=1)
    assert "it is not known what still runs" in site.cli.err
    while time.monotonic() < stopped + 20:
        time.sleep(0.1)
    cluster.start("slurmctld")


def test_a_full_disk(slurm: SlurmCluster, site: Site, tmp_path: Path) -> None:
    store = tmp_path / "small"
    store.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(store)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        lacking("cannot mount a small file system")
    try:
        at = ("--store", store)
        path = write_workload(tmp_path, matrix={"kind": ["slow"], "n": [1, 2]})
        batch = site.submit(path, *at)
        wait_for(lambda: len(site.launched()) == 2)
        with contextlib.suppress(OSError), (store / "filler").open("wb", buffering=0) as file:
            while file.write(b"0" * 4096):
                pass
        site.mend()
        site.batch("wait", batch, "--interval", "1", *at, code=1)
        assert f"perfpipe batch resume {batch}" in site.cli.err
        tasks = json.loads(site.batch("status", batch, "--json", *at))["tasks"]
        assert [task["state"] for task in tasks] == ["lost", "lost"]
        site.batch("resume", batch, *at, code=2)
        assert "No space left on device" in site.cli.err
        (store / "filler").unlink()
        assert site.batch("resume", batch, *at).startswith("2 tasks submitted again")
        site.batch("wait", batch, "--interval", "1", *at)
        (run,) = Store(store).runs()
        assert [task.times_ms for task in run.tasks] == [(1.0, 1.0), (2.0, 2.0)]
        assert site.launched() == {"slow1": 2, "slow2": 2}
    finally:
        subprocess.run(["umount", "-l", store], check=True)
