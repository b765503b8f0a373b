"""Frames of stacks on the host, and who owns their code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perfpipe.ingest.ncu.names import namespace
from perfpipe.source_paths import CELL, PACKAGES, STANDARD

#: Function name of code outside functions.
MODULE = "<module>"

USER, LIBRARY, PYTHON, GENERATED, NATIVE = "user", "library", "python", "generated", "native"

#: Installed packages, the standard library, and cells of notebooks.
_PACKAGES, _STANDARD, _CELL = map(re.compile, (PACKAGES, STANDARD, CELL))

#: Modules of the standard library; the second line lists those that later versions lack.
_MODULES = sys.stdlib_module_names | frozenset(
    "aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap "
    "msilib nis nntplib ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib".split()
)

#: Code of the interpreter that has no file.
_BUILT_IN = re.compile(r"<frozen |<__array_function__ ")

#: Code that the user types: cells of notebooks, and programs from standard input.
_TYPED = re.compile(r"<ipython-input-|<stdin>$|<command-")

#: A program that `python -c` executes, and functions that libraries make.
_TEXT = "<string>"

#: Code that is made while the program runs: exec, torch.fx, Inductor, Triton.
_MADE = re.compile(
    r"^<|(?:^|/)torchinductor_[^/]*/|(?:^|/)c[a-z2-7]{51}\.py$|(?:^|/)\.triton/cache/"
    r"|/triton_[^/]*cache/"
)

#: Programs that are installed with a package: torchrun, accelerate.
_SCRIPT = re.compile(r"^(?:.*/(?:bin|Scripts)/)?([^/.]+?)(?:-script\.py|\.exe/__main__\.py)?$")

#: An absolute path.
_ABSOLUTE = re.compile(r"/|[A-Za-z]:/|\.")

#: Libraries that are often used from a folder of source code.
_KNOWN = frozenset(
    "accelerate apex cupy deepspeed diffusers einops flash_attn flax jax jaxlib keras lightning "
    "megatron numpy optax pandas peft pytorch_lightning scipy sglang sklearn tensorflow timm torch "
    "torchaudio torchdata torchvision transformer_engine transformers triton trl vllm "
    "xformers".split()
)

#: Further libraries, for paths without the folder of packages, which torch.profiler removes.
_OFTEN = _KNOWN | frozenset(
    "absl aiohttp aiter albumentations av bitsandbytes causal_conv1d click cutlass cv2 dask "
    "deep_ep deep_gemm fairscale fastapi fla flashinfer gymnasium h5py huggingface_hub hydra "
    "imageio lightning_fabric liger_kernel mamba_ssm matplotlib mmcv mmengine monai mpi4py "
    "networkx nltk numba omegaconf outlines PIL pyarrow pydantic ray requests safetensors "
    "sgl_kernel six skimage spacy sympy tensorboard tilelang tokenizers torch_guard torchao "
    "torchmetrics torchtitan torchtune tqdm typer typing_extensions unsloth urllib3 uvicorn wandb "
    "triton_kernels xfuser xgrammar yaml zmq".split()
)

#: The interpreter.
_INTERPRETER = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*t?$|(?:.*/)?libpython")

#: Programs of the system, the profiler and compilers, which the program starts.
_SYSTEM = re.compile(
    r"/(?:s?bin|lib\d*|usr/(?!local/))|.*nsight"
    r"|(?:.*[/-])?(?:ar|as|bash|cc1|cc1plus|cicc|cmake|collect2|cudafe\+\+|fatbinary|g\+\+|gcc|git|ld"
    r"|make|ninja|nvcc|nvlink|ptxas|sh)(?:-\d+)?$"
)

#: Libraries that programs bring along.
_DELIVERED = re.compile(
    r"(?:lib)?(?:cu(?:blas|da|dnn|fft|pti|rand|solver|sparse|tensor)|nv|nccl|torch|c10|mkl|openblas"
    r"|gomp|iomp|omp|stdc\+\+|gcc_s|mpi|uc[mpst]|tbb)"
)

#: Functions of the CUDA runtime, which is part of most programs, and templates of its headers.
_RUNTIME = re.compile(
    r"(?:__)?(?:cuda|cu)[A-Z]\w*$|libcudart_static_\w+$|__cuda\w+$"
    r"|(?:static )?cudaError(?:_t)? cuda[A-Z]\w*<|(?:\w+ )*cudart::"
)
_RUNTIME_LIBRARY = "libcudart.so"

#: Namespaces of libraries that are compiled into programs.
_HEADERS = frozenset(
    "__gnu_cxx at boost c10 cub cuda cute cutlass Eigen fmt Kokkos nlohmann raft std thrust "
    "torch".split()
)

#: The first functions of a program, and the function of libc that calls them.
_FIRST, _LIBC_START = ("main", "_start"), "__libc_start_main"


class Frame(NamedTuple):
    """A function that was being executed at a line; `file` is a library if it is native."""

    function: str
    file: str | None
    line: int | None
    native: bool = False


Stack = tuple[Frame, ...]  # innermost first


class Owners:
    """Says who owns the code of a frame, from its file and from what the program executed.

    What lies beside or below the script that the interpreter started is the user's, unless it is
    installed; elsewhere, the folder of a well-known library is that library.  Native code of the
    user is in the module that has the first function, or below its folder.
    """

    def __init__(self, stacks: Iterable[Stack] = ()) -> None:
        known = list(stacks)
        self._scripts = _scripts(known)
        self._folders = frozenset(
            folder for script in self._scripts if (folder := script.rpartition("/")[0] + "/") != "/"
        )
        self._programs = _programs(known)

    def of(self, frame: Frame) -> tuple[str, str | None]:
        """Return the kind of a frame, and the library that it belongs to."""
        if frame.native:
            return self._of_module(frame)
        if not frame.file and frame.function.startswith("<built-in "):
            return PYTHON, None
        return self.of_file(frame.file or "")

    def of_file(self, path: str) -> tuple[str, str | None]:
        """Return the kind of code in a file of Python, and the library that it belongs to."""
        path = path.replace("\\", "/")
        kind, package = _by_path(path)
        if path in self._scripts:
            return USER, None
        if kind != USER or not package:
            return kind, package
        below = any(path.startswith(folder) for folder in self._folders)
        return (USER, None) if below else (LIBRARY, package)

    def _of_module(self, frame: Frame) -> tuple[str, str | None]:
        path = (frame.file or "").replace("\\", "/")
        if _INTERPRETER.match(path):
            return PYTHON, None
        if path in self._programs and _RUNTIME.match(frame.function):
            return NATIVE, _RUNTIME_LIBRARY
        if path in self._programs and (library := _header_of(frame.function)):
            return NATIVE, library
        name = path.rpartition("/")[2]
        folders = {program.rpartition("/")[0] + "/" for program in self._programs} - {"/"}
        if path in self._programs or (
            any(path.startswith(folder) for folder in folders) and not _DELIVERED.match(name)
        ):
            return USER, None
        return NATIVE, library_of(path) or None


def _header_of(function: str) -> str | None:
    """Return the library in whose headers a function of a program is."""
    if function.startswith(("operator new", "operator delete")):
        return "std"
    name = namespace(function)
    return name if name in _HEADERS else None


def library_of(path: str) -> str:
    """Return the name of a library without its version.

    >>> library_of("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15")
    'libcuda.so'
    """
    return re.sub(r"\.so[.\d]*$", ".so", path.replace("\\", "/").rpartition("/")[2])


def _by_path(path: str) -> tuple[str, str | None]:
    """Return the kind of a file, and the library that its folders name."""
    if _CELL.match(path) or _TYPED.match(path):
        return USER, None
    if installed := _PACKAGES.match(path):
        return LIBRARY, path[installed.end() :].split("/")[0].removesuffix(".py")
    first = path.split("/")[0]
    if _BUILT_IN.match(path):
        return PYTHON, None
    if standard := _STANDARD.match(path):
        windows = path[1:2] == ":"
        if not windows or _is_standard(path[standard.end() :].split("/")[0]):
            return PYTHON, None
    if not path or _MADE.search(path):
        return GENERATED, None
    if script := _SCRIPT.match(path):
        return LIBRARY, script[1]
    if not _ABSOLUTE.match(path):
        if _is_standard(first):
            return PYTHON, None
        if (name := first.removesuffix(".py")) in _OFTEN:
            return USER, name
    return USER, next((name for name in path.split("/")[:-1] if name in _KNOWN), None)


def _is_standard(name: str) -> bool:
    return name.removesuffix(".py") in _MODULES


def _scripts(stacks: Sequence[Stack]) -> frozenset[str]:
    """Return the scripts that the interpreter started.

    A script is the outermost code of the user outside functions.  What is outermost of all was
    started by its path, whatever its folders are called.  A frame of `python -c` that calls nothing
    may be the command of a child process as well, if another stack shows such a command.
    """
    scripts = set()
    spawned = any(stack and _starts_process(stack, 0) for stack in stacks)
    for stack in stacks:
        for at, frame in enumerate(reversed(stack)):
            if frame.function != MODULE or frame.native or not frame.file:
                continue
            path = frame.file.replace("\\", "/")
            kind, package = _by_path(path)
            relative = kind == PYTHON and "/" not in path and not path.startswith("<")
            command = path == _TEXT and not (
                _starts_process(stack, at) or (spawned and len(stack) == 1)
            )
            started = kind == USER or relative or command
            if started and (at == 0 or (kind == USER and package is None)):
                scripts.add(path)
            if started:
                break
    return frozenset(scripts)


def _starts_process(stack: Stack, outside: int) -> bool:
    """Return whether the frame in this place from outside is Python's command for a process."""
    inner = stack[: len(stack) - outside - 1]
    return bool(inner) and "multiprocessing/" in (inner[-1].file or "").replace("\\", "/")


def _programs(stacks: Iterable[Stack]) -> frozenset[str]:
    """Return the modules of native programs, as opposed to libraries and interpreters."""
    found = set()
    for stack in stacks:
        for inner, frame in zip((None, *stack), stack, strict=False):
            first = frame.function in _FIRST or (
                inner is not None and inner.function.startswith(_LIBC_START)
            )
            if frame.native and first and frame.file:
                found.add(frame.file.replace("\\", "/"))
    return frozenset(
        path
        for path in found
        if not _INTERPRETER.match(path) and not _SYSTEM.match(path) and ".so" not in path
    )
