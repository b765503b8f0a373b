"""Handicaps in a program: what they count and delay, with a small stand-in of torch and the real one."""

from __future__ import annotations

import ctypes
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from faketorch import write_torch
from handicapped import Program

from perfpipe.analysis.trying.pace import window
from perfpipe.pipelines.trying import launching
from perfpipe.pipelines.trying import sensitivity as pipeline
from perfpipe.pipelines.trying.protecting import Protection
from perfpipe.pipelines.trying.sensitivity import FOLDER, HANDICAPS, sensitivity


def _say(text: str) -> None:
    """Say nothing."""


def _entry(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "file": str(FOLDER / f"{name}.py"), "options": options}


def test_every_handicap_has_a_file() -> None:
    files = {path.stem for path in FOLDER.glob("[!_]*.py")}
    assert files == {*HANDICAPS, "fewer"} - {"cores", "sms"}
    for name in files:
        names: dict[str, Any] = {}
        exec((FOLDER / f"{name}.py").read_text(), names)
        assert names["__doc__"] and callable(names["install"])


LOADER = {
    "utils/__init__.py": "",
    "utils/data/__init__.py": "from torch.utils.data.dataloader import DataLoader",
    "utils/data/_utils/__init__.py": "from torch.utils.data._utils import fetch",
    "utils/data/_utils/fetch.py": """
class _MapDatasetFetcher:
    def __init__(self, dataset): self.dataset = dataset
    def fetch(self, index): return self.dataset[index]
class _IterableDatasetFetcher(_MapDatasetFetcher):
    def fetch(self, index): return next(self.dataset)
""",
    "utils/data/dataloader.py": """
from concurrent.futures import ThreadPoolExecutor
from torch.utils.data._utils.fetch import _MapDatasetFetcher
class _BaseDataLoaderIter:
    def __init__(self, dataset, workers, count):
        self._num_workers, self._prefetch_factor = workers, 2 if workers else None
        fetch = _MapDatasetFetcher(dataset).fetch
        pool = ThreadPoolExecutor(workers) if workers else None
        self.batches = pool.map(fetch, range(count)) if workers else map(fetch, range(count))
    def __iter__(self): return self
    def __next__(self): return next(self.batches)
def DataLoader(dataset, workers, count):
    return _BaseDataLoaderIter(dataset, workers, count)
""",
}

