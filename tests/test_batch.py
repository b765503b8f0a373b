"""Batches without a cluster: packing, what a job runs, and what is submitted.

tests/test_batch_slurm.py has a real one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from batch_helpers import PROGRAM, Said, batch, element, started, submitted
from conftest import ROOT, Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.batchrecord import BatchTask, Stage, State
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.packing import expected_seconds, packed
from perfpipe.pipelines.batch.state import state_of
from perfpipe.pipelines.slurm.states import State as JobIs
from perfpipe.store import Store

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
    assert [len(held) for held in short[0]] == [25, 25, 25, 25], "about a minute each"
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


@pytest.mark.parametrize(("took", "apart"), [(5.0, "inside"), (600.0, "separate")])
def test_long_reading_is_left_to_a_job_without_a_gpu(
    workload: Path, tmp_path: Path, cli: Cli, took: float, apart: str
) -> None:
    assert cli("run", str(workload), "--collector", "timing", "--filter", "kind=ok") == 0, cli.err
    store = Store(tmp_path / "store")
    (run,) = store.runs()
    read = replace(run, tasks=tuple(replace(task, reading_s=took) for task in run.tasks))
    read.write(store.runs_dir / run.run_id / "run.json")
    directory = batch(workload, tmp_path / "store")
    assert directory.slurm(directory.batch.runs[0].run_id).ingest == apart
    asked = batch(workload, tmp_path / "store", slurm={"ingest": "inside"})
    assert asked.slurm(asked.batch.runs[0].run_id).ingest == "inside"


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
    assert result.notes == ("the program's files changed after the batch was submitted",)


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


#: Runs a command; the last line says what of these packages it has imported.
_IMPORTED = """
import sys
from perfpipe.pipelines.cli import run_cli
code = run_cli(sys.argv[1:])
ours = {"perfpipe.analysis", "perfpipe.templates"}
heavy = {"duckdb", "jinja2", "numpy", "pyarrow", "scipy"} | ours
print(*sorted(heavy & sys.modules.keys()))
sys.exit(code)
"""


def test_a_task_without_reports_imports_nothing_to_read_them(
    workload: Path, tmp_path: Path
) -> None:
    directory = batch(workload, tmp_path / "store", kind="ok", n=1)
    submitted(directory, Said())
    words = ["batch", "_task", directory.batch.batch_id, "1", "--store", str(tmp_path / "store")]
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED, *words], cwd=tmp_path, text=True, check=True,
        stdout=subprocess.PIPE, env={**os.environ, "SLURM_ARRAY_TASK_ID": "0"},
    )  # fmt: skip
    assert done.stdout == "\n"
    (result,) = directory.results().values()
    assert result.done
    summary = directory.summary(directory.tasks[0])
    assert summary is not None
    assert summary.step_ms == 1.0


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


# The command


def test_submit_shows_what_it_would_do(workload: Path, cli: Cli, tmp_path: Path) -> None:
    words = ("--collector", "timing", "--partition", "gpu", "--time", "30m", "--dry-run")
    assert cli("batch", "submit", str(workload), *words) == 0, cli.err
    assert "#SBATCH --partition=gpu\n" in cli.out
    assert "#SBATCH --time=0-00:30:00\n" in cli.out
    assert "#SBATCH --array=0-3\n" in cli.out
    assert re.findall(r"#SBATCH --(no-requeue|requeue)\n", cli.out) == ["no-requeue", "requeue"]
    assert cli.out.startswith("[0] w kind=ok n=1\n")
    assert not (tmp_path / "store").exists()
    assert cli("batch", "submit", str(workload), *words, "--json") == 0
    plan = json.loads(cli.out)
    assert [own["stage"] for own in plan["submissions"]] == [Stage.PROFILE, Stage.COLLECT]
    assert plan["submissions"][0]["elements"] == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--time", "90"], "--time: '90' is not a valid time limit, or is ambiguous"),
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
    assert ": no store; create one" in cli.err
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


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [("--time", "90", "ambiguous"), ("--only", "slow", "not one of"), ("--set", "n=1", "timeout")],
)
def test_options_are_checked_before_there_must_be_a_batch(
    option: str, value: str, says: str, cli: Cli, store: Store
) -> None:
    store.reports_dir.mkdir(parents=True)
    assert cli("batch", "resume", option, value, "--store", store.root) == 2
    assert says in cli.err and "no batch here" not in cli.err
    assert cli("batch", "resume", "--store", store.root) == 2
    assert "no batch here" in cli.err


def test_a_parameter_that_no_workload_has(workload: Path, cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(workload.read_text().replace("name: w", "name: v").replace(", n: [1, 2]", "")
                     .replace(', "{n}"', ', "1"'))  # fmt: skip
    words = ["batch", "submit", "--dry-run", "--json", "--collector", "timing"]
    assert cli(*words, workload, "--set", "kidn=ok") == 2
    assert "no parameter kidn; did you mean 'kind'?" in cli.err
    assert cli(*words, workload, other, "--set", "kidn=ok") == 2
    assert "--set kidn: no parameter of any of the workloads" in cli.err
    assert cli(*words, workload, other, "--set", "n=7", "--set", "kind=ok") == 0, cli.err
    assert [task["label"] for task in json.loads(cli.out)["tasks"]] == ["kind=ok n=7", "kind=ok"]


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
    assert "or a program after --" in cli.err
