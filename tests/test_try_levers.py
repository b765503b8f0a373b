"""The levers: their constants and variables, and those that a stand-in of PyTorch is enough for."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faketorch import PROGRAM, write_torch
from leverprograms import Programs

from perfpipe.pipelines.collectors.observing import INJECTED
from perfpipe.pipelines.trying.levers import levers

LEVERS = sorted((INJECTED / "levers").glob("*.py"))
ANALYSIS = Path(__file__).parents[1] / "analysis"


def _read(path: Path) -> dict[str, Any]:
    """Return the constants and functions of a lever, as perfpipe reads them."""
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), path, "exec"), names)
    return names


def _techniques() -> set[str]:
    """Return the keys of all techniques."""
    keys: set[str] = set()
    for path in ANALYSIS.glob("knowledge*.toml"):
        keys |= tomllib.loads(path.read_text()).keys()
    for path in ANALYSIS.rglob("findings/*.sql"):
        keys |= set(re.findall(r"^\[techniques\.(\w+)\]", path.read_text(), re.MULTILINE))
    return keys


@pytest.mark.parametrize("path", LEVERS, ids=lambda path: path.stem)
def test_a_lever_says_what_it_is(path: Path) -> None:
    own = _read(path)
    assert own["TITLE"] and own["TITLE"][-1] != "." and own["RISKS"].endswith(".")
    assert set(own["ANSWERS"]) <= _techniques()
    assert own["ANSWERS"] or own["FREE"], "nothing would choose it"
    assert own["NEEDS"] in ("torch", "transformers", "jax", "checkpointing", "any")
    assert own["EXPECT"] in ("identical", "scatter", "tolerance")
    assert (own["TOLERANCE"] is not None) == (own["EXPECT"] == "tolerance")
    assert own["DIFFICULTY"] in ("low", "medium", "high")
    assert all(isinstance(one, dict) for one in own.get("VARIANTS", ()))
    assert isinstance(own.get("VERIFY", {}), dict)
    assert isinstance(own["ORDER"], int)
    assert ("install" in own) != ("env" in own)
    assert "manual" in own or "env" in own
    for options in own.get("VARIANTS", ()):
        json.dumps(options)
    for lever in levers().values():
        assert lever.base != path.stem or lever.manual([])


def test_titles_tell_variants_apart() -> None:
    titles = [lever.title for lever in levers().values()]
    assert len({*titles}) == len(titles) and not any("{" in title for title in titles)
    assert levers()["compile:reduce-overhead"].title.endswith("mode reduce-overhead")


@pytest.mark.parametrize("path", LEVERS, ids=lambda path: path.stem)
def test_constants_are_literals(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            assert node.value is not None
            ast.literal_eval(node.value)


def _env(name: str, options: dict[str, Any], cores: int = 8, ranks: int = 2) -> dict[str, str]:
    found: dict[str, str] = _read(INJECTED / "levers" / f"{name}.py")["env"](options, cores, ranks)
    return found


def test_variables_keep_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("XLA_FLAGS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    expandable = "expandable_segments:True"
    assert _env("allocator", {}) == {"PYTORCH_CUDA_ALLOC_CONF": expandable}
    assert _env("xla_flags", {"flags": "--a=1"}) == {"XLA_FLAGS": "--a=1"}
    monkeypatch.setenv("XLA_FLAGS", "--b=2")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    assert _env("xla_flags", {"flags": "--a=1"}) == {"XLA_FLAGS": "--b=2 --a=1"}
    assert _env("allocator", {}) == {"PYTORCH_ALLOC_CONF": f"max_split_size_mb:64,{expandable}"}
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    assert _env("allocator", {}) == {}


def test_variables_depend_on_options_and_cores() -> None:
    assert _env("module_loading", {"loading": "LAZY"}) == {"CUDA_MODULE_LOADING": "LAZY"}
    assert set(_env("host_threads", {"threads": "cores"}).values()) == {"4"}
    assert _env("host_threads", {})["OMP_NUM_THREADS"] == "1"
    assert _env("connections", {})["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    assert _env("jax_cache", {"folder": "/own"})["JAX_COMPILATION_CACHE_DIR"] == "/own"


def test_the_change_by_hand_exports_all_variables() -> None:
    for lever in levers().values():
        assert all(f"export {name}=" in lever.manual([]) for name in lever.env)
    assert levers()["host_threads"].manual([]).splitlines()[-1] == "export OPENBLAS_NUM_THREADS=1"


@pytest.fixture
def fake(tmp_path: Path) -> Programs:
    write_torch(tmp_path)
    return Programs(tmp_path)


GPU = """
class cuda(cuda):
    is_initialized = staticmethod(lambda: True)
    get_device_capability = staticmethod(lambda: CAPABILITY)
    device_count = staticmethod(lambda: 2)
    synchronize = staticmethod(lambda: print("synchronized"))
    max_memory_allocated = staticmethod(lambda device: 10 * device)
    max_memory_reserved = staticmethod(lambda device: 20 * device)
    class get_device_properties:
        total_memory = 80
        def __init__(self, device): pass