TRAIN = """
import time, torch
from torch.utils.data import DataLoader
class Data:
    def __getitem__(self, index):
        time.sleep({load})
        return index
class Net(torch.nn.Module): pass
net = Net(layer=torch.nn.Module(10))
optimizer = torch.optim.Optimizer(net.parameters())
for batch in DataLoader(Data(), {workers}, {steps}):
    net(batch)
    time.sleep({step})
    optimizer.step()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a package called torch that has loaders, whose workers are threads."""
    write_torch(tmp_path)
    for name, text in LOADER.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def _fast(times: Sequence[float]) -> float:
    """Return the time that few are below: the machine is busy with other tests."""
    return sorted(times)[len(times) // 10]


def _slope(program: Program, name: str, us: float, first: int = 5) -> float:
    """Return the time that a delay adds to a unit, divided by the delay."""
    plain, slow = (program([_entry(name, us=own)], {}) for own in (0, us))
    assert plain.failure is None, plain.why
    found = []
    for times in (plain.pace.units_ms(), slow.pace.units_ms()):
        # Batches of four workers come in bursts.
        means = [statistics.fmean(times[at : at + 8]) for at in range(first, len(times) - 8)]
        found.append(_fast(means))
    return (found[1] - found[0]) / us * 1000


@pytest.mark.parametrize("name", ["loader", "loader_main", "model"])
def test_without_workers_every_delay_counts(folder: Path, name: str) -> None:
    program = Program(folder, TRAIN.format(load=0.006, step=0.006, workers=0, steps=40))
    assert 0.85 < _slope(program, name, 20_000) < 1.8


def test_four_workers_hide_loading_and_not_the_model(folder: Path) -> None:
    program = Program(folder, TRAIN.format(load=0.010, step=0.020, workers=4, steps=60))
    assert _slope(program, "loader", 20_000, first=12) == pytest.approx(0, abs=0.15)
    assert 0.85 < _slope(program, "model", 20_000, first=12) < 1.8


def test_four_workers_that_are_waited_for_share_the_delay(folder: Path) -> None:
    program = Program(folder, TRAIN.format(load=0.040, step=0.001, workers=4, steps=80))
    assert _slope(program, "loader", 60_000, first=12) == pytest.approx(0.25, abs=0.12)
    counters = program([_entry("loader", us=0)], {}).effects["loader"].counters
    assert (counters["events"], counters["parallel"], counters["batches_held"]) == (80, 4, 8)


def test_delays_of_a_real_program_are_a_tenth_of_a_step(folder: Path) -> None:
    program = Program(folder, TRAIN.format(load=0.010, step=0.010, workers=0, steps=30))
    found = sensitivity(program, ["loader", "model"], rounds=2, say=_say)
    for cause in found.values():
        assert cause.slopes is not None, cause.unavailable
        assert cause.events_per_unit == 1 and cause.unit == "step"
        # On a busy machine, a step takes longer.
        assert cause.amount_us is not None and 1000 < cause.amount_us < 20_000


def test_counts_are_few_and_those_of_the_window(folder: Path) -> None:
    """A program that has many more events before its steps, and after them."""
    code = TRAIN.format(load=0, step=0.002, workers=0, steps=60)
    more = "for _ in range(3000):\n    net(1)\n    time.sleep(0.0003)\n"
    start, loop = code.split("for batch in ")
    program = Program(folder, f"{start}for batch in {loop}{more}")
    done = program([_entry("model", us=0)], {})
    counters = done.effects["model"].counters
    assert counters["events"] == 3060
    assert len(counters["time_ns"]) == len(counters["counts"]) <= 1025
    assert counters["counts"] == sorted(counters["counts"])
    found = pipeline._events(done, "model", window([done.pace]))
    assert found == pytest.approx(1, abs=0.1)


def test_delays_are_as_long_as_they_say(folder: Path) -> None:
    names: dict[str, Any] = {}
    exec((FOLDER / "_delays.py").read_text(), names)

    @dataclass
    class Own:
        options: dict[str, Any]

    for sleeps in (False, True):
        for us in (0, 50, 5000):
            delay = names["Delay"](Own({"us": us}), sleeps=sleeps)
            for _ in range(5):
                began, worked = names["_clock"](), time.thread_time_ns()
                delay()
                assert names["_clock"]() - began >= 1000 * us
                # On a busy machine, it waits longer, but does not work longer.
                most = 500 if sleeps else us + 100
                assert time.thread_time_ns() - worked <= 1000 * most


#: A GPU whose copies take 2 ms each, and which counts those that run while a graph is captured.
GPU = """
import contextlib, time, torch
class Event:
    def __init__(self, **options): self.at = 0
    def record(self, stream): self.at = time.perf_counter()
    def synchronize(self): pass
    def elapsed_time(self, other): return max(2.0, 1000 * (other.at - self.at))
class Tensor:
    def copy_(self, other, non_blocking):
        assert self.device == 0 and other.pinned and non_blocking
        disturbed.append(torch.cuda.capturing)
        time.sleep(0.002)
disturbed = []
def empty(size, dtype, pin_memory=False, device=None):
    tensor = Tensor()
    tensor.pinned, tensor.device = pin_memory, device
    return tensor
class CUDAGraph:
    def capture_begin(self): torch.cuda.capturing = True
    def capture_end(self): torch.cuda.capturing = False
torch.empty, torch.uint8 = empty, "uint8"
cuda = torch.cuda
cuda.capturing, cuda.Event, cuda.CUDAGraph = False, Event, CUDAGraph
cuda.is_initialized = cuda.is_available = lambda: True
cuda.current_device = lambda: 0
cuda.is_current_stream_capturing = lambda: cuda.capturing
cuda.Stream, cuda.stream = lambda device: "stream", lambda stream: contextlib.nullcontext()
class Net(torch.nn.Module): pass
net = Net(layer=torch.nn.Module(10))
optimizer = torch.optim.Optimizer(net.parameters())
"""


def test_copies_take_a_share_of_the_time_but_not_in_captures(folder: Path) -> None:
    code = f"{GPU}\nfor _ in range(60):\n    net(1)\n    time.sleep(0.02)\n    optimizer.step()\n"
    code += "graph = CUDAGraph()\ngraph.capture_begin()\ntime.sleep(0.1)\ngraph.capture_end()\n"
    code += "open('disturbed', 'w').write(str(any(disturbed)))"
    program = Program(folder, code)
    found = {}
    for share in (0.0, 0.1, 0.2):
        done = program([_entry("copies", share=share)], {})
        assert done.failure is None, done.why
        effect = done.effects["copies"]
        assert not effect.failed
        assert (folder / "disturbed").read_text() == "False"
        assert effect.counters["us"] > 1000
        seconds = (done.pace.times_ns[-1] - done.pace.times_ns[0]) / 1e9
        found[share] = effect.counters["events"] * effect.counters["us"] / 1e6 / seconds
    assert found[0.0] == 0
    assert 0.02 < found[0.1] < 0.25 and found[0.1] < found[0.2] < 0.5
    slopes = sensitivity(program, ["copies"], rounds=2, say=_say)["copies"]
    assert slopes.slopes is not None, slopes.unavailable
    assert slopes.amount == "10 % of the link's time"


#: A library with the interface of CUPTI.  Its functions call the subscriber as the runtime and the
#: driver do: a function of the driver runs in one of the runtime.
CUPTI = r"""
#include <stddef.h>
#include <stdint.h>
typedef void (*Callback)(void *, int, uint32_t, const void *);
typedef struct { int site; const char *name; const void *params; void *result; const char *symbol;
                 void *context; uint32_t uid; uint64_t *data; uint32_t id; } Data;
static Callback callback; static int enabled[3][600]; int failure = 0, subscribers = 0;
static const struct { int domain; uint32_t id; const char *name; } names[] = {
    {1, 307, "cuLaunchKernel"}, {1, 442, "cuLaunchKernel_ptsz"}, {1, 514, "cuGraphLaunch"},
    {1, 527, "cuLaunchHostFunc"}, {1, 126, "cuStreamSynchronize"}, {2, 211, "cudaLaunchKernel_v7000"},
    {2, 505, "__cudaLaunchKernel_v13000"}, {2, 284, "cudaLaunchHostFunc_v10000"}};
int cuptiSubscribe(void **handle, Callback own, void *user) {
    if (failure) return failure;
    if (callback) return 39;
    callback = own; *handle = (void *)0x1234567890; return 0;
}
int cuptiUnsubscribe(void *handle) { callback = 0; return 0; }
int cuptiEnableCallback(uint32_t on, void *handle, int domain, uint32_t id) {
    if (handle != (void *)0x1234567890 || id >= 600) return 1;
    enabled[domain][id] = on; return 0;
}
int cuptiGetCallbackName(int domain, uint32_t id, const char **name) {
    for (size_t one = 0; one < sizeof names / sizeof *names; one++)
        if (names[one].domain == domain && names[one].id == id) { *name = names[one].name; return 0; }
    return 1;
}
int cuptiGetResultString(int code, const char **text) { *text = "CUPTI_ERROR_SOMETHING"; return 0; }
static void site(int site, int domain, uint32_t id) {
    Data data = {.site = site};
    if (callback && enabled[domain][id]) callback(0, domain, id, &data);
}
void driver(uint32_t id) { site(0, 1, id); site(1, 1, id); }
void runtime(uint32_t id, uint32_t inner) {
    site(0, 2, id); if (inner == 307) driver(307); else runtime(inner, 307); site(1, 2, id);
}
"""

LAUNCHING = """
import ctypes, os, time, torch
torch.cuda.is_initialized = lambda: True
cupti = ctypes.CDLL(os.path.abspath("libcupti.so.12"))
{before}
class Net(torch.nn.Module):
    def forward(self, x):
        for _ in range(4):
            cupti.driver(307)           # as Triton launches
            cupti.runtime(211, 307)     # as PyTorch does
            cupti.runtime(505, 211)     # as it does since CUDA 13
            cupti.driver(514)
            cupti.driver(527)
            cupti.driver(126)
        time.sleep(0.002)
        return x
net = Net(layer=torch.nn.Module(10))
optimizer = torch.optim.Optimizer(net.parameters())
for _ in range(60):
    net(1)
    optimizer.step()
"""


@pytest.fixture
def cupti(folder: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (folder / "cupti.c").write_text(CUPTI)
    words = ["cc", "-shared", "-fPIC", "-o", "libcupti.so.12", "cupti.c"]
    subprocess.run(words, cwd=folder, check=True)
    return folder


def test_launches_are_counted_once_and_delayed(cupti: Path) -> None:
    program = Program(cupti, LAUNCHING.format(before=""))
    cause = sensitivity(program, ["launch"], rounds=2, say=_say)["launch"]
    assert cause.slopes is not None, cause.unavailable
    # Twice as many if a call of the driver in one of the runtime counted again.  On a busy machine,
    # hardly any step may be steady, and whole launches are compared.
    assert cause.events_per_unit is not None
    each = cause.events_per_unit / (60 if cause.events_per_unit > 100 else 1)
    assert each == pytest.approx(16, rel=0.2)
    assert "us per launch" in cause.amount


def test_a_launch_is_delayed_once(cupti: Path) -> None:
    code = LAUNCHING.format(before="") + "print(time.process_time(), file=open('cpu', 'w'))"
    program, worked, times = Program(cupti, code), [], []
    options = {"library": str(pipeline._compiled(cupti))}
    for us in (0, 500):
        launched = program([_entry("launch", us=us, **options)], {})
        worked.append(float((cupti / "cpu").read_text()))
        times.append(_fast(launched.pace.units_ms()))
    assert times[1] - times[0] > 0.85 * 16 * 0.5
    # On a busy machine, a unit takes longer, but does not work longer.
    assert 1000 * (worked[1] - worked[0]) < 1.2 * 60 * 16 * 0.5


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("cupti.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), ctypes.c_void_p(1), None)\n"
         "cupti.driver = cupti.runtime = lambda *args: None",
         "CUPTI already has a subscriber, such as a profiler"),
        ("ctypes.c_int.in_dll(cupti, 'failure').value = 35",
         "CUPTI refuses callbacks (CUPTI_ERROR_SOMETHING)"),
        ("torch.cuda.is_initialized = lambda: False", "the program uses no GPU"),
    ],
)  # fmt: skip
def test_where_there_are_no_callbacks_of_launches(cupti: Path, before: str, why: str) -> None:
    program = Program(cupti, LAUNCHING.format(before=before))
    cause = sensitivity(program, ["launch"], rounds=2, say=_say)["launch"]
    assert cause.meaning == f"not available: {why}"


