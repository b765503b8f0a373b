"""What levers do to programs that use PyTorch, on a CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from leverprograms import Programs

from perfpipe.pipelines.trying.levers import levers


@pytest.fixture
def programs(tmp_path: Path, needs_torch: None) -> Programs:
    return Programs(tmp_path)


LOADERS = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
class Own(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return i
class Epochs(Own):
    def set_epoch(self, epoch): pass
class Stream(IterableDataset):
    def __iter__(self): return iter(range(8))
class Shared(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, 8, info.num_workers) if info else range(8))
class Loader(DataLoader):
    def __init__(self, dataset, more):
        self.more = more
        super().__init__(dataset, 4)
class Cuda(Own):
    def __getitem__(self, i): return torch.ones(1).cuda()
class Named(Own):
    device = "cpu"
    def __init__(self, device): self.device = device
def items(loader):
    return sorted(int(one) for batch in loader for one in batch)
net = torch.nn.Linear(1, 1)
net(torch.ones(1, 1))
for loader in (DataLoader(Own(), 4), DataLoader(Own(), 2, True, None, None, 1), Loader(Own(), more=1),
               DataLoader(Own(), 4, num_workers=2), DataLoader(Epochs(), 4), DataLoader(Stream(), 4),
               DataLoader(Shared(), 4), DataLoader(range(8), batch_size=None)):
    found = items(loader) if loader.batch_size else sorted(loader)
    assert [int(one) for one in found] == list(range(8)), found
    print(loader.num_workers, loader.persistent_workers, loader.pin_memory)
unused, cuda = DataLoader(Own(), 4), DataLoader(torch.utils.data.ConcatDataset([Own(), Cuda()]), 4)
DataLoader(torch.utils.data.Subset(Named(torch.device("cuda", 1)), [1, 2]))
first = DataLoader(Own(), 4)
again = DataLoader(first.dataset, batch_sampler=first.batch_sampler, num_workers=first.num_workers)
items(again)
try:
    DataLoader(Own(), batch_size=0)
except ValueError as error:
    print(error)
"""


def test_loaders_get_workers_where_that_is_safe(programs: Programs) -> None:
    """Also where arguments are positional, and where a framework makes its loader of another one."""
    found = programs(LOADERS, {"workers": {"workers": 2}})
    assert found.done.returncode == 0, found.done.stderr
    lines = found.done.stdout.splitlines()
    assert (
        lines[:8]
        == ["2 True False"] * 3 + ["2 False False"] * 2 + ["0 False False"] + ["2 True False"] * 2
    )
    assert "batch_size" in lines[8]
    kept = "persistent_workers=True"
    assert found.where() == {
        f"DataLoader: 0 -> 2 workers, {kept}": 5,
        f"DataLoader: 1 -> 2 workers, {kept}": 1,
        "DataLoader: 0 -> 2 workers": 1,
    }
    assert levers()["workers"].manual(found.lever()["applied"]).splitlines() == [
        f"DataLoader(..., num_workers=2, {kept})", "DataLoader(..., num_workers=2)"
    ]  # fmt: skip
    assert found.lever()["effective"] is True
    refused = found.lever()["refused"]
    assert refused[0] == "DataLoader: 2 workers already"
    assert "without get_worker_info" in refused[1] and "uses CUDA" in refused[2]
    assert "is on the GPU" in refused[3]


MODELS = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, x, many=False):
        y = self.layer(x)
        inside.append(y.dtype)
        return {"y": y, "more": [y, (y, 3)]} if many else y
inside = []
net = Net()
"""


def test_bf16_is_seen_inside_of_the_model_only(programs: Programs) -> None:
    code = MODELS + """
from collections import namedtuple
y = net(torch.ones(2, 8), many=True)
print(inside[-1], y["y"].detach().numpy().dtype, y["more"][1][0].dtype, y["more"][1][1])
Pair = namedtuple("Pair", "a b")
class Two(Net):
    def forward(self, x):
        return Pair(self.layer(x), 2)
print(Two()(torch.ones(2, 8)).a.dtype)
with torch.autocast("cpu", torch.bfloat16):
    print(net(torch.ones(2, 8)).dtype)
half = Net().bfloat16()
print(half(torch.ones(2, 8).bfloat16()).dtype)
with torch.autocast("cpu", torch.bfloat16):
    print(Net()(torch.ones(2, 8)).dtype)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
