"""The client on a real cluster: what a job of an array lives through, and what a site does."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_site import PATIENCE_S

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.slurm.client import Answer, Cluster, Unreachable
from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.pipelines.slurm.render import JobSpec, render
from perfpipe.pipelines.slurm.states import State


def _script(tmp_path: Path, command: str, **options: object) -> Path:
    """Write the script of a job of bash, in a directory whose name has a space."""
    slurm = Slurm.model_validate(options.pop("slurm", {"gpus": 0}))
    folder = tmp_path / "of jobs"
    folder.mkdir(exist_ok=True)
    spec = JobSpec(
        name="perfpipe test",
        slurm=slurm,
        command=("bash", "-c", command),
        log=str(folder / "%A_%a.log"),
        directory=str(folder),
        **options,  # type: ignore[arg-type]
    )
    path = tmp_path / "script.sh"
    path.write_text(render(spec))
    return path


def _until(
    cluster: Cluster, job: str, wanted: Callable[[Answer], bool], index: list[int]
) -> Answer:
    """Ask until an answer is as wanted."""
    until = time.monotonic() + PATIENCE_S
    while not wanted(answer := cluster.states({job: index})):
        assert time.monotonic() < until, answer
        time.sleep(0.2)
    return answer


def _ended(job: str, index: list[int]) -> Callable[[Answer], bool]:
    elements: list[int | None] = [*index] or [None]
    return lambda answer: all(answer.of(job, i).state.final for i in elements)


#: Element 0 ends well, 1 fails, 2 is killed, and 3 waits for a file that never comes.
LIVES = """\
case $SLURM_ARRAY_TASK_ID in
0) env; echo "gpu=$CUDA_VISIBLE_DEVICES" ;;
1) exit 42 ;;
2) kill -SEGV $$ ;;
*) sleep 300 ;;
esac
"""


@pytest.mark.parametrize("accounting", [False, True])
def test_the_lives_of_an_array(
    accounting: bool,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request.getfixturevalue("accounted_slurm" if accounting else "slurm")
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    monkeypatch.setenv("OF_THE_SHELL", "1")
    client = Cluster()
    comment = f"perfpipe:{tmp_path.name}"
    script = _script(
        tmp_path, LIVES, array=(0, 1, 2, 3, 7), comment=comment, slurm={"gpus": 1, "time": "5m"},
        environment={"PERFPIPE_STORE": "/a store"},
    )  # fmt: skip
    assert "to start at" in client.check(script)
    assert client.find(comment) == []
    started = time.time()
    job = client.submit(script)
    assert client.find(comment) == [job]
    answer = _until(client, job, _ended(job, [0, 1, 2]), [0, 1, 2, 3, 7])
    done, failed, killed = (answer.of(job, i) for i in range(3))
    assert (done.state, done.exit_code, done.signal) == (State.COMPLETED, 0, None)
    assert (failed.state, failed.exit_code, failed.signal) == (State.FAILED, 42, None)
    assert (killed.state, killed.signal) == (State.FAILED, 11)
    assert started - 2 <= (done.started or 0) <= (done.ended or 0) <= time.time() + 1
    assert done.node in ("n1", "n2")
    log = (tmp_path / "of jobs" / f"{job}_0.log").read_text()
    assert "PERFPIPE_STORE=/a store\n" in log
    assert "gpu=0\n" in log or "gpu=1\n" in log
    assert "OF_THE_SHELL" not in log
    _until(client, job, lambda a: a.of(job, 3).state is State.RUNNING, [3])
    client.cancel([f"{job}_[3,7]"])
    answer = _until(client, job, _ended(job, [3, 7]), [3, 7])
    assert answer.of(job, 3).state is answer.of(job, 7).state is State.CANCELLED
    client.cancel([job])  # that it has ended is no error
    assert answer.trouble is None


def test_what_the_controller_forgot_is_in_the_accounting(
    slurm: SlurmCluster,
    accounted_slurm: SlurmCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Cluster()
    comment = f"perfpipe:{tmp_path.name}"
    job = client.submit(
        _script(tmp_path, "exit $((SLURM_ARRAY_TASK_ID * 3))", array=(0, 1), comment=comment)
    )
    _until(client, job, _ended(job, [0, 1]), [0, 1])
    # A controller that knows nothing of the job, with accounting that does.
    lines = accounted_slurm.conf.read_text().splitlines()
    accounting = "\n".join(line for line in lines if line.startswith("AccountingSto"))
    of_other = slurm.conf.read_text()
    mixed = of_other.replace("AccountingStorageType=accounting_storage/none", accounting)
    conf = tmp_path / "slurm.conf"
    conf.write_text(mixed)
    monkeypatch.setenv("SLURM_CONF", str(conf))
    answer = _until(client := Cluster(), job, _ended(job, [0, 1]), [0, 1, 2])
    assert [answer.of(job, i).state for i in range(3)] == [
        State.COMPLETED, State.FAILED, State.UNKNOWN
    ]  # fmt: skip
    assert answer.of(job, 1).exit_code == 3
    assert answer.trouble is None
    assert client.find(comment) == [job]
    conf.write_text(re.sub("AccountingStoragePort=.*", "AccountingStoragePort=1", mixed))
    answer = client.states({job: [0]})
    assert answer.of(job, 0).state is State.UNKNOWN
    assert "Connection refused" in str(answer.trouble)
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    answer = Cluster().states({job: [0]})
    assert answer.of(job, 0).reason == (
        "Slurm no longer knows the job and has no accounting record of it"
    )


def test_a_controller_that_is_away_for_a_while(
    own_slurm: Callable[..., SlurmCluster], tmp_path: Path
) -> None:
    site = own_slurm()
    client, hasty = Cluster(), Cluster(patience_s=0.5)
    flag = tmp_path / "flag"
    script = _script(tmp_path, f"until [ -e '{flag}' ]; do sleep 0.1; done; exit 3")
    job = client.submit(script)
    _until(client, job, lambda a: a.of(job).state is State.RUNNING, [])
    site.stop("slurmctld")
    answer = hasty.states([job])
    assert answer.of(job).state is State.UNKNOWN
    assert answer.of(job).reason == answer.trouble
    assert "squeue: " in str(answer.trouble)
    with pytest.raises(Unreachable):
        hasty.submit(script)
    with pytest.raises(Unreachable):
        hasty.find("perfpipe:b")
    site.start("slurmctld")
    flag.touch()  # what ran went on
    answer = _until(client, job, _ended(job, []), [])
    assert (answer.of(job).state, answer.of(job).exit_code) == (State.FAILED, 3)
    assert answer.trouble is None


def test_what_the_cluster_allows(slurm: SlurmCluster) -> None:
    limits = Cluster().limits()
    assert (limits.cluster, limits.max_array_size, limits.accounting) == ("perfpipe", 1001, False)
    assert limits.max_submit is None
    batch, debug = (limits.partition(name) for name in ("batch", "debug"))
    assert batch is not None
    assert debug is not None
    assert limits.partition(None) == batch
    assert (batch.name, batch.nodes, batch.gpus, batch.cpus) == ("batch", 2, 2, 4)
    assert (batch.max_time_s, batch.default_time_s) == (3600, 300)
    assert (debug.name, debug.nodes, debug.max_time_s) == ("debug", 1, 600)


@pytest.mark.parametrize(
    ("slurm_options", "sentence"),
    [
        ({"partition": "nowhere"}, "invalid partition specified: nowhere"),
        ({"gpus": 9}, "Requested node configuration is not available"),
        ({"extra": ["--nonsense"]}, "unrecognized option '--nonsense'"),
        ({"extra": ["--array=5"], "gpus": 0}, None),
    ],
)
def test_slurm_says_what_it_refuses(
    slurm_options: dict[str, object], sentence: str | None, slurm: SlurmCluster, tmp_path: Path
) -> None:
    if sentence is None:
        with pytest.raises(ValueError, match="--array is set by perfpipe"):
            Slurm.model_validate(slurm_options)
        return
    script = _script(tmp_path, "true", slurm=slurm_options)
    for ask in (Cluster().check, Cluster().submit):
        with pytest.raises(TaskFailed, match=sentence):
            ask(script)


def test_steps_of_srun_get_the_environment_of_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = _script(
        tmp_path, "srun --ntasks-per-node=1 bash -c 'echo $SLURM_PROCID $A $B > $SLURM_PROCID'",
        slurm={"gpus": 1, "nodes": 2, "setup": ["export A=1"]}, environment={"B": "2"},
    )  # fmt: skip
    client = Cluster()
    job = client.submit(script)
    answer = _until(client, job, _ended(job, []), [])
    log = tmp_path / "of jobs" / f"{job}_4294967294.log"
    assert answer.of(job).state is State.COMPLETED, log.read_text() if log.exists() else answer
    assert [(tmp_path / "of jobs" / rank).read_text() for rank in "01"] == ["0 1 2\n", "1 1 2\n"]


@pytest.mark.parametrize("wrapper", ["", "srun --ntasks=1 "])
def test_the_warning_reaches_the_task_itself(
    wrapper: str, slurm: SlurmCluster, tmp_path: Path
) -> None:
    task = tmp_path / "task.sh"
    task.write_text(
        f"trap 'echo warned; exit 9' USR1; touch {tmp_path}/ready; sleep 300 & wait; kill $!"
    )
    client = Cluster()
    job = client.submit(_script(tmp_path, f"exec {wrapper}bash {task}"))
    until = time.monotonic() + PATIENCE_S
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < until, client.states([job])
        time.sleep(0.1)
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    answer = _until(client, job, _ended(job, []), [])
    assert (answer.of(job).state, answer.of(job).exit_code) == (State.FAILED, 9)
    (log,) = (tmp_path / "of jobs").iterdir()
    assert log.read_text().startswith("warned\n")


USE = """
import os, signal, sys
from pathlib import Path
from slurm_cluster import cluster
with cluster(Path(sys.argv[1]), nodes=1) as site:
    site.run("sbatch", "--output=/dev/null", "--wrap", "sleep 300")
    print(site.root, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_a_cluster_whose_test_was_killed(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USE, tmp_path / "base"], cwd=Path(__file__).parent,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    root = Path(done.stdout.strip())
    assert root.is_relative_to("/tmp")
    until = time.monotonic() + PATIENCE_S
    while root.exists() or _processes_with(str(root)):
        assert time.monotonic() < until, _processes_with(str(root))
        time.sleep(0.1)


def _processes_with(text: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text in (process / "environ").read_text(errors="replace"):
                found.append((process / "cmdline").read_text())
    return found


def _runs(job: str) -> Callable[[Answer], bool]:
    return lambda answer: answer.of(job).state is State.RUNNING


def test_jobs_that_lose_their_node(own_slurm: Callable[..., SlurmCluster], tmp_path: Path) -> None:
    site = own_slurm(nodes=1, preemption=True)
    client = Cluster()
    low = client.submit(_script(tmp_path, "sleep 300", slurm={"gpus": 2}))
    _until(client, low, _runs(low), [])
    high = client.submit(_script(tmp_path, "sleep 300", slurm={"gpus": 1, "partition": "debug"}))
    answer = _until(client, low, _ended(low, []), [])
    assert (answer.of(low).state, answer.of(low).node) == (State.PREEMPTED, "n1")
    again = client.submit(_script(tmp_path, "sleep 300", slurm={"gpus": 0, "requeue": True}))
    for job in (high, again):
        _until(client, job, _runs(job), [])
    site.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    answer = _until(client, high, _ended(high, []), [])
    assert (answer.of(high).state, answer.of(high).node) == (State.NODE_FAIL, "n1")
    answer = client.states([again])
    assert (answer.of(again).state, answer.of(again).started) == (State.PENDING, None)
    client.cancel([again])
    answer = _until(client, again, _ended(again, []), [])
    assert answer.of(again).state is State.CANCELLED
