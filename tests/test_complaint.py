"""The error that is reported of a program that failed, wherever its ranks and launchers print it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import DATA, Cli

from perfpipe.pipelines.process import Finished

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("first")
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 5, in <module>
    load(path)
data.LoadError: no such file: x
"""
WARNING = "[rank0]:[W1125 09:34:34.5 ProcessGroupNCCL.cpp:1575] Warning: not called before exit\n"
RANKS = "".join(f"[rank0]: {line}\n" for line in TRACEBACK.splitlines())
BARE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyboardInterrupt\n'


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        ("", TRACEBACK + WARNING, "data.LoadError: no such file: x"),
        ("", RANKS + WARNING, "data.LoadError: no such file: x"),
        (TRACEBACK, WARNING, "data.LoadError: no such file: x"),
        ("step 1\n", "a\nb\nc\nd: e\n", "b | c | d: e"),
        ("", BARE, "KeyboardInterrupt"),
        ("", TRACEBACK + BARE.replace("KeyboardInterrupt", "NotAName"), "data.LoadError: no such"),
        (
            "",
            "Traceback (most recent call last):\n  cut",
            "Traceback (most recent call last): | cut",
        ),
        ("", "", ""),
    ],
)
def test_the_exception_that_ended_a_program(stdout: str, stderr: str, said: str) -> None:
    complaint = Finished(1, stdout, stderr, 1.0).complaint()
    assert complaint.startswith(said)
    assert "\n" not in complaint


MISSING = (
    "RuntimeError: data set is missing (caused by FileNotFoundError: [Errno 2] No such file or "
    "directory: '/nonexistent/data')"
)

#: What launchers print on stderr, by file: PyTorch 2.13, accelerate 1, Open MPI 4.1, Slurm 22.05.
LAUNCHERS = {
    # Rank 0 fails after rank 1, since it waits for it.
    "torchrun_two_ranks": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "torchrun_untagged": "ValueError: shape mismatch in layer 3",
    "torchrun_assert": "AssertionError",
    "torchrun_record": "ValueError: recorded failure",
    "torchrun_tee": "ValueError: shape mismatch in layer 3",
    # Each rank logs an exception before, and goes on.
    "torchrun_logged_before": MISSING,
    "torchrun_exit_code": "rank 0: exit code 3",
    "torchrun_killed": "rank 0: ended by SIGKILL",
    "accelerate": "ValueError: Error initializing torch.distributed using env:// rendezvous: "
    "environment variable RANK expected, but not set",
    "mpirun": "ValueError: shape mismatch in layer 3",
    "mpirun_tag_output": "ValueError: shape mismatch in layer 3",
    "mpirun_logged_before": MISSING,
    "spawn": "ValueError: bad worker",
    "srun": "ValueError: shape mismatch on task 1",
    "srun_label": "ValueError: shape mismatch on task 1",
}


def test_every_output_of_a_launcher_is_known() -> None:
    assert {path.stem for path in (DATA / "launchers").iterdir()} == LAUNCHERS.keys()


@pytest.mark.parametrize("name", LAUNCHERS)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_exception_of_the_first_rank_that_failed(name: str, stream: str) -> None:
    text = (DATA / "launchers" / f"{name}.txt").read_text()
    printed = (text, "") if stream == "stdout" else ("step 1\n", text)
    assert Finished(1, *printed, 1.0).complaint() == LAUNCHERS[name]


def test_a_run_under_a_launcher_reports_the_exception_of_its_rank(cli: Cli, tmp_path: Path) -> None:
    """Through the command line; the stand-in prints what mpirun does."""
    said = DATA / "launchers" / "mpirun_logged_before.txt"
    program = tmp_path / "launch.py"
    program.write_text(f"import sys; sys.stderr.write(open({str(said)!r}).read()); sys.exit(1)")
    assert cli("run", "--collector", "timing", "--", sys.executable, program) == 1
    assert cli.err.splitlines()[-1].endswith(MISSING)


FAIL = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    raise RuntimeError("no such shard: 7")
dist.barrier()
"""


@pytest.mark.usefixtures("needs_torch")
def test_a_real_torchrun(cli: Cli, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(FAIL)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    assert cli("run", "--collector", "timing", "--", *torchrun, program) == 1
    assert cli.err.splitlines()[-1].endswith("RuntimeError: no such shard: 7")