loss = torch.nn.MSELoss()(net(torch.ones(2, 8)), torch.zeros(2, 8))
loss.backward()
optimizer.step()
print(loss.dtype, net.layer.weight.grad.dtype)
"""  # fmt: skip
    found = programs(code, ["bf16"])
    assert found.done.stdout.splitlines() == [
        "torch.bfloat16 float32 torch.float32 3", "torch.float32", "torch.bfloat16", "torch.bfloat16",
        "torch.bfloat16", "torch.float32 torch.float32",
    ], found.done.stderr  # fmt: skip
    assert set(found.where()) == {"autocast on the CPU around Net (7.2e-05 M parameters)",
                                  "autocast on the CPU around Two (7.2e-05 M parameters)"}  # fmt: skip
    assert found.lever()["counters"] == {"calls": 3}
    assert found.lever()["refused"] == [
        "Net: most of its parameters are not in FP32", "Net: the program uses autocast"
    ]  # fmt: skip


@pytest.mark.parametrize("lever", ["bf16", "channels_last", "compile_blocks"])
def test_the_change_by_hand_does_what_the_lever_does(programs: Programs, lever: str) -> None:
    """It is pasted around the call of the model."""
    code = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(8, 8, 3)
    def forward(self, x):
        return self.layer(x)
torch.manual_seed(0)
model, x = torch.nn.Sequential(Block(), Block()), torch.rand(2, 8, 9, 9)
output = None
# the change
if output is None:
    output = model(x)
compiled = sum(part._compiled_call_impl is not None for part in model.modules())
layout = model[0].layer.weight.is_contiguous(memory_format=torch.channels_last)
print(output.dtype, output.double().sum().item(), compiled, layout)
"""
    options = {lever: {"backend": "eager"} if lever == "compile_blocks" else {}}
    found = programs(code, options)
    manual = levers()[lever].manual(found.lever()["applied"])
    manual = manual.replace("...", "x").replace("compile()", "compile(backend='eager')")
    by_hand = programs(code.replace("# the change", manual))
    assert found.where() and by_hand.said == found.said and found.done.returncode == 0
    assert by_hand.done.stdout != programs(code).done.stdout


def test_a_failure_in_bf16_is_the_failure_of_the_program(programs: Programs) -> None:
    """An autograd.Function of the program that does not expect BF16."""
    code = MODELS + """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w
    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w.t(), x.t().float() @ gradient
class Other(Net):
    def forward(self, x):
        return Double.apply(self.layer(x), self.layer.weight.bfloat16() if inside else self.layer.weight)
Other()(torch.ones(2, 8)).sum().backward()
print("survived")
"""  # fmt: skip
    plain, found = programs(code), programs(code, ["bf16"])
    assert (plain.done.returncode, plain.done.stdout) == (0, "survived\n")
    assert found.done.returncode == 1 and "RuntimeError" in found.done.stderr
    assert found.lever()["failed"] == []


COMPILED = """
from torch._dynamo.utils import counters
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(5):
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
print([*net.state_dict()], type(net).__name__)
print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
import copy, pickle
copy.deepcopy(net), pickle.dumps(net), torch.jit.trace(net, torch.ones(2, 8))
"""

EAGER = {"backend": "eager"}


def test_a_model_is_compiled_into_one_graph(programs: Programs) -> None:
    found = programs(
        MODELS.replace("inside.append", "(lambda x: x)") + COMPILED, {"compile": EAGER}
    )
    assert found.done.stdout == "['layer.weight', 'layer.bias'] Net\n1 {}\n", found.done.stderr
    own = found.lever()
    assert found.where() == {"torch.compile of Net, mode default": 1}
    assert own["effective"] is True
    (levers,) = found.levers
    start, end = levers["compiling_ns"][0]
    assert found.reports[0]["modules"][0]["time_ns"][0] < start < end


def test_a_part_of_a_compiled_model_is_left_alone(programs: Programs) -> None:
    """As a decoder that generates between two steps, and keeps its outputs from call to call."""
    calls = (
        "net(torch.ones(2, 8))\nnet.layer(torch.ones(2, 8))\nprint(net.layer._compiled_call_impl)\n"
    )
    found = programs(MODELS + calls, {"compile": EAGER})
    assert found.done.stdout == "None\n", found.done.stderr
    assert found.where() == {"torch.compile of Net, mode default": 1}


def test_what_the_program_compiles_is_left_alone(programs: Programs) -> None:
    code = MODELS
    for line in ('net.compile(backend="eager")', 'net.layer.compile(backend="eager")',
                 'net.layer = torch.compile(net.layer, backend="eager")',
                 "net.layer = torch.jit.script(net.layer)"):  # fmt: skip
        code += f"net = Net()\n{line}\nnet(torch.ones(2, 8))\n"
    found = programs(code, {"compile": EAGER})
    assert found.done.returncode == 0, found.done.stderr
    reasons = [f"Net: the program compiles {own} itself" for own in ("Net", "layer")]
    assert (found.where(), found.lever()["refused"]) == ({}, reasons)
    code = f'{MODELS}\nfast = torch.compile(net, backend="eager")\nfast(torch.ones(2, 8))'
    found = programs(code, {"compile": EAGER, "bf16": {}})
    assert found.done.returncode == 0 and found.where(0) == {}


