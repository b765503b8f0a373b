from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfpipe.errors import InputError
from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.pipelines.slurm.render import JobSpec, render

PLAIN = JobSpec(
    name="gemm",
    slurm=Slurm(),
    command=("/opt/perfpipe", "_task", "a b"),
    log="/scratch/logs/%j.log",
    directory="/scratch",
)

FULL = JobSpec(
    name="perfpipe b-1",
    slurm=Slurm.model_validate(
        {
            "partition": "gpu",
            "account": "lab",
            "qos": "high",
            "time": "1h30m",
            "gpus": 4,
            "gpu_type": "h100",
            "cpus": 16,
            "mem": "64G",
            "constraint": "nvlink&ib",
            "exclusive": True,
            "setup": ["module load cuda/12.4", 'echo "$PATH"'],
            "container": {"image": "/images/torch 2.sif", "mounts": ["/data", "/a:/b"]},
            "requeue": True,
            "warn_s": 300,
            "extra": ["--reservation=tuesday"],
        }
    ),
    command=("perfpipe", "_task"),
    log="/scratch/my logs/%A_%a.log",
    directory="/scratch/my logs",
    array=(0, 1, 2, 5),
    parallelism=8,
    dependency="afterany:12:13",
    comment="perfpipe:b-1",
    environment={"PERFPIPE_STORE": "/scratch/it's here"},
)


def test_a_job_that_states_nothing() -> None:
    assert (
        render(PLAIN)
        == """\
#!/bin/bash
#SBATCH --job-name=gemm
#SBATCH --chdir=/scratch
#SBATCH --output=/scratch/logs/%j.log
#SBATCH --open-mode=append
#SBATCH --export=NONE
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gres=gpu:1
#SBATCH --signal=B:USR1@120

# srun passes the environment of this script on.
export SLURM_EXPORT_ENV=ALL
# Replaces this shell, so that the warning before the time limit reaches perfpipe.
exec /opt/perfpipe _task 'a b'
"""
    )


def test_a_job_that_states_all() -> None:
    assert (
        render(FULL)
        == """\
#!/bin/bash -l
#SBATCH --job-name="perfpipe b-1"
#SBATCH --comment=perfpipe:b-1
#SBATCH --chdir="/scratch/my logs"
#SBATCH --output="/scratch/my logs/%A_%a.log"
#SBATCH --open-mode=append
#SBATCH --export=NONE
#SBATCH --requeue
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --qos=high
#SBATCH --time=0-01:30:00
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --gres=gpu:h100:4
#SBATCH --constraint=nvlink&ib
#SBATCH --exclusive
#SBATCH --signal=B:USR1@300
#SBATCH --array=0-2,5%8
#SBATCH --dependency=afterany:12:13
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --reservation=tuesday

# srun passes the environment of this script on.
export SLURM_EXPORT_ENV=ALL
trap 'echo "perfpipe: setup line failed: $BASH_COMMAND" >&2' ERR
set -e
module load cuda/12.4
echo "$PATH"
set +e
trap - ERR
export PERFPIPE_STORE='/scratch/it'"'"'s here'
# Replaces this shell, so that the warning before the time limit reaches perfpipe.
exec apptainer exec --nv --bind /data --bind /a:/b '/images/torch 2.sif' perfpipe _task
"""
    )


def _lines(spec: JobSpec) -> list[str]:
    return render(spec).splitlines()


def test_a_job_without_a_gpu_asks_for_none() -> None:
    slurm = FULL.slurm.model_copy(update={"nodes": 2, "cpu_partition": "cpu"})
    lines = _lines(replace(FULL, gpu=False, slurm=slurm))
    assert "#SBATCH --partition=cpu" in lines
    assert "#SBATCH --nodes=1" in lines
    assert not [line for line in lines if "gres" in line or "constraint" in line]
    assert "#SBATCH --exclusive" not in lines
    assert "--nv" not in lines[-1]


def test_several_nodes() -> None:
    lines = _lines(replace(PLAIN, slurm=Slurm(nodes=2, gpus=8)))
    assert "#SBATCH --nodes=2" in lines
    assert "#SBATCH --gres=gpu:8" in lines
    assert "#SBATCH --ntasks=1" not in lines


def test_pyxis() -> None:
    slurm = Slurm.model_validate(
        {"container": {"image": "nvcr.io#nvidia/pytorch:25.09-py3", "runtime": "pyxis",
                       "mounts": ["/data", "/a:/b"], "options": ["--container-writable"]}}
    )  # fmt: skip
    assert _lines(replace(PLAIN, slurm=slurm))[-1] == (
        "exec srun --nodes=1 --ntasks=1 '--container-image=nvcr.io#nvidia/pytorch:25.09-py3' "
        "--container-workdir=/scratch --container-mounts=/data:/data,/a:/b --container-writable "
        "/opt/perfpipe _task 'a b'"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"time": "1m"}, "--signal=B:USR1@15"),
        ({"time": "1h"}, "--signal=B:USR1@120"),
        ({"time": "1h", "warn_s": 600}, "--signal=B:USR1@600"),
        ({"warn_s": 0}, None),
    ],
)
def test_the_warning_leaves_time_to_work(options: dict[str, object], expected: str | None) -> None:
    lines = _lines(replace(PLAIN, slurm=Slurm.model_validate(options)))
    found = [line.removeprefix("#SBATCH ") for line in lines if "--signal" in line]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize("name", ["log", "directory", "name", "comment"])
def test_no_value_ends_its_line(name: str) -> None:
    text: dict[str, Any] = {name: 'a"\n#SBATCH --uid=0'}
    with pytest.raises(InputError, match="a line break, a quote"):
        render(replace(PLAIN, **text))


def _bash(spec: JobSpec, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.sh"
    script.write_text(render(spec))
    return subprocess.run(["bash", script], capture_output=True, text=True, timeout=60)


def test_words_and_variables_arrive_as_they_are(tmp_path: Path) -> None:
    words = ("$HOME", "a b", "'", '"', "", "*", "\\", "`x`", "line\nbreak", "é")
    command = ("printf", r"[%s]\n", *words)
    done = _bash(replace(PLAIN, command=command), tmp_path)
    assert done.stdout == "".join(f"[{word}]\n" for word in words)
    show = ("sh", "-c", 'printf %s "$A"')
    done = _bash(replace(PLAIN, command=show, environment={"A": "".join(words)}), tmp_path)
    assert done.stdout == "".join(words)


def test_the_task_takes_the_place_of_the_shell(tmp_path: Path) -> None:
    done = _bash(replace(PLAIN, command=("sh", "-c", 'echo "$PPID"')), tmp_path)
    assert done.stdout == f"{os.getpid()}\n"


def test_a_failed_line_of_setup_ends_the_job(tmp_path: Path) -> None:
    slurm = Slurm(setup=["export A=1", "false || true", "ls /no/such/place", "echo never"])
    done = _bash(replace(PLAIN, slurm=slurm, command=("echo", "never")), tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.endswith("perfpipe: setup line failed: ls /no/such/place\n")


def test_a_task_after_setup_may_fail_as_it_likes(tmp_path: Path) -> None:
    slurm = Slurm(setup=["export A=1"])
    done = _bash(replace(PLAIN, slurm=slurm, command=("sh", "-c", "exit $((A + 6))")), tmp_path)
    assert (done.returncode, done.stderr) == (7, "")
