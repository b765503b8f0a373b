"""Batches without a cluster: states, resuming, and the collector; Slurm's answers are given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from batch_helpers import Said, batch, element, submitted
from conftest import Cli

from perfpipe.batchrecord import State
from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.batch.canceling import cancel
from perfpipe.pipelines.batch.collecting import collect
from perfpipe.pipelines.batch.resuming import (
    Resumed,
    adopt_orphans,
    broken_by_slurm,
    resume,
    states_named,
)
from perfpipe.pipelines.batch.state import state_of
from perfpipe.pipelines.batch.submitting import comment_of
from perfpipe.pipelines.batch.telling import status_lines
from perfpipe.pipelines.slurm.client import Unreachable
from perfpipe.pipelines.slurm.states import State as JobIs
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

# States


def test_results_count_and_the_scheduler_explains_what_is_missing(
    workload: Path, tmp_path: Path
) -> None:
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    assert state_of(directory, cluster).counts == {State.UNSUBMITTED: 4}
    assert cluster.asked == [], "nothing to ask about"
    submitted(directory, cluster)
    cluster.asked.clear()
    element(directory, 1, 0)
    cluster.say("101", 0, JobIs.FAILED, exit_code=7)
    cluster.say("101", 1, JobIs.PENDING, reason="Priority")
    state = state_of(directory, cluster)
    assert state.counts == {State.WAITING: 1, State.DONE: 1, State.LOST: 2}
    assert "no longer knows the job of this task" in (state.tasks[3].reason or "")
    assert cluster.asked == [{"101": [1, 2, 3], "102": []}], "one call, about what is missing"
    assert state.tasks[0].state == State.DONE, "a result counts, whatever Slurm says"
    silent = state_of(directory, Said(trouble="squeue: no answer within 60 s"))
    assert silent.counts == {State.DONE: 1, State.UNKNOWN: 3}
    assert not silent.finished
    assert "Slurm does not answer: squeue: no answer within 60 s" in status_lines(directory, silent)


def test_a_half_written_result_is_none(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    submitted(directory, Said())
    element(directory, 1, 0)
    path = directory.result_path(directory.tasks[0])
    path.write_text(path.read_text()[:100])
    assert directory.results() == {}


def test_what_was_cancelled_before_it_started(workload: Path, tmp_path: Path) -> None:
    """Slurm forgets at once the elements that are cancelled before they start."""
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    cluster.say("101", 0, JobIs.RUNNING)
    for at in (1, 2, 3):
        cluster.say("101", at, JobIs.PENDING)
    assert cancel(directory, cluster, "1,3").tasks == [1, 3]
    assert cluster.asked[-1] == ["101_[1,3]"]
    del cluster.rows["101", 1], cluster.rows["101", 3], cluster.rows["101", 2]
    states = [task.state for task in state_of(directory, cluster).tasks]
    assert states == [State.WAITING, State.CANCELLED, State.LOST, State.CANCELLED]
    silent = state_of(directory, Said(trouble="away"))
    assert silent.counts == {State.UNKNOWN: 4}, "it may not have reached Slurm"


def test_how_a_job_ended_is_kept_when_slurm_has_forgotten_it(
    workload: Path, tmp_path: Path
) -> None:
    """Without accounting, the controller knows it for some minutes (MinJobAge)."""
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    ends = (JobIs.CANCELLED, JobIs.TIMEOUT, JobIs.NODE_FAIL, JobIs.PREEMPTED)
    for at, end in enumerate(ends):
        cluster.say("101", at, end)
    before = [task.state for task in state_of(directory, cluster).tasks]
    assert State.LOST not in before
    for _ in range(2):
        assert [task.state for task in state_of(directory, Said()).tasks] == before
    assert len([*(directory.path / "ended").iterdir()]) == 1, "written once"
    (directory.path / "ended" / "damaged.json").write_text('{"101_0": "gone", "x": [')
    assert [task.state for task in state_of(directory, Said()).tasks] == before


# Resuming


def test_resume_submits_what_did_not_succeed(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    for at in range(3):
        element(directory, 1, at)
    cluster.say("101", 3, JobIs.RUNNING)
    done = resume(directory, cluster)
    assert [task.task.index for task in done.tasks] == [2], "failed; 3 still runs"
    assert done.changes == []
    assert directory.submissions()[-1].what.after == (done.jobs[0], "101"), (
        "the collector waits for 3 too"
    )
    assert [own.what.elements for own in directory.submissions()][2] == ((2,),)
    failed_first = directory.task_directory(directory.tasks[2]) / "result-attempt-1.json"
    assert TaskResult.read(failed_first).failure == "crash", "kept under another name"
    cluster.say("103", 0, JobIs.PENDING)
    cluster.say("104", None, JobIs.PENDING)
    assert resume(directory, cluster) == Resumed(), "in flight"
    cluster.say("103", 0, JobIs.TIMEOUT)
    assert resume(directory, cluster, frozenset({State.LOST})).tasks == ()
    again = resume(directory, cluster, frozenset({State.TIMEOUT})).tasks
    assert [task.task.index for task in again] == [2]
    cluster.say("101", 3, JobIs.UNKNOWN, reason="accounting last said running")
    cluster.say("105", 0, JobIs.RUNNING)
    assert not resume(directory, cluster).tasks, "it may run"
    again = resume(directory, cluster, states_named(["unknown"])).tasks
    assert [task.task.index for task in again] == [3], "whoever says so knows better"


def test_two_resumes_at_once_do_not_submit_twice(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    code = "import sys; from pathlib import Path; from perfpipe.pipelines.claim import claimed\n"
    code += "with claimed(Path(sys.argv[1])): print('claimed', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, str(directory.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(InputError, match=f"in use by process {other.pid} on "):
            resume(directory, Said())
    assert directory.submissions() == []


def test_resume_asks_before_it_submits(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    submitted(directory, Said())
    with pytest.raises(TaskFailed, match="cannot find out which tasks still run: away"):
        resume(directory, Said(trouble="away"))


def test_jobs_whose_ids_were_lost_are_found_again(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    with pytest.raises(Unreachable):
        submitted(directory, Said(refuses=Unreachable("no answer within 60 s")))
    (only,) = directory.submissions()
    assert only.job is None
    cluster = Said(known={comment_of(directory, 1): ["55"]})
    assert adopt_orphans(directory, cluster) == 1
    assert directory.submissions()[0].job == "55"
    assert adopt_orphans(directory, cluster) == 0
    other = batch(workload, tmp_path / "other")
    with pytest.raises(TaskFailed):
        submitted(other, Said(refuses=TaskFailed("invalid partition")))
    assert adopt_orphans(other, Said()) == 0
    assert state_of(other, Said()).counts == {State.UNSUBMITTED: 4}
    assert len(resume(other, Said()).tasks) == 4


# The collector


def test_the_collector_writes_runs_for_what_there_is(
    workload: Path, tmp_path: Path, cli: Cli
) -> None:
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    for at in range(3):
        element(directory, 1, at)
    cluster.say("101", 3, JobIs.OUT_OF_MEMORY, node="n2")
    outcome = collect(directory, 2, cluster)
    assert outcome is not None
    assert (outcome.ok, outcome.exit_code) == (False, 1)
    assert outcome.counts == {"done": 2, "failed": 1, "out of memory": 1}
    (run,) = Store(tmp_path / "store").runs()
    assert run.status == "failed"
    assert [task.status for task in run.tasks] == ["done", "done", "failed", "failed"]
    assert run.tasks[3].failure == "out_of_memory"
    assert cli("query", "SELECT node, job, attempt FROM run_tasks WHERE status = 'done'") == 0, (
        cli.err
    )
    assert cli.out.split()[3:] == ["n1", "101_0", "1", "n1", "101_1", "1"]


def test_what_slurm_broke_is_submitted_again_and_not_for_ever(
    workload: Path, tmp_path: Path
) -> None:
    directory = batch(workload, tmp_path / "store", kind="ok", n=1)
    cluster = Said()
    submitted(directory, cluster)
    cluster.say("101", 0, JobIs.NODE_FAIL, node="n2")
    outcome = collect(directory, 2, cluster)
    assert outcome is not None
    assert outcome.resubmitted == 1
    assert directory.outcome() is None, "not the end"
    assert collect(directory, 2, cluster) is None, "a later collector finishes"
    cluster.say("103", 0, JobIs.PREEMPTED)
    last = collect(directory, 4, cluster)
    assert last is not None
    assert last.counts == {"preempted": 1}, "two submissions are the most for this batch"
    assert directory.outcome() == last


def test_what_ends_a_job_is_told_of_the_tasks_that_it_concerns(
    workload: Path, tmp_path: Path
) -> None:
    directory = batch(workload, tmp_path / "store", kind="ok", slurm={"tasks_per_job": 2})
    cluster = Said()
    submitted(directory, cluster)
    for job, others in (
        (JobIs.NODE_FAIL, State.NODE_FAILURE),
        (JobIs.PREEMPTED, State.PREEMPTED),
        (JobIs.CANCELLED, State.CANCELLED),
        (JobIs.OUT_OF_MEMORY, State.STOPPED),
        (JobIs.TIMEOUT, State.STOPPED),
    ):
        cluster.say("101", 0, job)
        state = state_of(directory, cluster)
        assert [task.state for task in state.tasks] == [job.value, others]
        again = broken_by_slurm(directory, state)
        assert len(again) == (2 if others in (State.NODE_FAILURE, State.PREEMPTED) else 0)


def test_results_that_appear_late_are_waited_for(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store", kind="ok", n=1)
    cluster = Said()
    submitted(directory, cluster)
    element(directory, 1, 0)
    path = directory.result_path(directory.tasks[0])
    hidden = path.rename(path.with_name("not-here-yet"))
    cluster.say("101", 0, JobIs.COMPLETED, exit_code=0)
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            hidden.rename(path)

    outcome = collect(directory, 2, cluster, sleep)
    assert outcome is not None
    assert outcome.ok
    assert slept == [1, 2, 4]
    path.unlink()
    slept.append(0)
    outcome = collect(directory, 2, cluster, sleep)
    assert outcome is not None
    assert outcome.counts == {"lost": 1}
    assert 60 <= sum(slept[4:]) < 90, "and not for ever"
    slept.clear()
    for ended in ({"signal": 9, "exit_code": 0}, {"exit_code": 2}):
        cluster.say("101", 0, JobIs.FAILED, **ended)
        outcome = collect(directory, 2, cluster, sleep)
        assert outcome is not None
        assert outcome.counts == {"lost": 1}
    assert slept == [], "what was killed or could not write leaves no result late"
