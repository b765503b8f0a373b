"""Batches without a cluster: packing, states, what a job runs, resuming, and the collector.

Slurm's answers are given here; tests/test_batch_slurm.py has a real one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.batchrecord import BatchTask, Stage, State
from perfpipe.errors import InputError, TaskFailed
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store
from pipelines.batch.collecting import collect
from pipelines.batch.disk import BatchDirectory
from pipelines.batch.freezing import Wanted, freeze
from pipelines.batch.packing import expected_seconds, packed
from pipelines.batch.resuming import adopt_orphans, broken_by_slurm, resume
from pipelines.batch.state import state_of
from pipelines.batch.submitting import arrays_of, comment_of, submit
from pipelines.batch.task import run_element
from pipelines.batch.telling import status_lines
from pipelines.slurm.client import Answer, Cluster, Unreachable
from pipelines.slurm.limits import Limits
from pipelines.slurm.options import Slurm, merged
from pipelines.slurm.states import JobState
from pipelines.slurm.states import State as JobIs
from pipelines.workload import load_workload

PROGRAM = """
import json, os, sys, time
kind, n = sys.argv[1], float(sys.argv[2])
with open("launched", "a") as file:
    file.write(f"{kind}{n:g} ")
if kind == "fail":
    sys.exit("no such kind")
if kind == "slow":
    time.sleep(60)
print(json.dumps({"perfpipe": "time", "ms": [n, n]}))
"""


@dataclass(frozen=True)
class Said(Cluster):
    """A cluster that says what the test wants, and keeps what it was asked."""

    rows: dict[tuple[str, int | None], JobState] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)
    known: dict[str, list[str]] = field(default_factory=dict)
    trouble: str | None = None
    refuses: Exception | None = None

    def states(self, jobs: Mapping[str, Iterable[int]] | Iterable[str]) -> Answer:
        self.asked.append(dict(jobs) if isinstance(jobs, Mapping) else list(jobs))
        return Answer(self.rows, self.trouble)

    def submit(self, script: Path) -> str:
        if self.refuses:
            raise self.refuses
        self.asked.append(script.read_text())
        return str(100 + int(script.parent.name))

    def find(self, comment: str) -> list[str]:
        return self.known.get(comment, [])

    def limits(self) -> Limits:
        return Limits("c", "22.05", 1001, None, None, False, ())

    def say(self, job: str, at: int | None, state: JobIs, **more: Any) -> None:
        self.rows[job, at] = JobState(job, at, state, **more)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = tmp_path / "w.yaml"
    path.write_text(textwrap.dedent("""
        version: 1
        name: w
        command: ["{python}", program.py, "{kind}", "{n}"]
        matrix: {kind: [ok, fail], n: [1, 2]}
        slurm: {gpus: 0, tasks_per_job: 1}
        """))  # fmt: skip
    return path


def batch(path: Path, store: Path, **settings: Any) -> BatchDirectory:
    """Return a batch on disk, with `settings` as of --set, that no job was made of."""
    arms = settings.pop("arms", None)
    slurm = Slurm(**settings.pop("slurm", {}))
    sets = {
        name: [value] if not isinstance(value, list) else value for name, value in settings.items()
    }
    frozen = freeze(
        [Wanted(load_workload(path, sets), path)],
        store=Store(store),
        collector="timing",
        slurm_of=lambda own: merged(own, slurm),
        filters={},
        command=[],
        pages=True,
        max_attempts=2,
        arms=arms,
    )
    return BatchDirectory.create(Store(store), frozen.batch, frozen.tasks, frozen.workloads)


def submitted(directory: BatchDirectory, cluster: Said) -> list[str]:
    """Submit all tasks of a batch and return the jobs."""
    slurm = {run.run_id: directory.workload(run.run_id).slurm for run in directory.batch.runs}
    arrays = arrays_of(
        directory.tasks, {k: v for k, v in slurm.items() if v}, {}, 1000, directory.batch.arms
    )
    return submit(directory, cluster, arrays, "submit")


def element(directory: BatchDirectory, number: int, at: int, job: str = "101") -> bool:
    """Run an array element as its job would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_ARRAY_JOB_ID", job)
        patch.setenv("SLURM_ARRAY_TASK_ID", str(at))
        patch.setenv("SLURMD_NODENAME", "n1")
        return run_element(directory, number, at)


# Packing

tasks_st = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.sampled_from(["x", "y"])),
    min_size=1, max_size=60, unique=True,
)  # fmt: skip


