"""The start-up file of a launch with modules: it names their calls, and changes nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faketorch import write_torch

from perfpipe.pipelines.collectors.observing import HELPER, observing

#: Records ranges instead of the library of NVTX; nesting is checked at the end.
RECORDED = """
import atexit, json, threading, types
import torch
local, ranges = threading.local(), []
def push(text):
    local.depth = getattr(local, "depth", 0) + 1
    ranges.append((threading.get_ident(), local.depth - 1, text))
def pop():
    local.depth -= 1
    assert local.depth >= 0
own = torch.nn.Module.__call__.__globals__
torch._C = getattr(torch, "_C", types.SimpleNamespace())
torch._C._nvtx = types.SimpleNamespace(rangePushA=push, rangePop=pop)
if "after_torch" in own:
    own["after_torch"](torch)
def told():
    assert getattr(local, "depth", 0) == 0
    print(json.dumps([[depth, text.removeprefix("nn.Module ")] for _, depth, text in ranges]))
    ranges.clear()
"""

#: Modules of the fake torch: a layer, and a network that contains several.
FAKE = """
class Layer(torch.nn.Module): pass
class Net(torch.nn.Module): pass
def net():
    return Net(layers=torch.nn.Module(0, first=Layer(10), second=Layer(5)), head=Layer(2))
"""


def ran(folder: Path, code: str, plain: bool = False) -> subprocess.CompletedProcess[str]:
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    with observing(known, wanted=True) as observer:
        assert observer is not None
        env = {**known, "HOME": str(folder)}
        env |= {} if plain else {**observer.env, HELPER: "modules.py"}
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
        )


def told(folder: Path, code: str) -> list[list[str]]:
    """Return the ranges of each call of told(), indented by their depth."""
    done = ran(folder, RECORDED + code)
    assert done.returncode == 0, done.stderr
    return [[" " * d + text for d, text in json.loads(line)] for line in done.stdout.splitlines()]


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    write_torch(tmp_path)
    return tmp_path


def test_ranges_have_the_path_and_the_class(fake: Path) -> None:
    (found,) = told(fake, FAKE + "net()(1)\ntold()")
    assert found == [
        "Net (Net)",
        " Net: layers (Module)",
        "  Net: layers.first (Layer)",
        "  Net: layers.second (Layer)",
        " Net: head (Layer)",
    ]


@pytest.mark.parametrize("wrapper", ["module", "_orig_mod", "_fsdp_wrapped_module"])
def test_wrappers_are_not_part_of_paths(fake: Path, wrapper: str) -> None:
    code = "class Wrapper(torch.nn.Module): pass\nmodel = net()\n"
    code += f"outer = Wrapper(**{{{wrapper!r}: model}})\nouter(1)\ntold()\n"
    code += f"model._modules['head'] = Wrapper(**{{{wrapper!r}: Layer(3)}})\nmodel(1)\ntold()"
    first, second = told(fake, FAKE + code)
    assert first[:2] == ["Net (Wrapper)", " Net (Net)"]
    assert first[-1] == "  Net: head (Layer)"
    assert second[-2:] == [" Net: head (Wrapper)", "  Net: head (Layer)"]


def test_networks_of_one_class_are_numbered_and_losses_are_not(fake: Path) -> None:
    code = "class Loss(torch.nn.Module): pass\na, b = net(), net()\n"
    code += "for model in (a, b, a):\n    model(1)\n    Loss()(1)\ntold()"
    (found,) = told(fake, FAKE + code)
    assert [text for text in found if text[0] != " "] == [
        *("Net (Net)", "Loss (Loss)", "Net#2 (Net)", "Loss (Loss)", "Net (Net)", "Loss (Loss)")
    ]


def test_a_part_called_alone_keeps_its_path(fake: Path) -> None:
    """As in generation, in checkpoints that recompute, and in generators."""
    code = "model = net()\nmodel(1)\ntold()\nmodel._modules['layers'](1)\ntold()"
    _, found = told(fake, FAKE + code)
    assert found[0] == "Net: layers (Module)"


def test_modules_that_come_later_have_paths(fake: Path) -> None:
    code = "model = net()\nmodel(1)\ntold()\nmodel._modules['last'] = Layer(3, deep=Layer(1))\n"
    code += "model._modules['head'] = Layer(7)\nmodel(1)\ntold()"
    _, found = told(fake, FAKE + code)
    assert found[-3:] == [" Net: head (Layer)", " Net: last (Layer)", "  Net: last.deep (Layer)"]


def test_modules_without_a_path_are_named_below_their_caller(fake: Path) -> None:
    code = "class Odd(torch.nn.Module):\n    def forward(self, x):\n        Layer()(x)\n"
    code += "        return kept(x)\nkept = net()\nOdd(inner=torch.nn.Module())(1)\ntold()\n"
    code += "Net(a=Odd(3))(1)\ntold()"
    first, second = told(fake, FAKE + code)
    assert first[:3] == ["Odd (Odd)", " Odd: (Layer) (Layer)", " Net (Net)"]
    assert second[1:3] == [" Net#2: a (Odd)", "  Net#2: a.(Layer) (Layer)"]


def test_recursion_and_shared_modules(fake: Path) -> None:
    code = "class Twice(torch.nn.Module):\n    def forward(self, x, n=2):\n"
    code += "        return self(x, n - 1) if n else self._modules['a'](x)\n"
    code += "shared = Layer(1)\nTwice(1, a=shared, b=shared)(1)\ntold()"
    (found,) = told(fake, FAKE + code)
    assert found == ["Twice (Twice)", " Twice (Twice)", "  Twice (Twice)", "   Twice: a (Layer)"]


def test_ranges_end_with_exceptions(fake: Path) -> None:
    code = "class Bad(torch.nn.Module):\n    def forward(self, x):\n        raise ValueError(x)\n"
    code += "for _ in range(2):\n    try:\n        Net(a=Bad(1))(1)\n    except ValueError:\n        told()"
    first, _ = told(fake, FAKE + code)
    assert first == ["Net (Net)", " Net: a (Bad)"]


def test_odd_names_do_not_break_the_form(fake: Path) -> None:
    code = "Odd = type('My (odd): Net', (torch.nn.Module,), {})\nOdd(**{'a b: (c)': Layer(1)})(1)\ntold()"
    (found,) = told(fake, FAKE + code)
    assert found == ["My__odd___Net (My__odd___Net)", " My__odd___Net: a b: (c) (Layer)"]


def test_threads_have_ranges_of_their_own(fake: Path) -> None:
    code = (
        "model = net()\nthreads = [threading.Thread(target=model, args=(1,)) for _ in range(4)]\n"
    )
    code += "for thread in threads: thread.start()\nfor thread in threads: thread.join()\n"
    code += "print(json.dumps([[d, t] for n in {n for n, *_ in ranges} for m, d, t in ranges if m == n]))"
    (found,) = told(fake, FAKE + code)
    assert len(found) in (5, 10, 15, 20), "ids of threads may be reused"
    assert found.count("nn.Module Net (Net)") == 4


def test_errors_in_ranges_do_not_reach_the_program(fake: Path) -> None:
    """A module that cannot be looked at, and a library that fails, have no ranges."""
    code = "class Hidden(torch.nn.Module):\n    _modules = property(lambda self: 1 / 0, lambda *_: None)\n"
    code += "    def forward(self, x):\n        return x\nprint(Hidden(1)(5))\ntold()"
    done = ran(fake, RECORDED + FAKE + code)
    assert done.stdout.splitlines() == ["5", "[]"], done.stderr
    code = "own['_push'] = lambda text: 1 / 0\nassert net()(1) == 1\ntold()"
    assert told(fake, FAKE + code) == [[]]


def test_nothing_is_written_or_printed(fake: Path) -> None:
    code = f"import torch\n{FAKE}\nprint(net()(1))"
    found, plain = ran(fake, code), ran(fake, code, plain=True)
    assert (found.stdout, found.stderr) == (plain.stdout, plain.stderr) == ("1\n", "")


BLOCK = """
nn = torch.nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)
    def forward(self, x):
        return self.act(self.linear(x) + 1)