def test_the_mode_of_the_programs_own_compiler_is_changed(programs: Programs) -> None:
    lever = {"compiled_mode": {"mode": "max-autotune-no-cudagraphs"}}
    seen = "import torch._inductor.config as c\nprint(c.max_autotune)\n"
    decorated = "@torch.compile\ndef f(x): return x + 1\n"
    stated = "net.compile(mode='default')\ntorch.compile(net, backend='eager')\n"
    found = programs(f"{MODELS}\n{decorated}{stated}net(torch.ones(2, 8))\n{seen}", lever)
    assert found.done.returncode == 0, found.done.stderr
    mode = "mode default -> max-autotune-no-cudagraphs"
    where = found.where()
    assert {text.rpartition(": ")[2] for text in where} == {mode}
    assert where[f"torch.compile of f: {mode}"] == 1
    assert sum(where.values()) == 2
    assert found.lever()["refused"] == ["the program chooses the mode or the backend itself"]


def test_a_compiler_that_does_nothing_is_noticed(programs: Programs) -> None:
    """Here because TorchDynamo is off; with a mode, because nothing is captured on a CPU."""
    found = programs(
        MODELS + "net(torch.ones(2, 8))", {"compile": EAGER}, env={"TORCHDYNAMO_DISABLE": "1"}
    )
    assert (found.lever()["effective"], found.lever()["why"]) == (False, "nothing was compiled")
    changing = MODELS + "for n in range(1, 20): net(torch.ones(n, 8))"
    own = programs(changing, {"compile": {**EAGER, "dynamic": False}}).lever()
    assert own["effective"] is True and "are not compiled" in own["why"]


def test_a_compiler_that_fails_is_the_failure_of_the_launch(programs: Programs) -> None:
    code = MODELS + "torch._dynamo.reset\ndef broken(graph, inputs): raise ValueError('own')\n"
    code += "torch._dynamo.register_backend(broken)\nnet(torch.ones(2, 8))"
    found = programs(code, {"compile": {"backend": "broken"}})
    assert found.done.returncode == 1
    (failed,) = found.lever()["failed"]
    assert failed.startswith("torch.compile: backend='broken' raised")


def test_blocks_are_compiled_each(programs: Programs) -> None:
    code = MODELS.replace("inside.append(y.dtype)", "") + """
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(*[Net() for _ in range(4)]), Net())
for _ in range(3): net(torch.ones(2, 8))
"""  # fmt: skip
    both = {"compile_blocks": EAGER, "compile": EAGER}
    found = programs(code, both)
    assert found.done.returncode == 0, found.done.stderr
    assert found.where() == {"torch.compile of Net, mode default": 4}
    assert found.lever()["counters"]["graphs"] == 1
    assert found.lever(1)["refused"] == ["Sequential: the program compiles 1.0 itself"]
    assert programs(MODELS + "net(torch.ones(2, 8))", both).lever()["refused"] == [
        "Net: no repeated blocks"
    ]


def test_pytorchs_own_containers_are_compiled(programs: Programs) -> None:
    code = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())\n"
    found = programs(code + "for _ in range(3): net(torch.ones(2, 8))", {"compile": EAGER})
    assert found.lever()["counters"]["graphs"] == 1 and found.lever()["effective"]


def test_a_framework_calls_parts_of_its_module(programs: Programs) -> None:
    """As Lightning, whose training_step is not a call."""
    code = MODELS + """
class Module(Net):
    def training_step(self, x):
        return torch.nn.functional.mse_loss(self.layer(x), torch.zeros(2, 8))
net = Module()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(4):
    net.training_step(torch.ones(2, 8)).backward()
    optimizer.step()
"""  # fmt: skip
    found = programs(code, {"bf16": {}, "compile": EAGER})
    assert found.done.returncode == 0, found.done.stderr
    assert found.where(0) == {"autocast on the CPU around Linear (7.2e-05 M parameters)": 1}
    assert found.where(1) == {"torch.compile of Linear, mode default": 1}
    assert found.lever(1)["counters"]["graphs"] == 1


OPTIMIZERS = """
from torch.optim import SGD, Adam, AdamW, Adagrad, RMSprop
class Own(AdamW):
    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr)
groups = [{"params": net.parameters(), "lr": 0.1}]
made = [AdamW(net.parameters(), foreach=None, fused=None), AdamW(net.parameters(), fused=False),
        SGD(groups, momentum=0.9), Adam(net.parameters(), foreach=True), Adagrad(net.parameters()),
        Own(net.parameters(), 0.1), RMSprop(net.parameters()), Adam(net.parameters(), differentiable=True),
        AdamW(net.parameters(), fused=True)]
complex = [{"params": iter([torch.zeros(2, dtype=torch.complex32)])}]
made += [Adam(complex)]
print([own.param_groups[0].get("fused") for own in made], len(complex[0]["params"]))
try:
    AdamW([])
except ValueError as error:
    print(error)
for own in made[:5]:
    net(torch.ones(2, 8)).sum().backward()
    own.step()
"""