@given(tasks_st, st.integers(1, 7), st.one_of(st.none(), st.integers(1, 9)),
       st.sampled_from([None, "arm"]), st.floats(0.1, 100))  # fmt: skip
def test_every_task_is_in_one_element(
    made: list[tuple[str, int, str]],
    largest: int,
    per_job: int | None,
    arms: str | None,
    took: float,
) -> None:
    tasks = [
        BatchTask(i, run, run, i, f"k{i}", "", {"n": n, "arm": arm})
        for i, (run, n, arm) in enumerate(made)
    ]
    expected = {task.index: took for task in tasks}
    arrays = packed(tasks, lambda t: t.run_id, expected, lambda _: per_job, largest, arms)
    flat = [index for array in arrays for held in array for index in held]
    assert sorted(flat) == [*range(len(tasks))]
    assert all(len(array) <= largest for array in arrays)
    for array in arrays:
        assert len({tasks[i].run_id for held in array for i in held}) == 1
    place = {
        i: (a, e) for a, array in enumerate(arrays) for e, held in enumerate(array) for i in held
    }
    for one in tasks:
        for other in tasks:
            alike = one.run_id == other.run_id and one.params["n"] == other.params["n"]
            if arms and alike:
                assert place[one.index] == place[other.index], "arms share a job"
    if per_job and not arms:
        assert all(len(held) <= per_job for array in arrays for held in array)


def test_short_tasks_share_a_job_and_unknown_ones_do_not() -> None:
    tasks = [BatchTask(i, "r", "w", i, f"k{i}", "") for i in range(100)]
    short = packed(tasks, lambda _: 0, dict.fromkeys(range(100), 2.0), lambda _: None, 1000)
    assert [len(held) for held in short[0]] == [30, 30, 30, 10], "a minute each"
    assert len(packed(tasks, lambda _: 0, {}, lambda _: None, 1000)[0]) == 100
    many = [BatchTask(i, "r", "w", i, f"k{i}", "") for i in range(50_000)]
    arrays = packed(many, lambda _: 0, {}, lambda _: None, 1000)
    assert len(arrays) <= 8, "sbatch is called a few times, however many tasks there are"


def test_earlier_runs_say_how_long_tasks_take(workload: Path, tmp_path: Path, cli: Cli) -> None:
    assert cli("run", str(workload), "--collector", "timing", "--filter", "kind=ok") == 0, cli.err
    directory = batch(workload, tmp_path / "store")
    found = expected_seconds(
        directory.store, directory.tasks, {directory.tasks[0].run_id: "timing"}
    )
    assert [0 < found[i] < 30 for i in found] == [True, True]
    assert {directory.tasks[i].params["kind"] for i in found} == {"ok"}


# What a job runs


