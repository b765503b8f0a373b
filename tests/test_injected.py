"""The start-up file of launched programs: it observes steps, and changes nothing else."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from faketorch import PROGRAM, write_torch

from perfpipe.pipelines.collectors.observing import INJECTED, Observer, Steps, observing
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

Json = dict[str, Any]


@dataclass(frozen=True)
class Launch:
    """A program that has ended, and what its processes reported."""

    done: subprocess.CompletedProcess[str]
    reports: list[Json]
    started: bool
    steps: Steps

    @property
    def said(self) -> tuple[int, str, str]:
        return self.done.returncode, self.done.stdout, self.done.stderr


class Programs:
    """Runs Python programs beside a package called torch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_torch(folder)

    def __call__(
        self, *words: str, env: Mapping[str, str] | None = None, plain: bool = False
    ) -> Launch:
        known = {"PATH": os.environ["PATH"], "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
        known |= env or {}
        with observing(known, wanted=True) as observer:
            assert observer is not None
            done = subprocess.run(
                [sys.executable, *words],
                cwd=self.folder,
                env={**known, **({} if plain else observer.env)},
                capture_output=True,
                text=True,
                timeout=120,
            )
            folder = Path(observer.env["PERFPIPE_INJECT_DIR"])
            reports = [json.loads(path.read_text()) for path in folder.glob("report.*.json")]
            started = (folder / "started").exists()
            return Launch(done, reports, started, observer.steps(["python", *words]))

    def same(self, *words: str, env: Mapping[str, str] | None = None) -> Launch:
        """Run a program with and without the start-up file; it must not see a difference.

        Tracebacks have other frames.
        """
        found, plain = self(*words, env=env), self(*words, env=env, plain=True)
        if "Traceback" in plain.done.stderr:
            plain.done.stderr = plain.done.stderr.splitlines()[-1]
            found.done.stderr = found.done.stderr.splitlines()[-1]
        assert found.said == plain.said
        return found


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def _counts(report: Json) -> tuple[list[Any], list[Any]]:
    """Return the steps of the optimizers, and the parameters and calls of the modules."""
    return (
        [(one["parameters"], one["steps"]) for one in report["optimizers"]],
        [(one["class"], one["parameters"], one["calls"]) for one in report["modules"]],
    )


@pytest.mark.parametrize("words", [["program.py"], ["-m", "program"], ["-c", "import program"]])
def test_steps_and_outermost_calls_are_counted(programs: Programs, words: list[str]) -> None:
    """Neither a child module nor a loss without parameters is an outermost call of the model."""
    (programs.folder / "program.py").write_text(f"{PROGRAM}\ntrain(30)\nprint('trained')\n")
    found = programs.same(*words)
    assert found.done.stdout == "trained\n"
    (report,) = found.reports
    assert _counts(report) == ([(15, 30)], [("Net", 15, 30)])
    assert report["steps"]["calls"] == [1] * 30
    assert report["ended"] is True
    assert report["torch"] == "2.fake"
    assert set(found.steps.times_ms) == {2.0}, "the clock is read twice in each step"


VIEW = """
import os, sys
os.environ.pop("PERFPIPE_INJECT_DIR", None)
print(sys.path, sorted(sys.modules), sys.flags, len(sys.path_importer_cache))
"""


def test_a_program_sees_no_difference(programs: Programs) -> None:
    """sys.path and the imported modules are the same, so start-up is as short."""
    own = {"PYTHONPATH": os.pathsep.join(["/nowhere", str(programs.folder), ""])}
    for env in ({}, own):
        assert programs.same("-c", VIEW, env=env).started
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {VIEW!r}])"
    programs.same("-c", child)


def test_a_program_without_pytorch_reports_nothing(programs: Programs) -> None:
    code = "import json, sys; print(1); print(2, file=sys.stderr); sys.exit(3)"
    found = programs.same("-c", code)
    assert found.said == (3, "1\n", "2\n")
    assert (found.reports, found.steps) == ([], Steps())


@pytest.mark.parametrize("own", ["print('own')", "raise ValueError('own')", "raise SystemExit(4)",
                                 "import sys; sys.own = 1", "import torch"])  # fmt: skip