def test_pytorch_without_cupti(folder: Path) -> None:
    code = TRAIN.format(load=0, step=0, workers=0, steps=20)
    program = Program(folder, f"import torch\ntorch.cuda.is_initialized = lambda: True\n{code}")
    cause = sensitivity(program, ["launch"], rounds=2, say=_say)["launch"]
    assert cause.unavailable == "PyTorch has loaded no CUPTI"


def test_names_of_functions_are_those_of_a_real_cupti() -> None:
    """The library that comes with Triton names functions without a GPU."""
    triton = find_spec("triton")
    found = [*Path(triton.origin or "").parent.rglob("libcupti.so.12")] if triton else []
    if not found:
        pytest.skip("no CUPTI is installed")
    names: dict[str, Any] = {}
    exec((FOLDER / "launch.py").read_text(), names)
    functions = names["_functions"](ctypes.CDLL(str(found[0])))
    # From the headers of CUPTI.
    assert {(1, 307), (1, 442), (1, 477), (1, 514), (1, 515), (1, 652), (1, 653)} <= {*functions}
    assert {(2, 211), (2, 214), (2, 311), (2, 430)} <= {*functions}
    assert not {(1, 527), (2, 284), (1, 60)} & {*functions}


REAL = """
import time, torch
torch.set_num_threads(1)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 120
    def __getitem__(self, index): return torch.zeros(4)
if __name__ == "__main__":
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=WORKERS):
        net(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.usefixtures("needs_torch")
def test_loaders_of_pytorch_are_delayed_where_they_load(tmp_path: Path) -> None:
    for workers in (0, 2):
        program = Program(tmp_path, REAL.replace("WORKERS", str(workers)))
        done = program([_entry("loader", us=20000), _entry("loader_main", us=0)], {})
        assert done.failure is None, done.why
        counters = done.effects["loader"].counters
        assert (counters["events"], counters["parallel"]) == (60, max(1, workers))
        assert counters["batches_held"] == 2 * workers
        assert done.effects["loader_main"].counters["events"] == 60
        times = done.pace.times_ns
        # 20 ms per batch, or 10 ms with two workers.
        assert 0.95 <= (times[50] - times[10]) / 40e6 / (20 / max(1, workers)) < 1.6


DISTRIBUTED = """
import torch, torch.distributed as dist
from torch.distributed import all_reduce
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
net = DistributedDataParallel(torch.nn.Linear(4, 4))
if HOOK:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    net.register_comm_hook(None, allreduce_hook)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(30):
    loss = net(torch.ones(2, 4)).sum()
    loss.backward()
    all_reduce(loss.detach())
    dist.broadcast(loss.detach(), 0)
    optimizer.step()