def test_an_element_runs_its_tasks_once(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store", slurm={"tasks_per_job": 4})
    submitted(directory, Said())
    assert not element(directory, 1, 0), "two of four fail"
    launched = (tmp_path / "launched").read_text()
    assert launched == "ok1 ok2 fail1 fail2 "
    found = directory.results()
    assert [found[i].status for i in range(4)] == ["done", "done", "failed", "failed"]
    assert found[2].failure == "crash"
    assert found[2].ran is not None
    assert (found[2].ran.exit_code, found[2].ran.job, found[2].ran.host) == (1, "101_0", "n1")
    assert found[0].times_ms == (1.0, 1.0)
    assert not element(directory, 1, 0), "what has a result is not run again, failed or not"
    assert (tmp_path / "launched").read_text() == launched
    assert directory.attempts() == {0: 1, 1: 1, 2: 1, 3: 1}


def test_arms_take_turns(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store", kind="ok", arms="n", launches=4)
    (job, _) = submitted(directory, Said())
    assert element(directory, 1, 0, job)
    assert (tmp_path / "launched").read_text() == "ok1 ok2 ok2 ok1 ok1 ok2 ok2 ok1 "
    assert [len(result.launches_ms) for result in directory.results().values()] == [4, 4]


def test_a_frozen_workload_does_not_change(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store", kind="ok", n=1)
    submitted(directory, Said())
    workload.write_text("broken: [")
    (tmp_path / "program.py").write_text(PROGRAM + "\n# edited\n")
    assert element(directory, 1, 0)
    (result,) = directory.results().values()
    assert result.key == directory.tasks[0].key
    assert result.notes == ("the program's files have changed since the batch was submitted",)


def test_a_warning_before_the_time_limit_leaves_what_is_there(
    workload: Path, tmp_path: Path
) -> None:
    directory = batch(
        workload, tmp_path / "store", kind=["slow", "ok"], n=1, slurm={"tasks_per_job": 2}
    )
    submitted(directory, Said())
    with started(directory, tmp_path) as process:
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 1
    found = directory.results()
    assert list(found) == [0], "the task behind it is left"
    assert (found[0].failure, found[0].status) == ("time_limit", "failed")
    cluster = Said()
    cluster.say("101", 0, JobIs.FAILED, exit_code=1)
    states = [task.state for task in state_of(directory, cluster).tasks]
    assert states == [State.TIMEOUT, State.STOPPED]


def test_a_killed_task_has_no_result(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store", kind="slow", n=1)
    submitted(directory, Said())
    with started(directory, tmp_path) as process:
        process.kill()
    assert directory.results() == {}
    cluster = Said()
    for is_now, expected in (
        (JobIs.FAILED, State.LOST),
        (JobIs.COMPLETED, State.LOST),
        (JobIs.OUT_OF_MEMORY, State.OUT_OF_MEMORY),
        (JobIs.NODE_FAIL, State.NODE_FAILURE),
        (JobIs.PREEMPTED, State.PREEMPTED),
        (JobIs.CANCELLED, State.CANCELLED),
        (JobIs.TIMEOUT, State.TIMEOUT),
        (JobIs.RUNNING, State.RUNNING),
        (JobIs.PENDING, State.WAITING),
        (JobIs.UNKNOWN, State.UNKNOWN),
    ):
        cluster.say("101", 0, is_now, node="n2")
        assert state_of(directory, cluster).tasks[0].state == expected


class started:  # noqa: N801
    """A job in a process of its own, which has launched its first program."""

    def __init__(self, directory: BatchDirectory, cwd: Path) -> None:
        self.directory, self.cwd = directory, cwd

    def __enter__(self) -> subprocess.Popen[bytes]:
        words = ["-m", "pipelines", "batch", "_task", self.directory.batch.batch_id, "1",
                 "--store", str(self.directory.store.root)]  # fmt: skip
        env = {**os.environ, "SLURM_ARRAY_JOB_ID": "101", "SLURM_ARRAY_TASK_ID": "0"}
        self.process = subprocess.Popen([sys.executable, *words], cwd=self.cwd, env=env)
        while not (self.cwd / "launched").exists():
            assert self.process.poll() is None
            time.sleep(0.02)
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


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
    assert "does not know its job any more" in (state.tasks[3].reason or "")
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


# Resuming


def test_resume_submits_what_did_not_succeed(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    for at in range(3):
        element(directory, 1, at)
    cluster.say("101", 3, JobIs.RUNNING)
    again, jobs = resume(directory, cluster)
    assert [task.task.index for task in again] == [2], "failed; 3 still runs"
    assert directory.submissions()[-1].what.after == (jobs[0], "101"), (
        "the collector waits for 3 too"
    )
    assert [own.what.elements for own in directory.submissions()][2] == ((2,),)
    failed_first = directory.task_directory(directory.tasks[2]) / "result-attempt-1.json"
    assert TaskResult.read(failed_first).failure == "crash", "kept under another name"
    cluster.say("103", 0, JobIs.PENDING)
    cluster.say("104", None, JobIs.PENDING)
    assert resume(directory, cluster) == ([], []), "in flight"
    cluster.say("103", 0, JobIs.TIMEOUT)
    assert [t.task.index for t in resume(directory, cluster, frozenset({State.LOST}))[0]] == []
    assert [t.task.index for t in resume(directory, cluster, frozenset({State.TIMEOUT}))[0]] == [2]


def test_two_resumes_at_once_do_not_submit_twice(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    code = "import sys; from pathlib import Path; from pipelines.claim import claimed\n"
    code += "with claimed(Path(sys.argv[1])): print('claimed', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, str(directory.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(InputError, match=f"process {other.pid} on .* runs it"):
            resume(directory, Said())
    assert directory.submissions() == []


def test_resume_asks_before_it_submits(workload: Path, tmp_path: Path) -> None:
    directory = batch(workload, tmp_path / "store")
    submitted(directory, Said())
    with pytest.raises(TaskFailed, match="it is not known what still runs: away"):
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
    again, _ = resume(other, Said())
    assert len(again) == 4


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


# Replays and existing reports


def test_a_replayed_batch_and_reports_to_read(tmp_path: Path, cli: Cli) -> None:
    store = tmp_path / "store"
    frozen = freeze(
        [Wanted(load_workload(ROOT / "workloads/gemm.yaml"), ROOT / "workloads/gemm.yaml")],
        store=Store(store), collector="replay", slurm_of=lambda own: merged(own),
        filters={"size": ["512"]}, command=[], pages=True,
        max_attempts=1,
    )  # fmt: skip
    directory = BatchDirectory.create(Store(store), frozen.batch, frozen.tasks, frozen.workloads)
    array, _ = submitted(directory, Said())
    for at in range(len(frozen.tasks)):
        assert element(directory, 1, at, array)
    (task,) = directory.tasks
    summary = directory.summary(task)
    assert summary is not None
    assert summary.sol_pct is not None
    page = directory.task_directory(task) / (summary.page or "")
    assert "replay" in page.read_text().lower()
    outcome = collect(directory, 2, Said())
    assert outcome is not None
    assert outcome.ok
    (run,) = Store(store).runs()
    assert run.recording is not None
    assert run.recording.gpu == "NVIDIA H200"
    assert cli("report", run.run_id, "--md", "-") == 0, cli.err
    assert "NVIDIA H200" in cli.out


def test_submit_shows_what_it_would_do(workload: Path, cli: Cli, tmp_path: Path) -> None:
    words = ("--collector", "timing", "--partition", "gpu", "--time", "30m", "--dry-run")
    assert cli("batch", "submit", str(workload), *words) == 0, cli.err
    assert "#SBATCH --partition=gpu\n" in cli.out
    assert "#SBATCH --time=0-00:30:00\n" in cli.out
    assert "#SBATCH --array=0-3\n" in cli.out
    assert cli.out.startswith("[0] w kind=ok n=1\n")
    assert not (tmp_path / "store").exists()
    assert cli("batch", "submit", str(workload), *words, "--json") == 0
    plan = json.loads(cli.out)
    assert [own["stage"] for own in plan["submissions"]] == [Stage.PROFILE, Stage.COLLECT]
    assert plan["submissions"][0]["elements"] == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--time", "90"], "--time: '90' is no time limit, or an ambiguous one"),
        (["--arms", "kinds"], "--arms kinds: no such parameter; did you mean 'kind'?"),
        (["--collector", "replay"], "the workload has no recording to replay"),
        (["--extra", "--array=1"], "--extra: --array is set by perfpipe"),
        (["--gpus", "-1"], "--gpus: "),
    ],
)
def test_what_cannot_be_submitted_is_said(
    words: list[str], sentence: str, workload: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("batch", "submit", str(workload), *words, "--dry-run") == 2
    assert sentence in cli.err
    assert not (tmp_path / "store").exists()


def test_a_search_is_no_batch(cli: Cli) -> None:
    path = str(ROOT / "workloads" / "fused_matmul_tuning.yaml")
    assert cli("batch", "submit", path, "--dry-run") == 2
    assert "salloc --gpus 1 perfpipe run" in cli.err


def test_a_name_that_is_no_batch(workload: Path, cli: Cli, tmp_path: Path) -> None:
    assert cli("batch", "status") == 2
    assert "no store here" in cli.err
    one = batch(workload, tmp_path / "store")
    other = batch(workload, tmp_path / "store")
    assert cli("batch", "status", "nothing") == 2
    assert "nothing is not a batch" in cli.err.replace(":", "")
    assert cli("batch", "status", "batch-") == 2
    assert one.batch.batch_id in cli.err
    assert other.batch.batch_id in cli.err
    assert cli("batch", "ls") == 0
    assert len(cli.out.splitlines()) == 2
    assert replace(one.batch) == BatchDirectory.find(one.store, one.batch.batch_id).batch


def test_a_program_without_a_file(cli: Cli, tmp_path: Path) -> None:
    words = [
        "--collector",
        "timing",
        "--gpus",
        "0",
        "--dry-run",
        "--json",
        "--",
        "python3",
        "x.py",
        "--time",
    ]
    (tmp_path / "x.py").write_text("print(1)")
    assert cli("batch", "submit", *words) == 0, cli.err
    plan = json.loads(cli.out)
    assert [task["workload"] for task in plan["tasks"]] == ["x"]
    assert cli("batch", "submit", "--dry-run") == 2
    assert "or -- and a program" in cli.err
