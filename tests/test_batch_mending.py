"""Batches that wait or failed: why, what is checked beforehand, and how a batch is changed."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from batch_helpers import Said, batch, element, submitted
from batch_helpers import write_workload as write_own
from conftest import Cli
from slurm_cluster import SlurmCluster
from slurm_site import Site, write_workload

from perfpipe.batchrecord import State
from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.batch.canceling import cancel
from perfpipe.pipelines.batch.changing import change, timeout_of
from perfpipe.pipelines.batch.collecting import collect
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.removing import remove
from perfpipe.pipelines.batch.resuming import resume
from perfpipe.pipelines.batch.state import SILENT, state_of
from perfpipe.pipelines.batch.telling import status_lines
from perfpipe.pipelines.slurm.client import Cluster, Unreachable
from perfpipe.pipelines.slurm.fitting import misfit
from perfpipe.pipelines.slurm.limits import Limits, Partition
from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.pipelines.slurm.reasons import explained, stays
from perfpipe.pipelines.slurm.states import State as JobIs
from perfpipe.store import Store

GPU = Partition("gpu", True, True, 4, 1, 8, ("h100",), 64, 512_000, (), 3600, 300)
CPU = Partition("cpu", False, True, 2, 2, 0, (), 128, 256_000, (), None, None)
LIMITS = Limits("c", "24.05", 1001, None, None, False, (GPU, CPU))


@pytest.mark.parametrize(
    ("reason", "meaning", "forever"),
    [
        ("Resources", "no free node has what the job requests", False),
        ("Priority", "jobs with a higher priority are first", False),
        ("PartitionTimeLimit", "above that of the partition, so it does not start", True),
        ("QOSMaxCpuPerJobLimit", "more than its account or QOS allows", True),
        ("QOSMaxJobsPerUserLimit", "as many jobs, or resources, as allowed", False),
        ("AssocGrpGRES", "use what they may use", False),
        ("AssocMaxNodePerJobLimit", "more than its account or QOS allows", True),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "down, reserved or drained", False),
        ("DependencyNeverSatisfied", "a job that it waits for failed", True),
        ("SomethingNew", "SomethingNew", False),
    ],
)
def test_what_a_reason_of_slurm_means(reason: str, meaning: str, forever: bool) -> None:
    said = explained(reason)
    assert said is not None and said.startswith(reason) and meaning in said
    assert stays(reason) == stays(said) == forever


def test_a_job_without_a_reason() -> None:
    assert explained(None) is None and not stays(None)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"time": "2h"}, "--time 0-02:00:00: partition gpu allows at most 0-01:00:00"),
        ({"time": "1h"}, None),
        ({"time": "2h", "qos": "long"}, None),
        ({"partition": "cpu", "time": "7d"}, "--gpus 1: partition cpu has at most 0 GPUs per node"),
        ({"partition": "cpu,gpu"}, None),
        ({"partition": "hidden", "time": "7d"}, None),
        ({"nodes": 5}, "--nodes 5: partition gpu has 4 nodes"),
        ({"gpus": 9}, "--gpus 9: partition gpu has at most 8 GPUs per node"),
        ({"gpu_type": "a100"}, "gpu_type a100: partition gpu has h100"),
        ({"cpus": 65}, "--cpus 65: partition gpu has at most 64 CPUs per node"),
        ({"mem": "1T"}, "--mem 1T: partition gpu has at most"),
        ({"mem": "0"}, None),
    ],
)
def test_requests_that_no_node_can_meet(asked: dict[str, object], why: str | None) -> None:
    found = misfit(Slurm.model_validate(asked), LIMITS, gpu=True)
    assert (found or "").startswith(why or "") and (found is None) == (why is None)


def test_jobs_without_a_gpu_have_a_partition_of_their_own() -> None:
    asked = Slurm(partition="gpu", cpu_partition="cpu", time="2h", nodes=9, gpus=1)
    assert misfit(asked, LIMITS, gpu=False) is None
    assert misfit(Slurm(time="2h"), LIMITS, gpu=False) is not None


def test_waiting_tasks_are_counted_by_reason(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    for at in range(3):
        cluster.say("101", at, JobIs.PENDING, reason="Resources")
    cluster.say("101", 3, JobIs.PENDING, reason="PartitionTimeLimit")
    lines = status_lines(directory, state_of(directory, cluster))
    assert "waiting: 3 tasks: Resources: no free node has what the job requests" in lines
    (stuck,) = [line for line in lines if "PartitionTimeLimit" in line]
    assert stuck.startswith("waiting: 1 task: ")
    assert stuck.endswith("then perfpipe batch resume with another --time or --partition")


def test_what_sbatch_printed_before_it_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "sbatch"
    script.write_text(
        "#!/bin/sh\necho 'sbatch: error: Slurm temporarily unable to accept job, sleeping and "
        "retrying' >&2\nexec sleep 60\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(Unreachable, match="no answer within 2 s; it printed: Slurm temporarily"):
        Cluster(patience_s=2).submit(tmp_path / "script.sh")


def test_a_task_that_prints_no_times_though_others_do_has_failed(tmp_path: Path) -> None:
    path = write_own(tmp_path)
    (tmp_path / "program.py").write_text(
        'import sys\nif sys.argv[2] == \'1\': print(\'{"perfpipe": "time", "ms": [5]}\')\n'
    )
    directory = batch(path, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    for at in range(4):
        element(directory, 1, at)
    state = state_of(directory, cluster)
    assert [task.state for task in state.tasks] == [State.DONE, State.FAILED] * 2
    assert state.tasks[1].reason == SILENT
    outcome = collect(directory, 2, cluster)
    assert outcome is not None and not outcome.ok
    (run,) = directory.store.runs()
    assert [task.failure for task in run.tasks] == [None, "invalid_time"] * 2
    assert [task.task.index for task in resume(directory, cluster).tasks] == [1, 3]


# Changing a batch


def test_an_edited_file_and_options_change_later_jobs(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store", slurm={"time": "1m", "cpus": 2})
    (run,) = directory.batch.runs
    assert directory.batch.flags == {"time": "0-00:01:00", "cpus": 2}
    assert not change(directory, Slurm(), None).said
    text = workload.read_text().replace("tasks_per_job: 1", "tasks_per_job: 1, mem: 2G")
    workload.write_text(text + "timeout: 900\n")
    changed = change(directory, Slurm(time="5m"), None)
    assert changed.said == [
        "time: 0-00:01:00 -> 0-00:05:00", "mem: default -> 2G", "timeout: 600 -> 900",
    ]  # fmt: skip
    assert directory.workload(run.run_id).timeout == 600, "not kept yet"
    changed.write(directory)
    assert not change(directory, Slurm(), None).said, "options stay"
    change(directory, Slurm(), 700.0).write(directory)
    assert not change(directory, Slurm(), None).said, "a timeout too"
    change(directory, Slurm(), 900.0).write(directory)
    new = BatchDirectory.read(directory.store, directory.batch.batch_id).workload(run.run_id)
    assert new.slurm is not None
    assert (new.slurm.time, new.slurm.mem, new.slurm.cpus) == ("0-00:05:00", "2G", 2)
    assert (new.timeout, new.matrix) == (900, directory.workload(run.run_id).matrix)
    workload.write_text(text.replace("n: [1, 2]", "n: [3, 4]"))
    again = change(directory, Slurm(), None)
    assert again.workloads[run.run_id].matrix == new.matrix, "what is measured stays"
    assert again.said == []
    workload.write_text("version: 1\nname: [")
    with pytest.raises(InputError):
        change(directory, Slurm(), None)
    workload.unlink()
    assert change(directory, Slurm(), 30.0).said == ["timeout: 900 -> 30"]


def test_a_refused_resume_changes_nothing(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    for at in range(4):
        element(directory, 1, at)
        cluster.say("101", at, JobIs.COMPLETED)
    before, kept = state_of(directory, cluster), directory.flags()
    run = directory.batch.runs[0].run_id
    slurm = directory.slurm(run)
    assert [task.state for task in before.tasks].count(State.FAILED) == 2
    no = TaskFailed("sbatch: invalid partition specified: nosuch")
    refusing = replace(cluster, refuses=no)
    for _ in range(2):
        with pytest.raises(TaskFailed, match="invalid partition"):
            resume(directory, refusing, flags=Slurm(partition="nosuch"), timeout=7.0)
    assert state_of(directory, cluster).tasks == before.tasks
    assert (directory.flags(), directory.slurm(run)) == (kept, slurm)
    done = resume(directory, cluster)
    assert len(done.tasks) == 2 and not done.changes


def test_a_collector_that_waits_is_replaced_or_canceled(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    for at in range(4):
        cluster.say("101", at, JobIs.PENDING)
    cluster.say("102", None, JobIs.PENDING)
    canceled = cancel(directory, cluster, None)
    assert (canceled.tasks, canceled.collector) == ([0, 1, 2, 3], "102"), "there are no results"
    for at in range(4):
        cluster.say("101", at, JobIs.CANCELLED)
    cluster.say("102", None, JobIs.PENDING)  # as if it had been kept
    assert cancel(directory, cluster, None).collector == "102"
    resume(directory, cluster)
    assert cluster.asked[-1] == ["102"], "the new collector takes its place"


def test_a_timeout_is_the_only_setting_that_can_change() -> None:
    assert timeout_of({}) is None
    assert timeout_of({"timeout": [5]}) == 5.0
    for bad in ({"timeout": [0]}, {"timeout": ["x"]}, {"timeout": [1, 2]}, {"n": [1]}):
        with pytest.raises(InputError):
            timeout_of(bad)


def test_resume_submits_with_what_changed(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    with pytest.raises(TaskFailed):
        submitted(directory, Said(refuses=TaskFailed("invalid partition specified: gppu")))
    done = resume(directory, cluster, flags=Slurm(partition="batch", time="10m"))
    assert done.changes == ["partition: default -> batch", "time: default -> 0-00:10:00"]
    scripts = [one for one in cluster.asked if isinstance(one, str)]
    assert all("#SBATCH --partition=batch\n" in script for script in scripts)
    assert "#SBATCH --time=0-00:10:00\n" in scripts[0]


# Removing


def test_a_batch_that_slurm_refused_is_not_the_newest(workload: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    good = batch(workload, store.root)
    submitted(good, Said())
    bad = batch(workload, store.root)
    assert BatchDirectory.find(store, None).batch.batch_id in (good.batch.batch_id,)
    with pytest.raises(TaskFailed):
        submitted(bad, Said(refuses=TaskFailed("invalid partition")))
    assert BatchDirectory.find(store, None).batch.batch_id == good.batch.batch_id
    remove(bad, Said())
    assert store.batch_ids() == [good.batch.batch_id]


def test_only_a_batch_whose_jobs_have_ended_is_removed(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    store, cluster = directory.store, Said()
    submitted(directory, cluster)
    element(directory, 1, 0)
    for at in range(1, 4):
        cluster.say("101", at, JobIs.PENDING)
    with pytest.raises(InputError, match="3 tasks may still run; 'perfpipe batch cancel"):
        remove(directory, cluster)
    with pytest.raises(TaskFailed, match="cannot find out"):
        remove(directory, Said(trouble="away"))
    for at in range(1, 4):
        cluster.say("101", at, JobIs.CANCELLED)
    cluster.say("102", None, JobIs.PENDING)
    with pytest.raises(InputError, match="the collector may still run"):
        remove(directory, cluster)
    cluster.say("102", None, JobIs.COMPLETED)
    remove(directory, cluster)
    assert store.batch_ids() == [] and store.leftovers() == []
    assert not (store.runs_dir / directory.batch.runs[0].run_id).exists()


# On a real cluster


def test_a_timeout_is_mended_and_limits_are_known(
    slurm: SlurmCluster, site: Site, tmp_path: Path
) -> None:
    path = write_workload(tmp_path, matrix={"kind": ["slow"]}, timeout=2)
    site.batch("submit", path, "--time", "2h", "--no-pages", "--collector", "timing", code=2)
    assert "--time 0-02:00:00: partition batch allows at most 0-01:00:00" in site.cli.err
    assert Store(tmp_path / "store").batch_ids() == []
    batch = site.submit(path, "--time", "10m")
    site.batch("wait", batch, "--interval", "1", code=1)
    assert site.states(batch) == ["timeout"]
    site.batch("resume", batch, "--set", "n=3", code=2)
    assert "only the timeout can change" in site.cli.err
    path.write_text(path.read_text().replace("timeout: 2", "timeout: 55").replace(
        '"timeout": 2', '"timeout": 55'))  # fmt: skip
    site.mend()
    site.batch("resume", batch, "--time", "20m", "--partition", "debug", code=2)
    assert "partition debug allows at most 0-00:10:00" in site.cli.err
    site.batch("resume", batch, "--time", "20m")
    assert "timeout: 2 -> 55" in site.cli.err and "time: 0-00:10:00 ->" in site.cli.err
    site.finish(batch)
    assert site.batch("rm", batch).strip() == f"removed {batch}"
    assert Store(tmp_path / "store").batch_ids() == []
    assert len(Store(tmp_path / "store").runs()) == 1, "what was measured stays"


def test_why_a_job_waits_for_ever(
    slurm: SlurmCluster, site: Site, tmp_path: Path, cli: Cli
) -> None:
    """Here because it is held; Slurm says so."""
    path = write_workload(tmp_path, matrix={"kind": ["ok"]}, slurm={"extra": ["--hold"]})
    batch = site.submit(path)
    site.until(batch, lambda states: states == ["waiting"])
    said = site.batch("status", batch)
    assert "waiting: 1 task: JobHeldUser: it is held; 'scontrol release' lets it start" in said
    assert "perfpipe batch cancel, then perfpipe batch resume" in said
    site.batch("cancel", "--batch", batch)
    (array, collector) = site.status(batch)["jobs"]
    subprocess.run(["scancel", collector, array], check=True)
