"""Batches without a cluster: a workload, a cluster that says what a test wants, jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.freezing import Wanted, freeze
from perfpipe.pipelines.batch.submitting import arrays_of, submit
from perfpipe.pipelines.batch.task import run_element
from perfpipe.pipelines.slurm.client import Answer, Cluster
from perfpipe.pipelines.slurm.limits import Limits
from perfpipe.pipelines.slurm.options import Slurm, merged
from perfpipe.pipelines.slurm.states import JobState
from perfpipe.pipelines.slurm.states import State as JobIs
from perfpipe.pipelines.workload import load_workload
from perfpipe.store import Store

PROGRAM = """
import json, os, sys, time
kind, n = sys.argv[1], float(sys.argv[2])
with open("launched", "a") as file:
    file.write(f"{kind}{n:g} ")
if kind == "fail":
    sys.exit("no such kind")
if kind == "slow":
    time.sleep(60)
print(json.dumps({"perfpipe": "time", "ms": [n, n]}))
"""


@dataclass(frozen=True)
class Said(Cluster):
    """A cluster that says what the test wants, and keeps what it was asked."""

    rows: dict[tuple[str, int | None], JobState] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)
    known: dict[str, list[str]] = field(default_factory=dict)
    trouble: str | None = None
    refuses: Exception | None = None

    def states(self, jobs: Mapping[str, Iterable[int]] | Iterable[str]) -> Answer:
        self.asked.append(dict(jobs) if isinstance(jobs, Mapping) else list(jobs))
        return Answer(self.rows, self.trouble)

    def submit(self, script: Path) -> str:
        if self.refuses:
            raise self.refuses
        self.asked.append(script.read_text())
        return str(100 + int(script.parent.name))

    def cancel(self, ids: Iterable[str]) -> None:
        self.asked.append([*ids])

    def find(self, comment: str) -> list[str]:
        return self.known.get(comment, [])

    def limits(self) -> Limits:
        return Limits("c", "22.05", 1001, None, None, False, ())

    def say(self, job: str, at: int | None, state: JobIs, **more: Any) -> None:
        self.rows[job, at] = JobState(job, at, state, **more)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    return write_workload(tmp_path)


def write_workload(folder: Path) -> Path:
    """Write the workload of the program above."""
    (folder / "program.py").write_text(PROGRAM)
    path = folder / "w.yaml"
    path.write_text(textwrap.dedent("""
        version: 1
        name: w
        command: ["{python}", program.py, "{kind}", "{n}"]
        matrix: {kind: [ok, fail], n: [1, 2]}
        slurm: {gpus: 0, tasks_per_job: 1}
        """))  # fmt: skip
    return path


def batch(path: Path, store: Path, **settings: Any) -> BatchDirectory:
    """Return a batch on disk, with `settings` as of --set, that no job was made of."""
    arms = settings.pop("arms", None)
    slurm = Slurm(**settings.pop("slurm", {}))
    sets = {
        name: [value] if not isinstance(value, list) else value for name, value in settings.items()
    }
    frozen = freeze(
        [Wanted(load_workload(path, sets), path)],
        store=Store(store),
        collector="timing",
        slurm_of=lambda own: merged(own, slurm),
        flags=slurm,
        filters={},
        command=[],
        pages=True,
        max_attempts=2,
        arms=arms,
    )
    return BatchDirectory.create(Store(store), frozen.batch, frozen.tasks, frozen.workloads)


def submitted(directory: BatchDirectory, cluster: Said) -> list[str]:
    """Submit all tasks of a batch and return the jobs."""
    slurm = {run.run_id: directory.workload(run.run_id).slurm for run in directory.batch.runs}
    arrays = arrays_of(
        directory.tasks, {k: v for k, v in slurm.items() if v}, {}, 1000, directory.batch.arms
    )
    return submit(directory, cluster, arrays, "submit")


def element(directory: BatchDirectory, number: int, at: int, job: str = "101") -> bool:
    """Run an array element as its job would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_ARRAY_JOB_ID", job)
        patch.setenv("SLURM_ARRAY_TASK_ID", str(at))
        patch.setenv("SLURMD_NODENAME", "n1")
        return run_element(directory, number, at)


class started:  # noqa: N801
    """A job in a process of its own, which has launched its first program."""

    def __init__(self, directory: BatchDirectory, cwd: Path) -> None:
        self.directory, self.cwd = directory, cwd

    def __enter__(self) -> subprocess.Popen[bytes]:
        words = ["-m", "perfpipe", "batch", "_task", self.directory.batch.batch_id, "1",
                 "--store", str(self.directory.store.root)]  # fmt: skip
        env = {**os.environ, "SLURM_ARRAY_JOB_ID": "101", "SLURM_ARRAY_TASK_ID": "0"}
        self.process = subprocess.Popen([sys.executable, *words], cwd=self.cwd, env=env)
        while not (self.cwd / "launched").exists():
            assert self.process.poll() is None
            time.sleep(0.02)
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
