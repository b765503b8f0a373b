"""Who owns the code of a frame."""

from __future__ import annotations

import pytest

from perfpipe.ingest.frames import MODULE, Frame, Owners

USER = ("user", None)
PYTHON = ("python", None)
GENERATED = ("generated", None)


def _stack(*files: str) -> tuple[Frame, ...]:
    """Return a stack of functions in files, which are given from the outermost."""
    frames = [Frame(MODULE if not at else f"f{at}", file, 1) for at, file in enumerate(files)]
    return tuple(reversed(frames))


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/opt/conda/lib/python3.11/site-packages/torch/nn/modules/linear.py",
         ("library", "torch")),
        ("/opt/conda/envs/x/lib/python3.11/site-packages/six.py", ("library", "six")),
        ("/opt/conda/lib/python3.11/threading.py", PYTHON),
        ("/home/ada/v/.venv/lib64/python3.12/site-packages/transformers/trainer.py",
         ("library", "transformers")),
        ("/home/ada/v/.venv/lib/python3.13t/site-packages/numpy/_core/numeric.py",
         ("library", "numpy")),
        ("/usr/lib/python3/dist-packages/scipy/linalg/basic.py", ("library", "scipy")),
        ("/usr/local/lib/python3.10/dist-packages/apex/amp.py", ("library", "apex")),
        ("/usr/lib/python3.9/distutils/core.py", PYTHON),
        ("/v/lib/python3.9/site-packages/foo-0.1-py3.9-linux-x86_64.egg/foo/x.py",
         ("library", "foo")),
        ("/work/eggs/bar-2.0-py3.9.egg/bar/y.py", ("library", "bar")),
        ("/root/.pex/installed_wheels/0/c0ffee/torch-2.4.0-cp311.whl/torch/serialization.py",
         ("library", "torch")),
        ("/usr/lib/python311.zip/json/decoder.py", PYTHON),
        ("C:\\Python311\\Lib\\json\\decoder.py", PYTHON),
        ("C:\\Users\\ada\\v\\Lib\\site-packages\\torch\\cuda\\__init__.py", ("library", "torch")),
        ("C:\\Users\\ada\\Lib\\model.py", USER),
        ("C:\\v\\Scripts\\torchrun-script.py", ("library", "torchrun")),
        ("/home/ada/.pyenv/versions/3.11.4/lib/python3.11/queue.py", PYTHON),
        ("/root/.cache/uv/archive-v0/c0ffee/lib/python3.12/site-packages/vllm/engine/llm.py",
         ("library", "vllm")),
        ("/root/.local/share/uv/python/cpython-3.12.4-linux/lib/python3.12/ssl.py", PYTHON),
        ("/home/ada/run/src/mypackage/model.py", USER),
        ("/opt/src/diffusers/src/diffusers/models/unet.py", ("library", "diffusers")),
        ("/opt/vllm/vllm/worker/worker.py", ("library", "vllm")),
        ("/tmp/ipykernel_71/3059234.py", USER),
        ("<ipython-input-3-c0ffee>", USER),
        ("<stdin>", USER),
        ("<string>", GENERATED),
        ("/tmp/torchinductor_ada/ab/cabw3.py", GENERATED),
        ("/scratch/cache/k5/c" + "k5z2" * 12 + "abc.py", GENERATED),
        ("<eval_with_key>.7", GENERATED),
        ("<eval_with_key>.7 from /v/x.py:5 in forward", GENERATED),
        ("<attrs generated init mypackage.Config>", GENERATED),
        ("/home/ada/.triton/cache/c0ffee/add.py", GENERATED),
        ("/tmp/triton_ada_cache/c0ffee/add.py", GENERATED),
        ("<frozen importlib._bootstrap>", PYTHON),
        ("<__array_function__ internals>", PYTHON),
        ("/opt/v/bin/torchrun", ("library", "torchrun")),
        ("/usr/local/bin/accelerate", ("library", "accelerate")),
        ("/home/ada/run/bin/train.py", USER),
        ("/home/ada/run/lib/data.py", USER),
        ("/home/ada/other/lib/data.py", USER),
        ("/home/ada/other/torch_utils/ops.py", USER),
        ("/home/ada/run/triton/kernels.py", USER),
        ("/home/ada/run/torch/ops.py", USER),
        ("/var/task/handler.py", USER),
        ("/home/ada/app.pyz/__main__.py", USER),
        ("/home/ada/app.pyz/mypackage/core.py", USER),
        ("/root/.shiv/app_c0ffee/site-packages/click/core.py", ("library", "click")),
        ("/Library/Frameworks/Python.framework/Versions/3.12/lib/python3.12/enum.py", PYTHON),
        # torch.profiler removes the folders in which Python finds modules.
        ("torch/nn/modules/linear.py", ("library", "torch")),
        ("tqdm/std.py", ("library", "tqdm")),
        ("flashinfer/fused_moe/core.py", ("library", "flashinfer")),
        ("typing_extensions.py", ("library", "typing_extensions")),
        ("threading.py", PYTHON),
        ("concurrent/futures/thread.py", PYTHON),
        ("train.py", USER),
        ("models/unet.py", USER),
        # Scrubbed exports have these folders.
        ("site-packages/torch/nn/modules/linear.py", ("library", "torch")),
        ("lib/python3.12/queue.py", PYTHON),
        ("", GENERATED),
    ],
)  # fmt: skip
def test_owner_of_a_file(file: str, owner: tuple[str, str | None]) -> None:
    assert Owners([_stack("/home/ada/run/train.py", file)]).of_file(file) == owner


