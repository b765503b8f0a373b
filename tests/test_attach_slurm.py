"""perfpipe attach --job: on the node of a job, in a step of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Cli
from running_programs import LOOP, goes_on, until
from slurm_cluster import SlurmCluster

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.attaching.target import target_of
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.store import Store


@pytest.fixture
def job(slurm: SlurmCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A job on a node that runs a Python program until it is canceled, or several by srun."""
    before = getattr(request, "param", "")
    (tmp_path / "train.py").write_text(LOOP)
    script = tmp_path / "job.sh"
    words = f"{before} {sys.executable} {tmp_path}/train.py {tmp_path}/count"
    script.write_text(
        f"#!/bin/sh\n#SBATCH --nodelist=n2 --ntasks=2 --mem=100 --output={tmp_path}/log\n{words}\n"
    )
    number = slurm.run("sbatch", "--parsable", str(script)).strip()
    try:
        assert until((tmp_path / "count").exists, 120)
        yield number
    finally:
        slurm.run("scancel", number)


def test_a_job_is_looked_at_on_its_node(
    job: str, cli: Cli, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert Cluster().nodes_of(job) == ["n2"]
    options = ["--duration=1", "--no-timeline", "--json"]
    assert cli("attach", "--job", job, "--node", "n2", *options) == 0, cli.err
    found = json.loads(cli.out)
    # The shell of the job and its program, without what srun started for perfpipe.
    assert found["process"]["running"]
    (run,) = store.runs()
    assert run.run_id == found["run"]["run_id"] and run.tasks[0].ran is not None
    assert run.tasks[0].ran.host == "n2"
    assert cli("query", "SELECT count(*) AS n FROM process_use", "--format", "json") == 0
    assert json.loads(cli.out)["rows"][0]["n"] == 2
    assert goes_on(tmp_path)
    assert Cluster().states([job]).of(job).state.value == "running"


@pytest.mark.parametrize("job", ["srun --ntasks=2"], indirect=True)
def test_all_tasks_of_a_step_are_looked_at(
    job: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    options = ["--duration=1", "--no-timeline", "--json"]
    assert until(lambda: len(_train(job)) == 2)
    assert cli("attach", "--job", job, *options) == 0, cli.err
    assert json.loads(cli.out)["run"]["workload"] == "train"
    sql = "SELECT count(*) AS n FROM process_use WHERE name LIKE 'python%'"
    assert cli("query", sql, "--format", "json") == 0
    assert json.loads(cli.out)["rows"][0]["n"] == 2


def _train(job: str) -> list[int]:
    """Return the Python processes of a job on n2."""
    pids = Cluster().processes_of(job, "n2", None)
    return [pid for pid in pids if (own := target_of(pid)) and own.name.startswith("python")]


def test_jobs_that_cannot_be_looked_at(
    job: str, slurm: SlurmCluster, cli: Cli, store: Store
) -> None:
    assert cli("attach", "--job", job, "--node", "n1") == 2
    assert f"job {job} runs on n2" in cli.err
    assert cli("attach", "--job", "99999") == 1
    assert "it has ended, or does not exist" in cli.err
    assert cli("attach", "--job", "a;b") == 2
    assert "expected the number of a job" in cli.err
    slurm.run("scancel", job)
    assert until(lambda: not slurm.run("squeue", "-h", "-j", job, "-t", "R").strip())
    with pytest.raises(TaskFailed, match=r"does not run|has ended"):
        Cluster().nodes_of(job)
    assert not store.root.exists()


def test_without_slurm(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert cli("attach", "--job", "12") == 5
    assert "squeue is not on PATH" in cli.err
    assert os.environ["PATH"] == str(tmp_path)