def test_the_start_up_file_of_the_user_runs_as_usual(programs: Programs, own: str) -> None:
    site = programs.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(own + "\n")
    env = {"PYTHONPATH": f"{site}{os.pathsep}{programs.folder}"}
    code = f"{PROGRAM}\ntrain(2)\nimport sys\nprint(getattr(sys, 'own', 0), sys.path)\n"
    code += "print(getattr(sys.modules.get('sitecustomize'), '__file__', None))"
    found = programs.same("-c", code, env=env)
    fails = "SystemExit" in own
    assert len(found.reports) == (not fails)
    assert found.done.returncode == (1 if fails else 0)


@pytest.mark.parametrize("option", ["-S", "-I", "-E"])
def test_where_it_cannot_run_the_result_says_so(programs: Programs, option: str) -> None:
    found = programs.same(option, "-c", "print(1)")
    assert not found.started
    assert found.steps.note and "did not run perfpipe's start-up file" in found.steps.note
    assert not found.steps.times_ms


@pytest.mark.parametrize("kind", ["spawn", "fork", "forkserver"])
def test_children_report_their_own_steps(programs: Programs, kind: str) -> None:
    text = f"{PROGRAM}\nimport multiprocessing as mp\nif __name__ == '__main__':\n"
    text += f"    train(3)\n    context = mp.get_context({kind!r})\n"
    text += "    children = [context.Process(target=train, args=(n,)) for n in (5, 7)]\n"
    text += "    for child in children: child.start()\n"
    text += "    for child in children: child.join()\n"
    (programs.folder / "program.py").write_text(text)
    found = programs.same("program.py")
    steps = [one["steps"] for report in found.reports for one in report["optimizers"]]
    assert sorted(steps) == [3, 5, 7]
    assert len({report["pid"] for report in found.reports}) == 3


def test_processes_that_only_load_data_write_nothing(programs: Programs) -> None:
    code = f"{PROGRAM}\nimport multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n"
    code += "    pool.map(str, range(8))\n    pool.close()\n    pool.join()\ntrain(2)"
    assert len(programs.same("-c", code).reports) == 1


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 15)", "os.abort()"])
def test_a_killed_process_keeps_what_it_wrote(programs: Programs, end: str) -> None:
    found = programs("-c", f"{PROGRAM}\nimport os\ntrain(3000)\n{end}")
    assert found.done.returncode in (0, -signal.SIGTERM, -signal.SIGABRT)
    (report,) = found.reports
    assert report["ended"] is False
    # The clock says that 6 s have passed; writing a report takes one tick, 1 ms.
    assert report["optimizers"][0]["steps"] > 2000


def test_outermost_calls_are_those_of_each_thread(programs: Programs) -> None:
    code = f"{PROGRAM}\nimport threading\ninside = threading.Barrier(4)\n"
    code += "class Slow(torch.nn.Module):\n    def forward(self, x):\n        inside.wait()\n"
    code += "net = Net(layer=torch.nn.Module(10), slow=Slow())\n"
    code += "threads = [threading.Thread(target=net, args=(1,)) for _ in range(4)]\n"
    code += "for thread in threads: thread.start()\nfor thread in threads: thread.join()"
    (report,) = programs("-c", code).reports
    assert _counts(report) == ([], [("Net", 10, 4)])


def test_parts_of_a_step_are_one_step(programs: Programs) -> None:
    """Several optimizers, or one called several times, after the same forward pass."""
    code = f"{PROGRAM}\nother = torch.optim.Optimizer([torch.nn.Parameter(3)])\n"
    code += "for _ in range(9):\n    train(1)\n    optimizer.step()\n    other.step()\n"
    (report,) = programs("-c", code).reports
    assert _counts(report)[0] == [(15, 18), (3, 9)]
    assert report["steps"]["optimizer"] == [0] * 9


def test_a_wrapped_model_is_the_model(programs: Programs) -> None:
    code = f"{PROGRAM}\nclass DistributedDataParallel(torch.nn.Module): pass\n"
    code += "train(3, DistributedDataParallel(module=net))\ntrain(2)"
    (report,) = programs("-c", code).reports
    assert _counts(report)[1] == [("Net", 15, 5)]


@pytest.mark.parametrize(
    "before", ["import importlib.util; importlib.util.find_spec('torch')",
               "import importlib.util; importlib.util.find_spec('torch.nn.modules.module')"]
)  # fmt: skip
def test_a_program_that_looks_for_pytorch_first(programs: Programs, before: str) -> None:
    (report,) = programs.same("-c", f"{before}\n{PROGRAM}\ntrain(2)").reports
    assert _counts(report) == ([(15, 2)], [("Net", 15, 2)])