@pytest.mark.parametrize(
    ("outermost", "file", "owner"),
    [
        # A script in the repository of a library is the user's; the library is not.
        ("/opt/diffusers/examples/train.py", "/opt/diffusers/examples/train.py", USER),
        ("/opt/diffusers/examples/train.py", "/opt/diffusers/examples/data.py", USER),
        ("/opt/diffusers/examples/train.py", "/opt/diffusers/src/diffusers/unet.py",
         ("library", "diffusers")),
        # A package that is installed in editable mode below the folder of the script.
        ("/opt/vllm/bench.py", "/opt/vllm/vllm/engine.py", USER),
        ("profile.py", "profile.py", USER),
        ("train.py", "profile.py", PYTHON),
        ("<string>", "<string>", USER),
        ("tqdm.py", "tqdm.py", USER),
    ],
)  # fmt: skip
def test_owner_depends_on_the_script(
    outermost: str, file: str, owner: tuple[str, str | None]
) -> None:
    assert Owners([_stack(outermost, file)]).of_file(file) == owner


def test_a_launcher_is_not_the_script() -> None:
    module = Frame(MODULE, "/home/ada/run/train.py", 1)
    launcher = Frame(MODULE, "/opt/v/bin/torchrun", 8)
    inside = Frame("step", "/home/ada/run/triton/x.py", 3)
    owners = Owners([(inside, module, launcher)])
    assert owners.of(inside) == USER
    assert owners.of(launcher) == ("library", "torchrun")


def test_a_module_that_python_runs_is_in_a_library() -> None:
    outer = [Frame("_run_code", "<frozen runpy>", 88), Frame("_run_module", "<frozen runpy>", 198)]
    entry = Frame(MODULE, "/opt/vllm/vllm/entrypoints/api.py", 1)
    assert Owners([(entry, *outer)]).of(entry) == ("library", "vllm")


def test_the_command_of_a_child_process_is_not_the_script() -> None:
    command = Frame(MODULE, "<string>", 1)
    spawn = Frame("spawn_main", "/usr/lib/python3.12/multiprocessing/spawn.py", 122)
    assert Owners([(spawn, command)]).of(command) == GENERATED
    assert Owners([(Frame("f", "<string>", 1), command)]).of(command) == USER
    assert Owners([(command,)]).of(command) == USER
    assert Owners([(command,), (spawn, command)]).of(command) == GENERATED


def test_built_in_functions_have_no_file() -> None:
    frame = Frame("<built-in method item of Tensor object>", None, None)
    assert Owners().of(frame) == PYTHON


LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


def _native(function: str, module: str) -> Frame:
    return Frame(function, module, None, native=True)


@pytest.mark.parametrize(
    ("frame", "owner"),
    [
        (_native("step(float*)", "/home/ada/build/solver"), USER),
        (_native("cudaLaunchKernel", "/home/ada/build/solver"), ("native", "libcudart.so")),
        (_native("libcudart_static_5449a507", "/home/ada/build/solver"),
         ("native", "libcudart.so")),
        (_native("cudart::driverHelper::memcpyDispatch(void*, void const*, unsigned long)",
                 "/home/ada/build/solver"), ("native", "libcudart.so")),
        (_native("cudaError cudaMalloc<float>(float**, unsigned long)", "/home/ada/build/solver"),
         ("native", "libcudart.so")),
        (_native("float std::generate_canonical<float, 24ul>(int&)", "/home/ada/build/solver"),
         ("native", "std")),
        (_native("void thrust::sort<int*>(int*, int*)", "/home/ada/build/solver"),
         ("native", "thrust")),
        (_native("operator new(unsigned long, void*)", "/home/ada/build/solver"),
         ("native", "std")),
        (_native("std::vector<int> make<int>(int)", "/home/ada/build/solver"), USER),
        (_native("solver::(anonymous namespace)::run(std::thread&)", "/home/ada/build/solver"),
         USER),
        (_native("main", "/usr/lib/gcc/x86_64-linux-gnu/11/cc1"), ("native", "cc1")),
        (_native("main", "/home/ada/miniconda3/bin/x86_64-conda-linux-gnu-ld"),
         ("native", "x86_64-conda-linux-gnu-ld")),
        (_native("custom_step", "/home/ada/build/solver"), USER),
        (_native("integrate", "/home/ada/build/libphysics.so"), USER),
        (_native("x", "/home/ada/build/libcudart.so.12"), ("native", "libcudart.so")),
        (_native("x", "/home/ada/build/libcustom.so"), USER),
        (_native("[unresolved] libcuda.so", "/usr/lib64/libcuda.so.550.54.15"),
         ("native", "libcuda.so")),
        (_native("__libc_start_main", LIBC), ("native", "libc.so")),
        (_native("_PyEval_EvalFrameDefault", "/usr/bin/python3.12"), PYTHON),
        (_native("x", "/opt/v/lib/libpython3.11.so.1.0"), PYTHON),
        (_native("at::native::add", "/v/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so"),
         ("native", "libtorch_cpu.so")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", ["main", "[unresolved] solver"])
def test_owner_of_native_code(frame: Frame, owner: tuple[str, str | None], first: str) -> None:
    program = (
        frame,
        _native("__libc_start_main", LIBC),
        _native("_start" if first == "main" else first, "/home/ada/build/solver"),
    )
    python = (_native("Py_Main", "/usr/bin/python3.12"), _native("_start", "/usr/bin/python3.12"))
    assert Owners([program, python]).of(frame) == owner