print(repr(net.module.weight.sum().item()))
"""


@pytest.mark.usefixtures("needs_torch")
def test_collectives_of_pytorch_are_delayed(tmp_path: Path) -> None:
    program = Program(tmp_path, DISTRIBUTED.replace("HOOK", "False"))
    done = program([_entry("collectives", us=3000)], {})
    assert done.failure is None, done.why
    effect = done.effects["collectives"]
    assert effect.counters["events"] == 90
    assert {one["where"]: one["count"] for one in effect.applied} == {
        "DistributedDataParallel": 30, "all_reduce": 30, "broadcast": 30,
    }  # fmt: skip
    times = done.pace.times_ns
    assert min(after - before for before, after in pairwise(times)) / 1e6 >= 9
    own = Program(tmp_path, DISTRIBUTED.replace("HOOK", "True"))
    effect = own([_entry("collectives", us=0)], {}).effects["collectives"]
    assert {one["where"]: one["count"] for one in effect.applied} == {
        "all_reduce": 60, "broadcast": 30,
    }  # fmt: skip


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset")
def test_fewer_cores_in_pytorch(tmp_path: Path) -> None:
    code = REAL.replace("WORKERS", "0").replace("torch.set_num_threads(1)", "")
    program = Program(tmp_path, code)
    one = str(pipeline.cores_by_package()[0])
    done = program([_entry("fewer", threads=3)], {}, ["taskset", "-c", one])
    counters = done.effects["fewer"].counters
    assert (counters["cores"], counters["threads"]) == (1, 3)


@pytest.mark.parametrize("workers", [0, 4])
def test_launches_of_a_trial_with_handicaps(folder: Path, workers: int) -> None:
    """A working directory that is protected, as in `perfpipe try --sensitivity`."""
    code = TRAIN.format(load=0.010, step=0.012, workers=workers, steps=40)
    (folder / "train.py").write_text(code)
    program = launching.Program(
        lambda changed: [sys.executable, str(folder / "train.py")], folder, {}, 120
    )
    logs = folder.parent / f"{folder.name}-logs"
    logs.mkdir()
    launches = launching.Launches(program, lambda lever: Protection(folder), logs)
    said: list[str] = []
    launch = pipeline.launch_with(launches)
    found = sensitivity(launch, ["loader", "collectives"], rounds=2, say=said.append)
    assert launches.count == len(said) == 1 + 2 * 3
    cause = found["loader"]
    assert cause.slopes is not None, cause.unavailable
    assert (cause.events_per_unit, cause.unit, cause.parallel) == (1, "step", max(1, workers))
    assert "calls no collectives" in found["collectives"].unavailable