def test_without_hooks_of_optimizers_calls_are_recorded(programs: Programs) -> None:
    """As in PyTorch 1, in which Module.__call__ is also another function."""
    optimizer = programs.folder / "torch" / "optim" / "optimizer.py"
    optimizer.write_text(optimizer.read_text().replace("def register_", "def other_"))
    module = programs.folder / "torch" / "nn" / "modules" / "module.py"
    module.write_text(
        module.read_text().replace("__call__ = _wrapped_call_impl", "__call__ = _call_impl")
    )
    found = programs.same("-c", f"{PROGRAM}\ntrain(30)")
    assert _counts(found.reports[0]) == ([], [("Net", 15, 30)])
    assert set(found.steps.times_ms) == {1.0}


def test_an_error_in_pytorch_is_that_of_pytorch(programs: Programs) -> None:
    (programs.folder / "torch" / "nn" / "__init__.py").write_text("raise ImportError('no library')")
    code = "try:\n    import torch\nexcept ImportError as error:\n    print(error)\n"
    assert programs.same("-c", code + "import torch").done.returncode == 1


def test_memory_is_bounded(programs: Programs) -> None:
    (report,) = programs("-c", f"{PROGRAM}\ntrain((1 << 14) + 100)").reports
    assert report["optimizers"][0]["steps"] == (1 << 14) + 100
    assert len(report["steps"]["time_ns"]) == len(report["modules"][0]["time_ns"]) == 1 << 14


def test_files_run_on_old_pythons() -> None:
    paths = [*INJECTED.rglob("*.py")]
    assert {"sitecustomize.py", "imports.py", "trying.py", "tf32.py"} <= {one.name for one in paths}
    for path in paths:
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        imported = {
            alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
        }
        start_up = ("sitecustomize.py", "imports.py")
        helper = path.parent.name in (INJECTED.name, "handicaps") and path.name not in start_up
        allowed = {"array", "atexit", "functools", "json", "re", "threading", "time", "weakref"}
        allowed |= {"ctypes", "random"}
        assert imported <= {"os", "sys"} | (allowed if helper else {"sitecustomize"})
        annotations = [
            note
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AnnAssign, ast.arg))
            for note in (getattr(node, "returns", None), getattr(node, "annotation", None))
            if note is not None
        ]
        simple = (ast.Constant, ast.Name)
        assert all(isinstance(note, simple) for note in annotations), "3.8 has no list[int]"


COMPILED = """
import copy, pickle, torch
from torch._dynamo.utils import counters
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
net = pickle.loads(pickle.dumps(copy.deepcopy(Net())))
compiled = torch.compile(net, backend="eager", fullgraph=True)
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(30):
    torch.nn.MSELoss()(compiled(torch.ones(4, 8)), torch.zeros(4, 8)).backward()
    optimizer.step()
print(dict(counters["stats"]), dict(counters["graph_break"]), dict(counters["frames"]))
torch.jit.trace(net, torch.ones(4, 8))
"""


@pytest.mark.usefixtures("needs_torch")
def test_pytorch_and_its_compiler_behave_as_usual(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    programs = Programs.__new__(Programs)
    programs.folder = folder
    found = programs("-c", COMPILED, env={"HOME": str(tmp_path)})
    assert found.done.returncode == 0, found.done.stderr
    assert "'unique_graphs': 1} {}" in found.done.stdout
    assert found.done.stdout == programs("-c", COMPILED, plain=True).done.stdout
    (report,) = found.reports
    (step,), modules = _counts(report)
    assert step == (216, 30)
    # torch.jit.trace calls the model three times.
    assert modules[0] == ("Net", 216, 33)


def _write(folder: Path, pid: int, times_ms: Sequence[int], **report: Any) -> None:
    """Write the report of a process that took optimizer steps at these times."""
    content = {
        "gpu": True,
        "optimizers": [{"parameters": 100}],
        "steps": {
            "time_ns": [10**6 * ms for ms in times_ms],
            "optimizer": [0] * len(times_ms),
            "calls": [1] * len(times_ms),
        },
        "modules": [],
        **report,
    }
    (folder / f"report.{pid}.json").write_text(json.dumps(content))


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Callable[[], Steps]]:
    yield lambda: Observer(tmp_path, {}).steps(["./program"])


