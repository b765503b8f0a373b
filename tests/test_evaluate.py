"""The judge of kernels: no cheat gets a number, no honest candidate is accused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from candidates import BESIDE, BROKEN, CHEATS, CPU_ONLY, HONEST, REFUSED
from judgedevice import DRIVER_MB, DRIVER_S, ON_GPU, ROWS, applicable, device

from perfpipe.pipelines.evaluate.device import pytorch
from perfpipe.pipelines.evaluate.judge import Judge, Options
from perfpipe.pipelines.evaluate.load import loaded
from perfpipe.pipelines.evaluate.result import Judgement, Status
from perfpipe.pipelines.evaluate.worker import ENVIRONMENT

pytestmark = pytest.mark.usefixtures("needs_torch")

WORKLOAD = f"""
version: 1
name: softmax
command: [python, none.py]
work: {{bytes: "2*m*n*dtype_bytes"}}
evaluate:
  reference: softmax_reference.py
  inputs: {{x: {{shape: [m, n]}}}}
  outputs: {{y: {{shape: [m, n]}}}}
  dtypes: [float32, float16]
  reduction: n
  correctness: [{{m: 3, n: 1}}, {{m: 4, n: 37}}]
  timing: [{{m: {ROWS}, n: 2048}}]
  special: [noncontiguous, large, nan, empty]
  empty: [m]
  seeds: 1
  forbidden: ["aten::logsumexp"]
  limits: {{seconds: 60, memory_mb: {2048 + DRIVER_MB}, host_mb: 3}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("problem")
    (made / "softmax.yaml").write_text(WORKLOAD)
    (made / "softmax_reference.py").write_text(
        "import torch\ndef reference(x):\n    return torch.softmax(x, dim=1)\n"
    )
    return made


@pytest.fixture(scope="module")
def judge(folder: Path) -> Iterator[Judge]:
    own = loaded(pytorch(), folder / "softmax.yaml", device(), folder)
    with Judge.opened(own.problem, own.work, Options(device(), 7, True, 1, 1)) as made:
        yield made


@pytest.fixture(scope="module")
def hasty(judge: Judge) -> Judge:
    """The same judge, which waits hardly at all."""
    block = judge.problem.block
    limits = block.limits.model_copy(update={"seconds": 2.0 + DRIVER_S})
    return judge.of(replace(judge.problem, block=block.model_copy(update={"limits": limits})))


def _judged(judge: Judge, folder: Path, name: str, source: str) -> Judgement:
    at = folder / name.replace(" ", "_")
    at.mkdir()
    reference = (folder / "softmax_reference.py").as_posix().strip("/").replace("/", "|")
    (at / "kernel.py").write_text(source.replace("REFERENCE", reference))
    for other, text in BESIDE.get(name, {}).items():
        (at / other).write_text(text)
    base = folder / "base"
    if not base.is_dir():
        base.mkdir()
        (base / "kernel.py").write_text(HONEST["plain"])
    return judge.judge(at, {"base": base})


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU: set PERFPIPE_TEST_DEVICE=cuda")
def test_a_judge_gives_its_memory_back(folder: Path) -> None:
    torch = pytorch()
    own = loaded(torch, folder / "softmax.yaml", device(), folder)
    used = torch.cuda.memory_allocated()
    with Judge.opened(own.problem, own.work, Options(device(), 7, True, 1, 1)) as made:
        assert _judged(made, folder, "once", HONEST["plain"]).status == Status.CORRECT
        assert torch.cuda.memory_allocated() > used
    assert torch.cuda.memory_allocated() <= used


@pytest.mark.parametrize("name", applicable(HONEST, CPU_ONLY))
def test_an_honest_candidate_is_not_accused(judge: Judge, folder: Path, name: str) -> None:
    made = _judged(judge, folder, name, HONEST[name])
    assert (made.status, made.evidence) == (Status.CORRECT, ()), made.reason + made.output
    assert made.scores[0].speedup > 0


@pytest.mark.parametrize(
    "name", sorted(HONEST.keys() - CPU_ONLY.keys() - BESIDE.keys() - {"triton"})
)
def test_an_honest_candidate_keeps_to_the_device_of_its_input(name: str) -> None:
    """As on a GPU, no operator may get a tensor of the CPU; these have no memory at all."""
    torch = pytorch()
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[str] = set()

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, given: Any = (), named: Any = None
        ) -> Any:
            seen.update(one.device.type for one in given if isinstance(one, torch.Tensor))
            return function(*given, **(named or {}))

    scope: dict[str, Any] = {}
    x, y = (torch.empty(4, 37, device="meta") for _ in range(2))
    with torch.enable_grad(), Watch():
        exec(HONEST[name], scope)
        scope["run"](x, y)
    assert seen <= {"meta"}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found_and_gets_no_number(judge: Judge, folder: Path, name: str) -> None:
    kinds, source = CHEATS[name]
    made = _judged(judge, folder, name, source)
    assert made.status == Status.CHEATING, made
    assert made.evidence[0].kind in kinds.split("|"), made.evidence
    assert not made.scores


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_run_is_refused(judge: Judge, folder: Path, name: str) -> None:
    kind, source = REFUSED[name]
    made = _judged(judge, folder, name, source)
    assert (made.status, made.evidence[0].kind) == (Status.REFUSED, kind), made
    assert not made.scores


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_has_its_status(judge: Judge, hasty: Judge, folder: Path, name: str) -> None:
    status, source = BROKEN[name]
    made = _judged(hasty if name == "hangs" else judge, folder, name, source)
    assert made.status == status, (made, made.output)
    assert not made.scores


