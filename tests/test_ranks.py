"""The variables of distributed programs, for tasks of srun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_site import Site

from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.ranks import starts_ranks, with_ranks
from perfpipe.pipelines.workload import Execution

STEP = {
    "SLURM_NTASKS": "8",
    "SLURM_NNODES": "2",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_JOB_ID": "40123",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7",
}


def _variables(command: list[str], **env: str) -> dict[str, str]:
    found = subprocess.run(
        with_ranks([*command, "env"]) if command else with_ranks(["env"]),
        env={"PATH": "/usr/bin:/bin", **STEP, **env}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = dict(line.partition("=")[::2] for line in found.stdout.splitlines())
    return {name: value for name, value in lines.items() if not name.startswith("SLURM_")}


def test_a_rank_has_what_pytorch_reads() -> None:
    found = _variables([])
    assert {name: found[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK")} == {
        "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "NODE_RANK": "1",
    }  # fmt: skip
    assert found["LOCAL_WORLD_SIZE"] == "4"
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.7", "20123")


def test_what_is_set_stays_and_a_single_task_is_no_rank() -> None:
    found = _variables([], RANK="9", MASTER_ADDR="head", PET_RDZV_BACKEND="static")
    assert (found["RANK"], found["MASTER_ADDR"], found["PET_RDZV_BACKEND"]) == (
        "9", "head", "static",
    )  # fmt: skip
    assert found["PET_RDZV_ENDPOINT"] == "head:20123"
    assert "RANK" not in _variables([], SLURM_NTASKS="1")


def test_torchrun_gets_its_rendezvous_and_no_rank() -> None:
    found = _variables(["env", "A=torchrun"])
    assert found["RANK"] == "5", "an argument is no program"
    command = with_ranks(["nsys", "profile", "torchrun", "--nproc-per-node", "4", "train.py"])
    assert command[3] == "node"
    done = subprocess.run(
        ["sh", "-c", command[2], "node", "env"],
        env={"PATH": "/usr/bin:/bin", **STEP}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "\nRANK=" not in done.stdout
    assert "PET_NNODES=2\n" in done.stdout and "PET_RDZV_ENDPOINT=10.0.0.7:20123\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["/opt/bin/torchrun", "train.py"], True),
        (["python3", "-m", "torch.distributed.run", "train.py"], True),
        (["python3", "train.py"], False),
        (["python3", "my_torchrun.py"], False),
    ],
)
def test_what_starts_ranks_by_itself(words: list[str], expected: bool) -> None:
    assert starts_ranks(words) is expected


def test_over_ssh_a_command_with_srun_stays_as_it_is(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/seen\n')
    ssh.chmod(0o755)
    execution = Execution(kind="ssh", wrapper=[str(ssh), "login"])
    Launcher(execution, tmp_path).run(["srun", "-n", "2", "python3", "train.py"])
    seen = (tmp_path / "seen").read_text()
    assert "srun -n 2 python3 train.py" in seen and "RANK" not in seen


REDUCE = """
import json, os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
with open(f"rank{dist.get_rank()}.json", "w") as file:
    json.dump([total.item(), os.environ["SLURM_NODEID"], *map(os.environ.get, names)], file)
if dist.get_rank() == 0:
    print(json.dumps({"perfpipe": "time", "ms": [5.0]}))
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize(
    "words",
    [["python3", "train.py"], ["torchrun", "--nproc-per-node", "1", "train.py"]],
    ids=["srun", "torchrun"],
)
def test_two_nodes_reduce(
    words: list[str], slurm: SlurmCluster, site: Site, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(REDUCE)
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    setup = f"export PATH={programs} GLOO_SOCKET_IFNAME=lo"
    options = ["--nodes", "2", "--gpus", "0", "--time", "5m", "--setup", setup, "--no-pages"]
    batch = site.batch("submit", *options, "--collector", "timing", "--", *words).strip()
    site.finish(batch)
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank[0] for rank in ranks] == [3.0, 3.0]
    assert sorted(rank[1] for rank in ranks) == ["0", "1"], "one on each node"
    assert [rank[2:] for rank in ranks] == [["0", "0", "2"], ["1", "0", "2"]]