class version:
    hip, cuda = None, "13.0"
class backends:
    class cuda:
        class matmul:
            allow_tf32 = False
        on = [True]
        cudnn_sdp_enabled = staticmethod(lambda: backends.cuda.on[0])
        enable_cudnn_sdp = staticmethod(lambda on: backends.cuda.on.__setitem__(0, on))
    class cudnn:
        benchmark = deterministic = allow_tf32 = False
def set_float32_matmul_precision(precision):
    backends.cuda.matmul.allow_tf32 = precision != "highest"
def get_float32_matmul_precision():
    return "high" if backends.cuda.matmul.allow_tf32 else "highest"
are_deterministic_algorithms_enabled = lambda: False
float32 = "float32"
nn.Parameter.is_cuda, nn.Parameter.dtype, nn.Parameter.dim = True, "float32", lambda self: 2
nn.modules.conv = type("conv", (), {"_ConvNd": nn.Module})
"""


@pytest.fixture
def gpu(fake: Programs) -> Callable[..., Programs]:
    """Give the stand-in of PyTorch a stand-in of a GPU."""

    def make(capability: tuple[int, int] = (9, 0), more: str = "") -> Programs:
        text = (fake.folder / "torch" / "__init__.py").read_text()
        text += GPU.replace("CAPABILITY", str(capability)) + more
        (fake.folder / "torch" / "__init__.py").write_text(text)
        return fake

    return make


def test_tf32_is_set_behind_the_program(gpu: Callable[..., Programs]) -> None:
    show = "print(torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)"
    programs, tf32 = gpu(), ["tf32"]
    found = programs(f"{PROGRAM}\ntrain(5)\n{show}", tf32)
    assert found.done.stdout == "True True\n", found.done.stderr
    assert found.where() == {"Net: matrix products highest -> high": 1}
    assert found.lever()["effective"] is True
    assert found.levers[0]["memory"] == {
        "allocated_bytes": 10,
        "reserved_bytes": 20,
        "total_bytes": 80,
    }
    off = "torch.set_float32_matmul_precision('highest')"
    found = programs(f"{PROGRAM}\n{off}\ntrain(1)\n{off}\ntrain(5)\n{show}", tf32)
    assert found.done.stdout == "True True\n"
    assert found.where() == {"Net: matrix products highest -> high": 1,
                             "after step 2: matrix products highest -> high": 1}  # fmt: skip
    found = programs(f"{PROGRAM}\ntrain(9)\n{off}", tf32)
    assert (found.lever()["effective"], found.lever()["why"]) == (
        False,
        "the program turned it off again",
    )
    found = programs(f"{PROGRAM}\ntorch.set_float32_matmul_precision('high')\ntrain(9)", tf32)
    assert (found.where(), found.lever()["refused"]) == ({}, ["the program allows TF32 itself"])
    found = programs(f"{PROGRAM}\ntorch.nn.Parameter.dtype = 'half'\ntrain(9)", tf32)
    assert found.lever()["refused"] == ["Net: no FP32 matrices on a GPU"], found.done.stderr


def test_what_an_older_gpu_does_not_have_is_refused(gpu: Callable[..., Programs]) -> None:
    found = gpu((7, 5))(
        f"{PROGRAM}\ntrain(5)\nprint(torch.get_float32_matmul_precision())", ["tf32"]
    )
    assert found.done.stdout == "highest\n"
    assert found.lever()["refused"] == ["the GPU has no TF32"]


def test_flags_of_cudnn_and_attention(gpu: Callable[..., Programs]) -> None:
    programs, both = gpu(), ["cudnn_benchmark", "attention"]
    found = programs(
        f"{PROGRAM}\ntrain(5)\nprint(torch.backends.cudnn.benchmark, torch.backends.cuda.on)", both
    )
    assert found.done.stdout == "True [False]\n", found.done.stderr
    assert found.where(0) == {"Net: cudnn.benchmark False -> True": 1}
    assert found.where(1) == {"scaled_dot_product_attention without cudnn": 1}
    code = "torch.backends.cudnn.deterministic = True\ntorch.backends.cuda.on[0] = False\ntrain(5)"
    found = programs(f"{PROGRAM}\n{code}", both)
    assert [found.where(0), found.where(1)] == [{}, {}]
    assert found.lever(0)["refused"] == ["the program asks for deterministic algorithms"]
    assert found.lever(1)["refused"] == ["the program turns it off itself"]


def test_gpu_work_has_ended_when_the_program_is_ended(gpu: Callable[..., Programs]) -> None:
    assert gpu()(f"{PROGRAM}\ntrain(50)", steps=5).done.stdout == "synchronized\n"


EVENTS = """
class cuda(cuda):
    passed = [0]
    is_current_stream_capturing = staticmethod(lambda: CAPTURING)
    synchronize = staticmethod(lambda: cuda.passed.__setitem__(0, 10**6))
    class Event:
        clock = [0.0]
        def __init__(self, enable_timing): assert enable_timing
        def record(self):
            cuda.Event.clock[0] += 4.0
            self.at = cuda.Event.clock[0]
        def query(self):
            cuda.passed[0] += 1
            return cuda.passed[0] > 20
        def elapsed_time(self, other): return other.at - self.at