#: Goes around every look, by calls of C.
PRY = """
import ctypes
import os
import torch
C = ctypes.CDLL(None, use_errno=True)
def address(port):
    return (ctypes.c_uint8 * 16)(2, 0, port >> 8, port & 255, 127, 0, 0, 1)
def connected(family, kind, to, size):
    return C.connect(C.socket(family, kind, 0), to, size)
MASK = (ctypes.c_uint64 * 16)(1)
PAIR = (ctypes.c_int * 2)()
print("files memory", C.open(b"/proc/JUDGE/mem", 0))
print("files command", C.open(b"/proc/JUDGE/cmdline", 0))
print("files reference", C.open(b"REFERENCE_FILE", 0))
print("files shadow", C.open(b"/etc/shadow", 0))
print("files shared", C.open(b"/dev/shm/perfpipe-test", 66, 384))
print("signals signal", C.kill(JUDGE, 0))
print("network tcp", connected(2, 1, address(PORT), 16))
print("network unix", connected(1, 1, b"\\1\\0" + b"UNIX", 2 + len("UNIX")))
print("network abstract", connected(1, 1, b"\\1\\0\\0" + b"ABSTRACT", 3 + len("ABSTRACT")))
print("calls session", C.setsid())
print("calls namespace", C.unshare(0x10000000))
print("calls processors", C.sched_setaffinity(JUDGE, 128, MASK))
print("calls priority", C.setpriority(0, JUDGE, 5))
print("calls limit", C.prlimit(JUDGE, 7, MASK, None))
print("calls clock", C.clock_settime(0, MASK))
print("calls memory", C.process_vm_readv(JUDGE, None, 0, None, 0, 0))
print("allowed own", min(0, C.open(__file__.encode(), 0)))
print("allowed facts", min(0, C.open(b"/proc/self/maps", 0)))
print("allowed users", min(0, C.open(b"/etc/passwd", 0)))
print("allowed pair", C.socketpair(1, 1, 0, PAIR))
print("allowed processors", C.sched_setaffinity(os.getpid(), 128, MASK))
def run(x, y):
    z = x.float()
    e = torch.exp(z - z.amax(dim=1, keepdim=True)) if z.numel() else z
    y.copy_(e / e.sum(dim=1, keepdim=True))
"""


def test_what_is_certain_is_refused_by_the_kernel(judge: Judge, folder: Path) -> None:
    abstract, unix = f"perfpipe-test-{os.getpid()}", f"{folder}/socket"
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_UNIX) as one,
        socket.socket(socket.AF_UNIX) as other,
    ):
        one.bind(unix)
        other.bind(f"\0{abstract}")
        one.listen()
        other.listen()
        port = listening.getsockname()[1]
        source = PRY.replace("JUDGE", str(os.getpid())).replace("PORT", str(port))
        source = source.replace("ABSTRACT", abstract).replace("UNIX", unix)
        source = source.replace("REFERENCE_FILE", str(folder / "softmax_reference.py"))
        made = _judged(judge, folder, "pry", source)
    assert made.status == Status.CORRECT, (made, made.output)
    said = [line.split() for line in made.output.splitlines()]
    assert len(said) == 21
    kinds = {"files": "files", "signals": "signals", "network": "network", "calls": "system calls"}
    for kind, name, answer in said:
        if kind == "allowed":
            assert answer == "0", name
        elif made.isolation[kinds[kind]]:
            assert answer == "-1", name
    assert not Path("/dev/shm/perfpipe-test").exists()
    assert bool(made.warnings) != all(made.isolation.values())


def test_a_reference_among_libraries_is_hidden(tmp_path: Path) -> None:
    library = tmp_path / "site-packages"
    for name in ("torch/nn/core.py", "workloads/r.py", "workloads/__pycache__/r.pyc", "one.py"):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text("x")
    (library / "torch" / "reference.py").write_text("x")
    asked = {
        "readable": [str(library), "/usr", "/lib"],
        "writable": [],
        "hidden": [str(library / "workloads"), str(library / "torch" / "reference.py")],
        "limits": {"file_bytes": 1 << 20, "cpu_s": 60},
    }
    code = (
        "import json, os, sys\n"
        "from perfpipe.pipelines.evaluate.confine import confine\n"
        "asked = json.loads(sys.argv[1])\n"
        "made = confine(asked)\n"
        "def seen(path):\n"
        "    try:\n"
        "        open(path).close()\n"
        "    except PermissionError:\n"
        "        return False\n"
        "    return True\n"
        "listed = os.listdir(os.path.dirname(sys.argv[3]))\n"
        "print(json.dumps([made['files'], *map(seen, sys.argv[2:]), *listed]))"
    )
    names = ("torch/nn/core.py", "one.py", "workloads/r.py", "workloads/__pycache__/r.pyc",
             "torch/reference.py")  # fmt: skip
    files = [str(library / name) for name in names]
    words = [sys.executable, "-c", code, json.dumps(asked), *files]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    enforced, *seen = json.loads(done.stdout)
    if enforced:
        assert seen[:5] == [True, True, False, False, False]
        assert {*seen[5:]} == {"torch", "workloads", "one.py"}


def test_nothing_of_the_callers_environment_is_seen(
    judge: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFPIPE_TEST_SECRET", "x")
    source = HONEST["plain"] + "import os\nprint(*sorted(os.environ))\nprint(os.getcwd())\n"
    made = _judged(judge, folder, "looks around", source)
    names, where = made.output.splitlines()
    known = {*ENVIRONMENT, "HOME", "TMPDIR", "TRITON_HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH",
             "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS", "PYTHONDONTWRITEBYTECODE",
             "PYTORCH_NVML_BASED_CUDA_CHECK", "LC_CTYPE"}  # fmt: skip
    ours = {name for name in names.split() if not name.startswith(("TORCH", "KINETO", "PYTORCH"))}
    assert ours <= known
    assert where.endswith("/candidate/files")
