"""The client against programs that say what a cluster could; a real one is in test_slurm.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perfpipe.errors import TaskFailed, ToolMissing
from perfpipe.pipelines.slurm.client import Cluster, Unreachable
from perfpipe.pipelines.slurm.states import State

Say = Callable[..., None]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Install programs: say("sbatch", "12;alpha", error="...", code=1); each notes its calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def install(program: str, text: str = "", *, error: str = "", code: int = 0) -> None:
        (folder / f"{program}.out").write_text(text)
        (folder / f"{program}.err").write_text(error)
        script = folder / program
        script.write_text(
            f'#!/bin/sh\necho "{program} $*" >> {tmp_path}/calls\nenv > {tmp_path}/env\n'
            f"cat {folder}/{program}.out; cat {folder}/{program}.err >&2; exit {code}\n"
        )
        script.chmod(0o755)

    return install


def _calls(tmp_path: Path) -> list[str]:
    return [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()]


SCRIPT = Path("script.sh")


@pytest.mark.parametrize(
    "printed",
    [
        "1234\n",
        "1234;alpha\n",
        "Welcome to alpha! 3 jobs may wait.\n1234\nYou have 17 core-hours left\n",
        "Submitted batch job 1234\n",
        "Submitted batch job 1234 on cluster alpha\n",
    ],
)
def test_the_job_id_is_found(printed: str, say: Say) -> None:
    say("sbatch", printed)
    assert Cluster().submit(SCRIPT) == "1234"


def test_an_answer_without_a_job_id(say: Say) -> None:
    say("sbatch", "ask the help desk\n")
    with pytest.raises(TaskFailed, match="sbatch did not print a job id: ask the help desk"):
        Cluster().submit(SCRIPT)


REFUSED = """\
sbatch: error: invalid partition specified: nix
sbatch: error: Batch job submission failed: Invalid partition name specified
"""


def test_slurms_own_sentence_is_passed_on(say: Say) -> None:
    say("sbatch", error=REFUSED, code=1)
    with pytest.raises(TaskFailed, match=r"^sbatch: invalid partition specified: nix; ") as caught:
        Cluster().submit(SCRIPT)
    assert not isinstance(caught.value, Unreachable)


@pytest.mark.parametrize(
    "error",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    ],
)
def test_a_controller_that_is_away_is_no_refusal(error: str, say: Say) -> None:
    say("sbatch", error=error, code=1)
    with pytest.raises(Unreachable):
        Cluster().submit(SCRIPT)


def test_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="sbatch is not on PATH"):
        Cluster().submit(SCRIPT)
    answer = Cluster().states(["12"])
    assert answer.of("12").state is State.UNKNOWN
    assert "squeue is not on PATH" in str(answer.of("12").reason)


def test_what_would_change_the_answer_is_taken_out(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SBATCH_PARTITION", "SQUEUE_FORMAT", "SACCT_FORMAT", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    say("sbatch", "1\n")
    Cluster().submit(SCRIPT)
    env = dict(
        line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line
    )
    assert {k: v for k, v in env.items() if k.startswith(("SBATCH", "SQUEUE", "SACCT", "SLURM"))} == {
        "SLURM_CONF": "/etc/slurm.conf", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"
    }  # fmt: skip
    assert (env["LC_ALL"], env["HOME"]) == ("C", os.environ["HOME"])


RUNNING = "12|0|RUNNING|0|1795358736|1795359036|n1|None|\n"


def test_one_call_a_tick_where_the_controller_knows_all(say: Say, tmp_path: Path) -> None:
    say("squeue", RUNNING + RUNNING.replace("12|0", "13|N/A"))
    say("sacct")
    answer = Cluster().states({"12": [0], "13": []})
    assert answer.of("12", 0).state is State.RUNNING
    assert answer.of("13").state is State.RUNNING
    assert _calls(tmp_path) == ["squeue"]
    assert Cluster().states([]).states == {}
    assert _calls(tmp_path) == ["squeue"]


def test_accounting_is_asked_for_what_the_controller_forgot(say: Say, tmp_path: Path) -> None:
    say("squeue", RUNNING)
    say("sacct", "12_0|PENDING|0:0|Unknown|Unknown||\n12_1|TIMEOUT|0:0|1|2|n1|None\n")
    answer = Cluster().states({"12": [0, 1, 2]})
    # What the controller says counts; the end of what it forgot is told, and nothing else is.
    assert [answer.of("12", i).state for i in range(3)] == [
        State.RUNNING, State.TIMEOUT, State.UNKNOWN
    ]  # fmt: skip
    assert answer.of("12", 2).reason == (
        "Slurm no longer knows the job and has no accounting record of it"
    )
    assert answer.trouble is None
    assert _calls(tmp_path) == ["squeue", "sacct"]


def test_accounting_that_lags_is_not_believed(say: Say) -> None:
    say("squeue", error="slurm_load_jobs error: Invalid job id specified\n", code=1)
    say("sacct", "12|RUNNING|0:0|1|Unknown|n1|None\n")
    state = Cluster().states(["12"]).of("12")
    assert state.state is State.UNKNOWN
    assert state.reason == (
        "the controller no longer knows the job; the job's last state in accounting is running"
    )


DISABLED = "Slurm accounting storage is disabled\n"


def test_without_accounting_a_forgotten_job_is_unknown(say: Say) -> None:
    say("squeue", error="slurm_load_jobs error: Invalid job id specified\n", code=1)
    say("sacct", error=DISABLED, code=1)
    answer = Cluster().states(["12"])
    assert answer.of("12").state is State.UNKNOWN
    assert "has no accounting record" in str(answer.of("12").reason)
    assert answer.trouble is None


AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


def test_the_controller_is_away(say: Say) -> None:
    say("squeue", error=AWAY, code=1)
    say("sacct", "12_0|COMPLETED|0:0|1|2|n1|None\n12_1|RUNNING|0:0|1|Unknown|n1|None\n")
    answer = Cluster().states({"12": [0, 1, 2]})
    why = "squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    assert answer.trouble == why
    assert answer.of("12", 0).state is State.COMPLETED
    assert answer.of("12", 1).state is State.UNKNOWN
    assert answer.of("12", 1).reason == f"{why}; the job's last state in accounting is running"
    assert answer.of("12", 2).reason == why


def test_nobody_answers(say: Say) -> None:
    say("squeue", error=AWAY, code=1)
    say(
        "sacct", error="sacct: error: Problem talking to the database: Connection refused\n", code=1
    )
    reason = str(Cluster().states(["12"]).of("12").reason)
    assert "Unable to contact slurm controller" in reason
    assert "Problem talking to the database" in reason


def test_a_command_that_hangs_is_given_up(tmp_path: Path, say: Say) -> None:
    say("sacct", error=DISABLED, code=1)
    say("squeue")
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    answer = Cluster(patience_s=0.3).states(["12"])
    assert answer.of("12").reason == "squeue: no answer within 0.3 s"


def test_orphans_are_found_by_their_comment(say: Say) -> None:
    say("squeue", "12|perfpipe:b-1\n12|perfpipe:b-1\n13|perfpipe:b-2\n9|(null)\n")
    say("sacct", "2_1|perfpipe:b-1\n7_[3-5]|perfpipe:b-1\n12_0|perfpipe:b-1\n8|\n")
    assert Cluster().find("perfpipe:b-1") == ["2", "7", "12"]
    say("sacct", error=DISABLED, code=1)
    assert Cluster().find("perfpipe:b-1") == ["12"]


def test_canceling_passes_slurms_sentence_on(say: Say, tmp_path: Path) -> None:
    say("scancel")
    Cluster().cancel([])
    Cluster().cancel(["12", "13_[2-4]"])
    assert (tmp_path / "calls").read_text() == "scancel --quiet 12 13_[2-4]\n"
    say(
        "scancel",
        error="scancel: error: Kill job error on job id 12: Access/permission denied\n",
        code=1,
    )
    with pytest.raises(TaskFailed, match="job id 12: Access/permission denied"):
        Cluster().cancel(["12"])