def test_the_slowest_rank_counts(tmp_path: Path, steps: Callable[[], Steps]) -> None:
    """Processes that only load data, or whose report is damaged, do not count."""
    for rank in (1, 2):
        _write(tmp_path, rank, range(0, 300, 4 + rank))
    loader = {
        "optimizers": [],
        "modules": [{"parameters": 9, "time_ns": [*range(0, 10**9, 10**7)]}],
    }
    _write(tmp_path, 3, [], **loader)
    (tmp_path / "report.4.json").write_text('{"steps": 1')
    (tmp_path / "report.5.json").write_text('{"steps": {"time_ns": 1}, "optimizers": 3}')
    assert set(steps().times_ms) == {6.0}


def test_without_optimizers_calls_of_the_largest_model_count(
    tmp_path: Path, steps: Callable[[], Steps]
) -> None:
    def modules(**milliseconds: int) -> Json:
        found = [
            {"parameters": int(size[1:]), "time_ns": [*range(0, 10**9, 10**6 * ms)]}
            for size, ms in milliseconds.items()
        ]
        return {"optimizers": [], "modules": found}

    _write(tmp_path, 1, [], **modules(n5=1, n90=7, n20=20))
    _write(tmp_path, 2, [], **modules(n30=25))
    assert set(steps().times_ms) == {7.0}


def test_the_optimizer_of_the_main_loop_counts(tmp_path: Path, steps: Callable[[], Steps]) -> None:
    """Of two that alternate, the larger one; not the one of a short loop at the start."""
    before = [(n, 0, 1) for n in range(30)]
    loop = [(100 + 10 * n + 4 * own, 1 + own, 1) for n in range(50) for own in (0, 1)]
    time, optimizer, calls = zip(*before, *loop, strict=True)
    stamps = {"time_ns": [10**6 * ms for ms in time], "optimizer": optimizer, "calls": calls}
    sizes = [{"parameters": size} for size in (900, 50, 70)]
    _write(tmp_path, 1, [], steps=stamps, optimizers=sizes)
    assert set(steps().times_ms) == {10.0}


def test_too_few_steps_are_reported(tmp_path: Path, steps: Callable[[], Steps]) -> None:
    assert steps() == Steps(), "no Python"
    _write(tmp_path, 1, range(5))
    assert "5 optimizer steps are too few" in str(steps().note)


def test_a_run_times_the_steps_of_a_program_that_prints_none(cli: Cli, tmp_path: Path) -> None:
    write_torch(tmp_path)
    program = tmp_path / "train.py"
    program.write_text(f"{PROGRAM}\ntrain(30)\n")
    words = ("run", "--collector", "timing")
    launch = ("--", sys.executable, "train.py")
    assert cli(*words, "--set", "launches=2", *launch, report=True) == 0, cli.err
    assert "median 2 ms" in cli.err
    (run,) = Store(tmp_path / "store").runs()
    (task,), known = run.tasks, {run.run_id}
    assert (task.timing_method, task.median_ms) == ("observed", 2.0)
    assert [len(times) for times in task.launches_ms] == [29, 29]
    assert "58 observed steps" in (tmp_path / "report.md").read_text()

    def last() -> TaskResult:
        (new,) = (run for run in Store(tmp_path / "store").runs() if run.run_id not in known)
        known.add(new.run_id)
        return new.tasks[0]

    assert cli(*words, "--no-observe", "--save", "off.yaml", *launch) == 0, cli.err
    assert (off := last()).times_ms == () and off.timing_method is None
    assert "observe: false" in (tmp_path / "off.yaml").read_text()
    assert cli("compare", *known) == 0, cli.err
    assert "wall time" in cli.out
    assert "on one side only" not in cli.out
    assert cli("run", "off.yaml", "--collector", "timing") == 0, cli.err
    assert last().times_ms == ()
    assert cli("run", "off.yaml", "--collector", "timing", "--no-observe") == 0, cli.err
    assert last().key == off.key != task.key

    program.write_text(program.read_text() + 'print(\'{"perfpipe": "time", "ms": [5]}\')\n')
    assert cli(*words, *launch) == 0, cli.err
    assert last().times_ms == (5.0,)