def test_optimizers_are_fused_where_that_is_possible(programs: Programs) -> None:
    found = programs(MODELS + OPTIMIZERS, ["fused_optimizer"])
    assert found.done.returncode == 0, found.done.stderr
    fused, error = found.done.stdout.splitlines()
    assert fused == "[True, True, True, True, True, None, None, None, True, None] 1"
    assert "empty parameter list" in error
    own = found.lever()
    assert found.where() == {"AdamW: default -> fused": 2, "SGD: default -> fused": 1,
                             "Adam: foreach -> fused": 1, "Adagrad: default -> fused": 1}  # fmt: skip
    assert own["effective"] is True and own["failed"] == []
    for why in ("Own: derived from AdamW", "Adam: the program sets differentiable=True",
                "AdamW: the program sets fused=True",
                "Adam: parameters that are not floating-point"):  # fmt: skip
        assert why in own["refused"]


CHECKPOINTS = """
from torch.utils.checkpoint import checkpoint
calls = []
def part(x):
    calls.append(1)
    return net(x).relu()
x = torch.ones(2, 8, requires_grad=True)
for reentrant in (True, False):
    checkpoint(part, x, use_reentrant=reentrant).sum().backward()
print(len(calls), net.layer.weight.grad.sum().item())
"""


def test_activations_are_kept_by_copies_of_checkpoint_too(programs: Programs) -> None:
    code = MODELS + CHECKPOINTS
    plain, found = programs(code, record=True), programs(code, ["no_checkpointing"])
    assert (
        plain.seen() == ["checkpointing"]
        and not programs(MODELS + "net(torch.ones(2, 8))", record=True).seen()
    )
    assert plain.done.stdout.split()[0] == "4" and found.done.stdout.split()[0] == "2"
    assert plain.done.stdout.split()[1] == found.done.stdout.split()[1]
    assert found.where() == {"torch.utils.checkpoint": 1}
    assert found.lever()["counters"] == {"calls": 2}
    own = programs(MODELS + "net(torch.ones(2, 8))", ["no_checkpointing"]).lever()
    assert (own["applied"], own["effective"]) == ([], None)


def test_parts_that_a_backward_pass_calls_again_are_no_models(programs: Programs) -> None:
    code = MODELS + """
from torch.utils.checkpoint import checkpoint
class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Net(), Net()
    def forward(self, x):
        x = checkpoint(self.one, x, use_reentrant=True)
        return checkpoint(self.two, x, use_reentrant=False)
net = Deep()
for _ in range(3):
    net(torch.ones(2, 8, requires_grad=True)).sum().backward()
"""  # fmt: skip
    found = programs(code, ["bf16"])
    assert found.done.returncode == 0, found.done.stderr
    assert found.where() == {"autocast on the CPU around Deep (0.000144 M parameters)": 1}
    assert found.lever()["counters"] == {"calls": 3}


def test_convolutions_get_another_layout(programs: Programs) -> None:
    code = """
import torch
last = torch.channels_last
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 3), torch.nn.Conv3d(1, 1, 1))
before = [*net.parameters()]
y = net[:2](torch.ones(2, 3, 9, 9))
print(y.is_contiguous(memory_format=last), all(a is b for a, b in zip(before, net.parameters())))
torch.nn.Linear(2, 2)(torch.ones(2, 2))
net[:1](torch.ones(2, 3, 9, 9))
"""
    found = programs(code, ["channels_last"])
    assert found.done.stdout == "True True\n", found.done.stderr
    assert found.where() == {"Sequential: weights of 2-D convolutions": 2}
    assert found.lever()["refused"] == [
        "Linear: no 2-D convolutions", "Sequential: its convolutions are in channels_last already"
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
def test_a_slow_loader_gets_faster(programs: Programs) -> None:
    code = """
import time, torch
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 60
    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.ones(4)
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x in torch.utils.data.DataLoader(Slow(), 2):
    net(x).sum().backward()
    optimizer.step()
"""
    spans = []
    for wanted in ({}, {"workers": {"workers": 4}}):
        times = programs(code, wanted).reports[0]["steps"]["time_ns"]
        assert len(times) == 30
        spans.append((times[-1] - times[8]) / 1e6)
    assert spans[0] > 21 * 20 and spans[1] < spans[0] / 2
