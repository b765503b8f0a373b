"""Levers in a program: what the injected side of `perfpipe try` does, with a small stand-in of torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faketorch import PROGRAM, write_torch
from leverprograms import Programs

from perfpipe.pipelines.collectors.observing import HELPER, Observer, observing


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    write_torch(tmp_path)
    return Programs(tmp_path)


HOOKS = """
def install(own):
    own.on_model(lambda module: own.applied("model %s" % type(module).__name__))
    own.on_step(lambda number: own.applied("step") if number > 2 else None)
    def around(call, module, args, kwargs):
        own.applied("call")
        return call(module, *args, **kwargs) + own.options.get("add", 0)
    own.around_model(around)
    own.after("csv", lambda module: own.applied(module.__name__))
    own.after("torch", lambda module: own.applied(module.__name__))
    own.after("os", lambda module: own.applied(module.__name__))
    own.at_end(lambda: own.effective(own.places.get("step", 0) > 3, "why"))
    own.at_end(lambda: {"counted": own.gpu})
"""


def test_hooks_see_models_calls_steps_and_imports(programs: Programs) -> None:
    """A loss without parameters is not a model; a lever is asked for counters at the end."""
    programs.lever("hooks", HOOKS)
    found = programs(f"{PROGRAM}\nimport csv\ntrain(7)\nnet(1)\nprint('done')", ["hooks"])
    assert found.said == (0, "done\n", "")
    own = found.lever()
    assert found.where() == {"model Net": 1, "call": 8, "step": 5, "csv": 1, "torch": 1, "os": 1}
    assert (own["effective"], own["why"], own["counters"]) == (True, "why", {"counted": False})
    (report,) = found.reports
    assert report["steps"]["calls"] == [1] * 7
    (levers,) = found.levers
    assert levers["ended"] is True and levers["memory"] is None and levers["compiling_ns"] == []


def test_levers_are_nested_in_the_order_of_the_plan(programs: Programs) -> None:
    around = "def install(own):\n    def around(call, module, args, kwargs):\n"
    around += "        return own.options['n'] * call(module, *args, **kwargs) + 1\n"
    around += "    own.around_model(around)\n"
    for name in ("a", "b"):
        programs.lever(name, around)
    code = f"{PROGRAM}\nprint(net(5))"
    assert programs(code, {"a": {"n": 2}, "b": {"n": 10}}).done.stdout == "103\n"
    assert programs(code, {"b": {"n": 10}, "a": {"n": 2}}).done.stdout == "111\n"


RAISES = {
    "file": "raise ValueError('broken')",
    "syntax": "def",
    "install": "def install(own):\n    raise ValueError('broken')",
    "model": "def install(own):\n    own.on_model(lambda module: module.broken)",
    "step": "def install(own):\n    own.on_step(lambda number: number.broken)",
    "import": "def install(own):\n    own.after('torch', lambda module: module.broken)",
    "end": "def install(own):\n    own.at_end(lambda: own.broken)",
    "before": "def install(own):\n    own.around_model(lambda call, *rest: call.broken)",
    "behind": "def install(own):\n    own.around_model(lambda call, m, a, k: call(m, *a, **k).broken)",
}


@pytest.mark.parametrize("text", RAISES.values(), ids=RAISES)
def test_a_lever_that_fails_leaves_the_program_alone(programs: Programs, text: str) -> None:
    programs.lever("fails", text)
    found = programs(f"{PROGRAM}\ntrain(5)\nprint(net(1))", ["fails"])
    assert found.said == (0, "1\n", "")
    assert len(found.lever()["failed"]) == 1
    assert found.reports[0]["optimizers"][0]["steps"] == 5
    assert found.reports[0]["modules"][0]["calls"] == 6


def test_an_error_of_the_program_passes_through_a_lever(programs: Programs) -> None:
    programs.lever("hooks", HOOKS)
    code = f"{PROGRAM}\nclass Bad(torch.nn.Module):\n    def forward(self, x, module, call=0):\n"
    code += "        raise KeyError(module)\n"
    code += "try:\n    Bad(3)(1, module='own')\nexcept KeyError as error:\n    print(error.args)\n"
    code += (
        "try:\n    Bad(3)(1, call=3, function=4)\nexcept TypeError as error:\n    print(error)\n"
    )
    found = programs(code, ["hooks"])
    assert found.done.stdout.startswith("('own',)\n") and "function" in found.done.stdout
    assert found.lever()["failed"] == []


UNITS = {
    "steps": ("train(100)", 10, 10),
    "calls": ("for _ in range(100): net(1)", 0, 10),
    "tokens": ("from transformers.generation.utils import Model\nmodel = Model(20)\n"
               "for _ in range(30): model.generate([1])", 0, 10),
}  # fmt: skip


@pytest.mark.parametrize(("code", "steps", "calls"), UNITS.values(), ids=UNITS)
def test_a_program_ends_after_as_many_units(
    programs: Programs, code: str, steps: int, calls: int
) -> None:
    """Its `finally` runs, it ends with 0, and the report is complete."""
    program = (
        PROGRAM if steps else PROGRAM.replace(", torch.optim.Optimizer(net.parameters())", ", 0")
    )
    text = f"{program}\ntry:\n    " + code.replace("\n", "\n    ")
    text += "\nexcept Exception:\n    print('caught')\nfinally:\n    print('finally')\nprint('end')"
    found = programs(text, steps=10)
    assert found.said == (0, "finally\n", "")
    (levers,), (report,) = found.levers, found.reports
    assert levers["stopped_ns"] and levers["ended"]
    assert sum(one["calls"] for one in report["modules"]) == calls
    assert [one["steps"] for one in report["optimizers"]] == ([steps] if steps else [])
    assert programs(text).done.stdout == "finally\nend\n"


def test_an_evaluation_before_training_does_not_end_the_program(programs: Programs) -> None:
    found = programs(f"{PROGRAM}\nfor _ in range(50): net(1)\ntrain(100)", steps=20)
    (report,) = found.reports
    assert (report["modules"][0]["calls"], report["optimizers"][0]["steps"]) == (70, 20)


@pytest.mark.parametrize("kind", ["spawn", "fork"])
def test_children_report_their_own_levers(programs: Programs, kind: str) -> None:
    programs.lever("hooks", HOOKS)
    code = f"{PROGRAM}\nimport multiprocessing as mp\nif __name__ == '__main__':\n"
    code += f"    context = mp.get_context({kind!r})\n"
    code += "    children = [context.Process(target=train, args=(n,)) for n in (5, 7, 30)]\n"
    code += "    for child in children: child.start()\n    for child in children: child.join()\n"
    found = programs(code, ["hooks"], steps=20)
    assert found.said[::2] == (0, "")
    assert sorted(one["optimizers"][0]["steps"] for one in found.reports) == [5, 7, 20]
    assert len(found.levers) == 3
    assert all(one["levers"][0]["applied"] for one in found.levers)


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 15)"])
def test_a_killed_process_keeps_what_it_applied(programs: Programs, end: str) -> None:
    programs.lever("hooks", HOOKS)
    found = programs(f"{PROGRAM}\nimport os\ntrain(3000)\n{end}", ["hooks"])
    assert found.where()["call"] > 2000
    assert found.levers[0]["ended"] is False


def test_threads_apply_levers_to_their_own_calls(programs: Programs) -> None:
    programs.lever("hooks", HOOKS)
    code = f"{PROGRAM}\nimport threading\ninside = threading.Barrier(4)\n"
    code += "class Slow(torch.nn.Module):\n    def forward(self, x):\n        inside.wait()\n"
    code += "        return x\nnet = Net(layer=torch.nn.Module(10), slow=Slow())\n"
    code += "threads = [threading.Thread(target=net, args=(1,)) for _ in range(4)]\n"
    code += "for thread in threads: thread.start()\nfor thread in threads: thread.join()"
    assert programs(code, ["hooks"]).where()["call"] == 4


def test_without_the_start_up_file_nothing_is_reported(programs: Programs) -> None:
    found = programs(f"import sys\nsys.path.insert(0, {str(programs.folder)!r})\n{PROGRAM}\ntrain(3)",
                     ["tf32"], words=["-I"])  # fmt: skip
    assert (found.done.returncode, found.levers, found.reports) == (0, [], [])


def test_a_broken_plan_leaves_the_program_observed(programs: Programs) -> None:
    programs.folder.joinpath("plan.json").write_text("")
    assert programs(f"{PROGRAM}\ntrain(3)", steps="many").said == (0, "", "")
    code = f"import os\nos.environ['PERFPIPE_TRY_PLAN'] = '/nowhere'\n{PROGRAM}\ntrain(3)"
    found = programs(code, ["tf32"])
    assert found.said == (0, "", "") and found.levers[0]["levers"] == []
    assert found.reports[0]["optimizers"][0]["steps"] == 3


def test_modules_are_seen_in_whatever_order_they_are_imported(programs: Programs) -> None:
    """A module that imports PyTorch is not initialized when PyTorch is."""
    text = "def install(own):\n"
    text += (
        "    own.after('transformers.generation.utils', lambda m: own.applied(m.Model.__name__))"
    )
    programs.lever("late", text)
    for code in ("import torch\nimport transformers.generation.utils as u",
                 "import transformers.generation.utils as u",
                 "from transformers.generation import utils as u"):  # fmt: skip
        found = programs(f"{code}\nprint(u.__spec__.__class__.__name__)\nu.Model(3)(1)", ["late"])
        assert found.done.stdout == "ModuleSpec\n", found.done.stderr
        assert found.where() == {"Model": 1}


def test_a_module_that_fails_to_import_is_not_shown(programs: Programs) -> None:
    broken = programs.folder / "broken.py"
    broken.write_text("import torch\nraise ValueError('own')")
    programs.lever(
        "late", "def install(own):\n    own.after('broken', lambda m: own.applied('it'))"
    )
    code = f"try:\n    import broken\nexcept ValueError as error:\n    print(error)\n{PROGRAM}\ntrain(2)"
    found = programs(code, ["late"])
    assert found.said == (0, "own\n", "") and found.where() == {}


def test_tokens_are_steps_of_a_program_that_generates(programs: Programs, tmp_path: Path) -> None:
    code = PROGRAM.replace(", torch.optim.Optimizer(net.parameters())", ", 0")
    code += "from transformers.generation.utils import Model\nmodel = Model(20)\n"
    code += "for _ in range(9): model.generate([1])\n"
    (report,) = programs(code).reports
    assert len(report["tokens"]["time_ns"]) == 36
    (tmp_path / "report.1.json").write_text(json.dumps(report))
    steps = Observer(tmp_path, {}).steps(["program"])
    assert len(steps.times_ms) == 35
    report["tokens"]["time_ns"] = report["tokens"]["time_ns"][:3]
    (tmp_path / "report.1.json").write_text(json.dumps(report))
    note = Observer(tmp_path, {}).steps(["program"]).note
    assert note is not None and "3 generated tokens are too few" in note
    report["optimizers"] = [{"parameters": 20}]
    report["steps"] = {
        "time_ns": [*range(0, 10**9, 10**7)],
        "optimizer": [0] * 100,
        "calls": [1] * 100,
    }
    (tmp_path / "report.1.json").write_text(json.dumps(report))
    assert set(Observer(tmp_path, {}).steps(["program"]).times_ms) == {10.0}


def test_start_up_is_short(programs: Programs) -> None:
    """Of a program without PyTorch; the fastest of a dozen launches with and without."""
    plan = programs.folder / "plan.json"
    plan.write_text(json.dumps({"levers": [{"name": "tf32", "file": "nowhere", "options": {}}]}))
    known = {"PATH": os.environ["PATH"]}
    with observing(known, wanted=True) as observer:
        assert observer is not None
        more = {**observer.env, HELPER: "trying.py", "PERFPIPE_TRY_PLAN": str(plan)}
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(24):
            env = known | (more if number % 2 else {})
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import json"], env=env, check=True)
            seconds[bool(number % 2)].append(time.perf_counter() - start)
    assert min(seconds[True]) - min(seconds[False]) < 0.010
