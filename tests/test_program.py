"""A program without a workload file: perfpipe run -- PROGRAM."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.pipelines import tools
from perfpipe.pipelines.program import Program, name_of
from perfpipe.pipelines.tasks import literal, tasks
from perfpipe.pipelines.workload import Workload, load_workload
from perfpipe.store import Store


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 3e-4", "train"),
        ("python3.11 -u src/train.v2.py", "train.v2"),
        ("/opt/env/bin/python -m pkg.training.main --lr 1", "main"),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "train"),
        ("torchrun --standalone --nproc-per-node 2 train.py --out b.py", "train"),
        ("mpirun -n 4 ./bench --size 3", "bench"),
        ("mpirun -n 4 --host a,b python -u run/infer.py", "infer"),
        ("srun -n 2 --gpus=1 python train.py", "train"),
        ("./build/gemm_bench 4096", "gemm_bench"),
        ("bash scripts/run.sh", "run"),
        ("env A=b OMP_NUM_THREADS=2 python x.py", "x"),
        ("python -c pass", "python"),
        ("./a+b", "a-b"),
        ("./+", "program"),
    ],
)
def test_a_run_is_named_after_its_program(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench").write_text("#!/bin/sh\n")
    (tmp_path / "bench").chmod(0o755)
    assert name_of(command.split()) == name


def test_everything_that_a_file_does(
    profilers: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    """A program that knows nothing of perfpipe, in a directory of its own, with a variable."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(
        "import os, sys\n"
        "with open('seen', 'a') as file:\n"
        "    print(os.environ['PERFPIPE_COLLECTOR'], os.environ['A'], sys.argv[1:], file=file)\n"
        "print('loss 0.3')\n"
    )
    words = ["--collector", "all", "--cwd", "src", "--env", "A=b=c,d", "--save", "saved.yaml"]
    program = ["python3", "train.py", "--lr", "3e-4", "{lr}", "", "--collector"]
    assert cli("run", *words, "--", *program, report=True) == 0, cli.err
    seen = (tmp_path / "src" / "seen").read_text().splitlines()
    given = "b=c,d ['--lr', '3e-4', '{lr}', '', '--collector']"
    assert seen == [f"{kind} {given}" for kind in ("plain", "nsys", "ncu")]
    (run,) = Store(tmp_path / "store").runs()
    (task,) = run.tasks
    assert (run.workload, run.status, len(task.reports)) == ("train", "done", 2)
    assert (task.times_ms, task.median_ms) == ((), None)
    assert task.wall_s and task.wall_s > 0
    assert "Wall time: " in cli.out
    assert "Report: report.html, report.md" in cli.out
    assert "the time per iteration is unknown" in (tmp_path / "report.md").read_text()
    assert "--trace=cuda,nvtx,osrt" in (profilers / "nsys.log").read_text()

    # The file that it would have needed does the same.
    assert cli("run", "saved.yaml", "--collector", "timing") == 0, cli.err
    assert (tmp_path / "src" / "seen").read_text().splitlines() == [*seen, seen[0]]
    first, second = (run.tasks[0] for run in Store(tmp_path / "store").runs())
    assert (first.key, first.command) == (second.key, second.command)
    assert cli("run", *words, "--", *program) == 2
    assert "saved.yaml already exists; --force overwrites it" in cli.err
    assert cli("run", *words, "--dry-run", "--force", "--", *program) == 0
    assert shlex.join(program[:-2]) in cli.out

    # Only a run of the same words is resumed.
    assert cli("run", "--resume", *words[:6], "--", *program) == 0
    assert f"resuming {run.run_id}" in cli.err
    assert ": kept" in cli.err
    words[1] = "timing"
    assert cli("run", "--resume", *words[:6], "--", *program, "more") == 0
    assert "no run of train to resume" in cli.err


@given(st.text())
def test_nothing_is_replaced_in_the_words_of_a_program(text: str) -> None:
    workload = Workload(version=1, name="w", command=["a", literal(text)], matrix={"lr": [1]})
    (task,) = tasks(workload, Path("w.yaml"))
    assert task.command == ("a", text)


def test_words_may_be_longer_than_names_of_files() -> None:
    """Text of a program, as after `python -c`."""
    workload = Workload(version=1, name="w", command=["python", "-c", "pass;" * 100])
    (task,) = tasks(workload, Path("w.yaml"))
    assert task.command[-1] == "pass;" * 100


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1))
def test_a_saved_file_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    path = tmp_path_factory.mktemp("saved") / "w.yaml"
    program = Program(("env", *words), {"A": words[0]}, path.parent, {"timeout": 5})
    program.save(path, force=False)
    assert load_workload(path) == program.workload().model_copy(update={"cwd": None})


