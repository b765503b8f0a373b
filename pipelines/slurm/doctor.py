"""Reports a cluster's limits, and checks its nodes with a job that runs `perfpipe doctor`."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfpipe.decoding import decode
from perfpipe.errors import PerfpipeError, TaskFailed
from perfpipe.pipelines.checks import OK, WARNING, Check
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.pipelines.slurm.limits import Limits, Partition
from perfpipe.pipelines.slurm.options import Slurm, clock, merged
from perfpipe.pipelines.slurm.render import JobSpec, render
from perfpipe.pipelines.slurm.states import JobState, State
from perfpipe.units import format_bytes

#: How long the doctor waits for the controller, s.
_PATIENCE_S = 15.0

#: Default time limit of the job.
_SHORT = Slurm(time="5m", cpus=1)

#: How often to check the file system, and how often to query Slurm, s.
_LOOK_S, _ASK_S = 0.2, 5.0

#: How late a file from another node may become visible, s.
_LATE_S = 10.0

#: Makes the answer appear atomically.
_ANSWER = '"$@" >"$0.part" && mv "$0.part" "$0"'


def cluster_checks() -> Iterator[Check]:
    """Yield the limits of the cluster; nothing if Slurm's commands are not installed."""
    if shutil.which("scontrol") is None:
        return
    try:
        limits = Cluster(_PATIENCE_S).limits()
    except PerfpipeError as error:
        yield Check("cluster", WARNING, str(error))
        return
    yield Check("cluster", OK, _cluster(limits))
    for partition in limits.partitions:
        yield Check("partition", OK if partition.up else WARNING, _partition(partition))


def _cluster(limits: Limits) -> str:
    said = [f"{limits.cluster}, Slurm {limits.version}"]
    if limits.max_array_size:
        said.append(f"arrays of up to {limits.max_array_size - 1:,} jobs")
    if limits.max_submit:
        said.append(f"at most {limits.max_submit:,} submitted jobs per user")
    said.append(
        "accounting on"
        if limits.accounting
        else "accounting off (Slurm forgets the exit state of a job after some minutes)"
    )
    return "; ".join(said)


def _partition(partition: Partition) -> str:
    kinds = f" ({', '.join(partition.gpu_types)})" if partition.gpu_types else ""
    said = [
        f"{partition.name}{' (default)' if partition.default else ''}"
        f"{'' if partition.up else ' is down'}",
        f"{partition.nodes} nodes, {partition.idle} idle",
        f"{partition.gpus or 'no'} GPUs{kinds}, {partition.cpus} CPUs and "
        f"{format_bytes(partition.memory_mb << 20)} per node",
        f"at most {clock(partition.max_time_s)}" if partition.max_time_s else "no time limit",
    ]
    return "; ".join(said)


@dataclass(frozen=True)
class NodeReport:
    """The doctor's results on a node."""

    job: str
    node: str | None
    checks: tuple[Check, ...]


def doctor_job(
    slurm: Slurm,
    program: tuple[str, ...],
    folder: Path,
    timeout_s: float,
    tell: Callable[[str], None] = lambda _: None,
    cluster: Cluster | None = None,
) -> NodeReport:
    """Run `perfpipe doctor` in a job and return its results.

    `program` is perfpipe there; `folder` must be on a file system that the nodes share.  Raises
    TaskFailed, and cancels the job, if it has not ended in time.
    """
    cluster = cluster or Cluster()
    folder.mkdir(parents=True, exist_ok=True)
    # NFS keeps files that the job still has open.
    with tempfile.TemporaryDirectory(
        prefix=".doctor-", dir=folder, ignore_cleanup_errors=True
    ) as place:
        answer, log = Path(place, "answer.json").resolve(), Path(place, "job.log").resolve()
        script = Path(place, "script.sh")
        spec = JobSpec(
            name="perfpipe-doctor",
            slurm=merged(_SHORT, slurm),
            command=("sh", "-c", _ANSWER, str(answer), *program, "doctor", "--json"),
            log=str(log),
            directory=str(answer.parent),
            comment="perfpipe:doctor",
        )
        script.write_text(render(spec), encoding="utf-8")
        job = cluster.submit(script)
        tell(f"job {job} waits for a node")
        try:
            state = _wait(cluster, job, answer, timeout_s, tell)
        except BaseException:
            with contextlib.suppress(PerfpipeError):
                cluster.cancel([job])
            raise
        if not answer.exists():
            raise TaskFailed(f"job {job}: {_failure(state, log)}")
        checks = checks_of(answer.read_text(encoding="utf-8"))
    return NodeReport(job, state.node, checks)


def checks_of(text: str) -> tuple[Check, ...]:
    """Return the checks that `perfpipe doctor --json` printed."""
    try:
        content = json.loads(text[text.index("{") :])
        checks: tuple[Check, ...] = decode(tuple[Check, ...], content["checks"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"unexpected output of perfpipe doctor on the node: {text[:200]!r}"
        raise TaskFailed(message) from error
    return checks


def _wait(
    cluster: Cluster, job: str, answer: Path, timeout_s: float, tell: Callable[[str], None]
) -> JobState:
    """Wait for the answer or the end of the job; return the state of the job."""
    until = time.monotonic() + timeout_s
    asked, ended, told = time.monotonic(), None, ""
    state = JobState(job, None, State.UNKNOWN)
    while not answer.exists():
        now = time.monotonic()
        if ended is not None and now > ended + _LATE_S:
            return state
        if now > until:
            why = f" ({state.reason})" if state.reason else ""
            raise TaskFailed(f"job {job}: {state.state.value}{why} after {timeout_s:g} s; canceled")
        if ended is None and now > asked + _ASK_S:
            state, asked = cluster.states([job]).of(job), now
            ended = now if state.state.final else None
            text = f"job {job}: {state.state.value}{f' ({state.reason})' if state.reason else ''}"
            if text != told:
                tell(text)
                told = text
        # Listing the directory makes NFS refresh its view of files from other nodes.
        list(answer.parent.iterdir())
        time.sleep(_LOOK_S)
    return cluster.states([job]).of(job)


def _failure(state: JobState, log: Path) -> str:
    """Return how a job ended without an answer, with the last lines that it printed."""
    code = f", exit code {state.exit_code}" if state.exit_code else ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    said = " | ".join([line.strip()[:500] for line in lines if line.strip()][-3:])
    return f"{state.state.value}{code}: {said or 'no output'}"