"""


def test_steps_are_timed_on_the_gpu(gpu: Callable[..., Programs]) -> None:
    found = gpu(more=EVENTS.replace("CAPTURING", "False"))(f"{PROGRAM}\ntrain(30)", [])
    assert found.levers[0]["gpu_steps_ms"] == [4.0] * 29, found.done.stderr


FORKING = """
import gc, os
def gone(event):
    os.write(1, b"destroyed\\n")
cuda.Event.__del__ = gone
train(30)
child = os.fork()
if not child:
    gc.collect()
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
"""


def test_forked_children_destroy_no_events(gpu: Callable[..., Programs]) -> None:
    """As workers do that a loader starts at its second epoch; CUDA does not work in them."""
    code = f"{PROGRAM}\nimport torch\ncuda = torch.cuda{FORKING}"
    found = gpu(more=EVENTS.replace("CAPTURING", "False"))(code, [], record=True)
    assert found.done.stdout == "", found.done.stderr
    assert found.done.returncode == 0


def test_steps_in_a_graph_are_not_timed_on_the_gpu(gpu: Callable[..., Programs]) -> None:
    found = gpu(more=EVENTS.replace("CAPTURING", "True"))(f"{PROGRAM}\ntrain(30)", [])
    assert found.levers[0]["gpu_steps_ms"] is None


def test_without_a_gpu_its_levers_are_refused(fake: Programs) -> None:
    found = fake(f"{PROGRAM}\ntrain(5)", ["tf32", "attention"])
    assert found.done.returncode == 0
    assert found.lever(0)["refused"] == ["no GPU"]


GENERATE = """
from transformers.generation.utils import Model
class Config:
    cache_implementation, use_cache, num_beams = None, True, 1
Model.generation_config = Config
plain = Model.generate.__wrapped__
model = Model(20)
"""


def test_generate_gets_a_static_cache(fake: Programs) -> None:
    code = GENERATE + "model.generate([1])\nmodel.generate([1], new=2)"
    found = fake(code, ["static_cache"])
    assert found.said == (0, "", "")
    assert found.where() == {"Model.generate: dynamic -> static cache": 2}
    assert (found.lever()["effective"], found.lever()["why"]) == (
        False,
        "transformers compiled nothing",
    )
    for arguments, why in {
        "past_key_values=3": "generate(past_key_values=...)",
        "cache_implementation='quantized'": "the program uses cache_implementation='quantized'",
        "use_cache=False": "the program generates without a cache",
        "num_beams=4": "beam search",
    }.items():
        found = fake(GENERATE + f"model.generate([1], {arguments})", ["static_cache"])
        assert (found.where(), found.lever()["refused"]) == ({}, [f"Model: {why}"])
    found = fake(
        GENERATE + "Model._can_compile_fullgraph = False\nmodel.generate([1])", ["static_cache"]
    )
    assert found.lever()["refused"] == ["Model: the model does not support a static cache"]


def test_the_garbage_collector_is_frozen_once(fake: Programs) -> None:
    code = f"{PROGRAM}\nimport gc\ntrain(20)\nprint(gc.get_freeze_count() > 100)"
    found = fake(code, ["gc_freeze"])
    assert found.done.stdout == "True\n"
    assert found.where() == {"the garbage collector": 1} and found.lever()["effective"]
    inference = (
        f"{PROGRAM}\nimport gc\nfor _ in range(20): net(1)\nprint(gc.get_freeze_count() > 100)"
    )
    assert fake(inference, ["gc_freeze"]).done.stdout == "True\n"
    assert fake(f"import gc\ngc.disable()\n{code}", ["gc_freeze"]).lever()["refused"]


REFUSING = """
class Adam(Optimizer):
    def __init__(self, params, lr=1, *, foreach=None, fused=None):
        given = list(params)
        for group in given:
            group.setdefault("fused", fused)
        if fused:
            raise RuntimeError("own reason\\nmore")
        super().__init__(given[0]["params"])
"""


def test_an_optimizer_that_cannot_be_fused_is_made_as_usual(fake: Programs) -> None:
    optim = fake.folder / "torch" / "optim" / "__init__.py"
    optim.write_text(optim.read_text() + REFUSING)
    fake.folder.joinpath("torch", "__init__.py").write_text(
        fake.folder.joinpath("torch", "__init__.py").read_text()
        + "\nclass Tensor: pass\nis_floating_point = bool\n"
    )
    code = f"{PROGRAM}\ngroups = [{{'params': net.parameters()}}]\n"
    code += "optimizer = torch.optim.Adam(iter(groups))\ntrain(4)\n"
    code += "print(groups[0]['fused'], len(groups[0]['params']))"
    found = fake(code, ["fused_optimizer"])
    assert found.said == (0, "None 2\n", "")
    assert (found.where(), found.lever()["refused"]) == ({}, ["Adam: own reason"])
    assert found.reports[0]["optimizers"][0]["parameters"] == 15