@pytest.mark.parametrize(
    ("collector", "profilers"),
    [("auto", {"nsys", "ncu"}), ("nsys", {"nsys"}), ("torch", {"torch"}), ("timing", set())],
)
def test_a_saved_file_collects_what_was_asked_for(
    collector: str, profilers: set[str], tmp_path: Path
) -> None:
    Program(("true",), collector=collector).save(tmp_path / "w.yaml", force=False)
    collected = load_workload(tmp_path / "w.yaml").collect
    assert {name for name in ("nsys", "ncu", "torch") if getattr(collected, name)} == profilers


def test_several_ranks(profilers: Path, cli: Cli, tmp_path: Path) -> None:
    """nsys stands before what forks ranks, and before each task of srun, with its rank's name."""
    (tmp_path / "train.py").write_text(
        "import os; open('ranks', 'a').write(os.environ.get('SLURM_PROCID', '-'))"
    )
    for name, text in (
        ("torchrun", 'shift 2; python3 "$@" & python3 "$@"; wait'),
        ("srun", 'shift 7; SLURM_PROCID=0 "$@" && SLURM_PROCID=1 "$@"'),
    ):  # fmt: skip
        (profilers / name).write_text(f"#!/bin/sh\n{text}\n")
        (profilers / name).chmod(0o755)
    words = ["torchrun", "--nproc-per-node", "2", "train.py"]
    assert cli("run", "--collector", "nsys", "--", *words) == 0, cli.err
    assert f"nsys.nsys-rep {shlex.join(words)}" in (profilers / "nsys.log").read_text()
    (profilers / "nsys.log").unlink()
    assert (tmp_path / "ranks").read_text() == "----"
    (tmp_path / "ranks").unlink()
    words = ["srun", "-ln", "2", "-p", "gpu", "--gpus", "1", "--exclusive", "python3", "train.py"]
    assert cli("run", "--collector", "nsys", "--", *words) == 0, cli.err
    traced = [line for line in (profilers / "nsys.log").open() if line.startswith("profile")]
    assert len(traced) == 2, "each of the tasks"
    assert all(line.endswith("nsys-rank%q{SLURM_PROCID} python3 train.py\n") for line in traced)
    written = {path.name for path in (tmp_path / "store" / "runs").rglob("nsys*.sqlite")}
    assert written == {"nsys.sqlite", "nsys-rank0.sqlite", "nsys-rank1.sqlite"}
    assert (tmp_path / "ranks").read_text() == "0101"
    names = [run.workload for run in Store(tmp_path / "store").runs()]
    assert names == ["train", "train"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("", 2, "give a workload file, a program after --, or a server with --serve"),
        ("--", 2, "no program after --"),
        ("-- no-such-program", 5, "no-such-program: no such program"),
        ("-- ./no-such-program", 5, "./no-such-program: no such program"),
        ("-- plain.py", 2, "plain.py is not executable; did you mean 'perfpipe run -- python plain.py'?"),
        ("-- w.yaml", 2, "w.yaml is a workload file; use: perfpipe run w.yaml"),
        ("-- nsys profile true", 2, "perfpipe starts nsys itself"),
        ("w.yaml -- true", 2, "either a workload file (w.yaml) or a program after --"),
        ("plain.py", 2, "did you mean 'perfpipe run -- python plain.py'?"),
        ("true --lr 3", 2, "true is not a workload file; did you mean 'perfpipe run -- true --lr 3'?"),
        ("--collector nsys true -x", 2, "did you mean 'perfpipe run --collector nsys -- true -x'?"),
        ("--env A=b plain.py", 2, "did you mean 'perfpipe run --env A=b -- python plain.py'?"),
        ("--env A=b w.yaml", 2, "--env needs a program after --"),
        ("--save s.yaml w.yaml", 2, "--save needs a program after --"),
        ("--sizes 3 -- true", 2, "--sizes needs a workload file"),
        ("--env A -- true", 2, "--env A: expected NAME=VALUE"),
        ("--cwd nowhere -- true", 2, "--cwd nowhere: no such directory"),
        ("--set lr=3 -- true", 2, "only timeout, duration and launches can be set"),
        ("--set timeout=-1 -- true", 2, "--set timeout: "),
        ("--collector replay -- true", 2, "a program without a workload file has no recording"),
        ("--bogus w.yaml", 2, "No such option"),
        ("-- srun -n 2", 2, "no program after the options of srun"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_said(
    words: str, code: int, sentence: str, cli: Cli, tmp_path: Path, profilers: Path
) -> None:
    (tmp_path / "plain.py").write_text("def f():\n  return {}\n")
    (tmp_path / "w.yaml").write_text("version: 1\nname: w\ncommand: ['true']\n")
    (profilers / "srun").symlink_to("/bin/true")
    assert cli("run", *words.split(), report=True) == code
    assert sentence in cli.err
    assert "Traceback" not in cli.err
    assert not (tmp_path / "store").exists()


def test_without_a_gpu_a_program_is_not_measured(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, profilers: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(tools, "_PLACES", {"nsys": (), "ncu": ()})
    monkeypatch.setattr("perfpipe.pipelines.plan.gpus_on", lambda _: ())
    monkeypatch.setattr("perfpipe.pipelines.commands.run.gpus_on", lambda _: ())
    assert cli("run", "--", "true") == 2
    assert "no GPU found, and a program without a workload file has no recording" in cli.err
    assert "--collector timing" in cli.err
    monkeypatch.setattr("perfpipe.pipelines.plan.gpus_on", lambda _: ("NVIDIA H200",))
    monkeypatch.setattr("perfpipe.pipelines.commands.run.gpus_on", lambda _: ("NVIDIA H200",))
    tools.find_tool.cache_clear()
    assert cli("run", "--", "true") == 5
    assert "found NVIDIA H200, but neither nsys nor ncu" in cli.err


@pytest.fixture
def sized(tmp_path: Path) -> Callable[[str], Path]:
    def write(sizes: str) -> Path:
        path = tmp_path / "w.yaml"
        path.write_text(
            "version: 1\nname: w\ncommand: [echo, '{size}', '{repeats}', '{warmup}', '{dtype}']\n"
            f"sizes: {sizes}\nmatrix: {{dtype: [fp16, bf16]}}\ninclude: [{{size: 9, dtype: fp8}}]\n"
            "repeats: 50\nlaunches: 3\n"
            "collect: {ncu: {set: full, sections: [SourceCounters], launch_count: 2}}\n"
        )
        return path

    return write


def test_quick_is_less_of_the_same(sized: Callable[[str], Path], cli: Cli) -> None:
    def planned(*words: str) -> list[str]:
        assert cli("run", sized("[1, 2, 3, 4, 5]"), "--dry-run", "--json", *words) == 0, cli.err
        return [" ".join(task["command"][1:]) for task in json.loads(cli.out)["tasks"]]

    assert len(planned()) == 11
    assert planned("--quick") == ["1 5 3 fp16", "1 5 3 bf16", "3 5 3 fp16", "3 5 3 bf16"]
    assert planned("--sizes", "7,8", "--set", "dtype=fp16") == ["7 50 10 fp16", "8 50 10 fp16"]
    assert planned("--sizes", "9") == ["9 50 10 fp16", "9 50 10 bf16", "9 50 10 fp8"]
    assert planned("--quick", "--sizes", "7,8,9") == [
        f"{size} 5 3 {dtype}" for size in (7, 8, 9) for dtype in ("fp16", "bf16")
    ]


def test_sizes_must_be_sizes(sized: Callable[[str], Path], cli: Cli) -> None:
    assert cli("run", sized("[1]"), "--sizes", "1,x") == 2
    assert "--sizes 1,x: expected numbers, such as 512,4096" in cli.err
    path = sized("[{m: 1, n: 2}]")
    path.write_text(path.read_text().replace("'{size}', ", "").replace("size: 9, ", ""))
    assert cli("run", path, "--sizes", "1") == 2
    assert "has no parameter 'size'; its parameters are m, n, dtype: use --set m=..." in cli.err


def test_quick_takes_the_cheapest_sections(
    sized: Callable[[str], Path], profilers: Path, cli: Cli
) -> None:
    words = ["--quick", "--set", "dtype=fp16", "--collector", "ncu"]
    assert cli("run", sized("[1]"), *words) == 0, cli.err
    written = (profilers / "ncu.log").read_text()
    assert "--set=basic" in written
    assert "--section" not in written
    assert "--launch-count=2" in written


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(InputError, match="name after -- is empty"):
        Program(("",)).check()