"""

COMPILED = f"""
import torch
from torch._dynamo.utils import counters
{BLOCK}class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Block(), Block()
    def forward(self, x):
        x = self.a(x)
        torch._dynamo.graph_break()
        return self.b(x)
x = torch.ones(2, 4, requires_grad=True)
block, part = Block(), Block()
part.compile(backend="eager")
compiled = [
    torch.compile(Block(), backend="eager", fullgraph=True),
    torch.compile(Broken(), backend="eager"),
    torch.compile(lambda x: 2 * block(x), backend="eager", fullgraph=True),
    nn.Sequential(part, Block()),
]
for model in compiled:
    for _ in range(3):
        model(x).sum().backward()
    print({{name: dict(counters[name]) for name in ("stats", "frames", "graph_break")}})
    counters.clear()
    torch._dynamo.reset()
torch.jit.trace(Block(), x)
torch.jit.script(nn.Linear(4, 4))(x)
print(torch.fx.symbolic_trace(Block()).code)
"""


@pytest.mark.usefixtures("needs_torch")
def test_compilers_produce_the_same_graphs(tmp_path: Path) -> None:
    found, plain = ran(tmp_path, COMPILED), ran(tmp_path, COMPILED, plain=True)
    assert found.returncode == 0, found.stderr
    assert "'unique_graphs': 1}" in found.stdout
    assert found.stdout == plain.stdout


REAL = f"""
from torch.utils.checkpoint import checkpoint
{BLOCK}class Saving(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.block, self.reentrant = Block(), reentrant
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=self.reentrant)
x = torch.ones(2, 4, requires_grad=True)
for reentrant in (True, False):
    Saving(reentrant)(x).sum().backward()
    told()
class Yields(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        yield self.linear(x)
steps, block = Yields()(x), Block()
block(x)
next(steps)
told()
nn.DataParallel(block)(x)
told()
compiled = torch.compile(nn.Sequential(Block()), backend="eager")
compiled(x)
compiled(x)
told()
"""


@pytest.mark.usefixtures("needs_torch")
def test_modules_of_pytorch(tmp_path: Path) -> None:
    first, second, yields, parallel, compiled = told(tmp_path, REAL)
    block = ["Saving: block (Block)", " Saving: block.linear (Linear)", " Saving: block.act (ReLU)"]
    assert first == ["Saving (Saving)", *(f" {text}" for text in block), *block], "recomputed"
    assert second == [text.replace("Saving", "Saving#2", 1) if "(Saving)" not in text
                      else "Saving#2 (Saving)" for text in first]  # fmt: skip
    whole = ["Block (Block)", " Block: linear (Linear)", " Block: act (ReLU)"]
    assert yields == ["Yields (Yields)", *whole, "Yields: linear (Linear)"]
    assert parallel == ["Block (DataParallel)", *(f" {text}" for text in whole)]
    assert compiled == ["Sequential (OptimizedModule)"] * 2, "graphs have no ranges"
