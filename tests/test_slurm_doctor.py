from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Cli
from slurm_cluster import SlurmCluster

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.slurm import doctor
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.pipelines.slurm.options import Slurm


def _states(site: SlurmCluster) -> dict[str, str]:
    rows = site.run("squeue", "-h", "-t", "all", "-n", "perfpipe-doctor", "-o", "%A %T")
    return dict(row.split() for row in rows.splitlines())


def test_the_doctor_tells_what_a_cluster_allows(cli: Cli, slurm: SlurmCluster) -> None:
    assert cli("doctor") == 0
    lines = [" ".join(line.split()) for line in cli.out.splitlines()]
    version = slurm.run("slurmctld", "-V").split()[1]
    assert (
        f"ok cluster perfpipe, Slurm {version}; arrays of up to 1,000 jobs; accounting off "
        "(Slurm forgets the exit state of a job after some minutes)"
    ) in lines
    (batch,) = (
        line for line in lines if line.startswith("ok partition batch (default); 2 nodes, ")
    )
    assert batch.endswith("; 2 GPUs, 4 CPUs and 4.2 GB per node; at most 0-01:00:00")
    assert any(line.startswith("ok partition debug; 1 nodes, ") for line in lines)


def test_accounting_is_told(cli: Cli, accounted_slurm: SlurmCluster) -> None:
    assert cli("doctor", "--json") == 0
    checks = {check["name"]: check for check in json.loads(cli.out)["checks"]}
    assert checks["cluster"]["text"].endswith("; accounting on")


def test_a_cluster_that_does_not_answer(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(re.sub("SlurmctldPort=.*", "SlurmctldPort=1", slurm.conf.read_text()))
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.3)
    (check,) = doctor.cluster_checks()
    assert (check.name, check.state) == ("cluster", "warning")
    assert check.text == "scontrol: no answer within 0.3 s"


def test_a_job_looks_at_a_node(cli: Cli, slurm: SlurmCluster, tmp_path: Path) -> None:
    before = _states(slurm)
    assert cli("batch", "doctor", "--gpus", "2", "--need", "slurm") == 0
    first, *lines = cli.out.splitlines()
    (job,) = _states(slurm).keys() - before.keys()
    assert first in (f"n1 (job {job}):", f"n2 (job {job}):")
    names = [line.split()[1] for line in lines]
    assert names[:5] == ["nsys", "ncu", "gpu", "counters", "slurm"]
    assert "perfpipe, Slurm" in "\n".join(lines)
    assert f"job {job} waits for a node" in cli.err
    assert not list((tmp_path / "store").glob(".doctor-*"))


def test_a_node_may_lack_what_is_needed(
    cli: Cli, slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    answer = {"checks": [{"name": "ncu", "state": "missing", "text": "no"}]}
    program.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    assert cli("batch", "doctor", "--gpus", "0", "--need", "ncu", "--json") == 5
    assert "missing: ncu" in cli.err
    assert json.loads(cli.out)["checks"] == answer["checks"]


@pytest.mark.parametrize(
    "printed", ["", "command not supported", "{", "[]", '{"checks": [{"name": "ncu"}]}', "{}"]
)
def test_an_answer_that_is_none(printed: str) -> None:
    with pytest.raises(TaskFailed, match="unexpected output of perfpipe doctor on the node: "):
        doctor.checks_of(printed)


def test_a_node_without_perfpipe(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_ASK_S", 0.2)
    monkeypatch.setattr(doctor, "_LATE_S", 0.5)
    with pytest.raises(TaskFailed, match=r"job \d+: failed, exit code 127: .*/no/such/perfpipe"):
        doctor.doctor_job(Slurm(gpus=0), ("/no/such/perfpipe",), tmp_path / "store", 60)
    assert not list((tmp_path / "store").iterdir())


def test_a_job_that_no_node_takes_is_canceled(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_ASK_S", 0.2)
    told: list[str] = []
    asked = Slurm(gpus=0, extra=["--begin=now+1hour"])
    with pytest.raises(TaskFailed, match=r"job \d+: pending \(BeginTime\) after 2 s; canceled"):
        doctor.doctor_job(asked, ("perfpipe",), tmp_path, 2, told.append)
    job = told[0].split()[1]
    assert told[0] == f"job {job} waits for a node"
    assert f"job {job}: pending (BeginTime)" in told
    assert Cluster().states([job]).of(job).state.value == "cancelled"


def test_a_partition_that_does_not_exist(cli: Cli, slurm: SlurmCluster) -> None:
    assert cli("batch", "doctor", "--partition", "nowhere") == 1
    assert "perfpipe: sbatch: invalid partition specified: nowhere" in cli.err
