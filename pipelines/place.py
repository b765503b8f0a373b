"""The machine, GPUs, environment and packages of a program, as recorded with results."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.collectors.nvml import handles_of
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.process import run
from perfpipe.provenance import utc_now
from perfpipe.ranrecord import Ran
from perfpipe.secrets import hide, is_secret_variable

#: Variables that libraries for GPUs and threads read.
_TELLING = re.compile(
    r"(CUDA|CUBLAS|CUDNN|NCCL|NVIDIA|NVTE|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|XLA|JAX|TF_XLA|TF_GPU"
    r"|OMP|KMP|MKL|OPENBLAS)_\w+"
)

#: Packages whose version can change the speed of a program.
_PACKAGES = re.compile(
    r"(torch|triton|jax|nvidia-|cuda-|cupy|numba|numpy|scipy|tensorflow|tensorrt|onnxruntime"
    r"|transformers|flash.attn|xformers|vllm|deepspeed|accelerate|lightning|apex).*"
)

#: Prints the versions of all packages of an interpreter; for a package that is installed twice, the
#: version that would be imported.  Parsing the whole metadata takes twice as long.
_LIST = (
    "import json, re; from importlib.metadata import distributions as d; "
    "r = lambda x: x.read_text('METADATA') or x.read_text('PKG-INFO') or x.read_text('') or ''; "
    "f = re.compile('^(Name|Version): *(.+?) *$', re.M).findall; "
    "m = [dict(f(r(x).partition('\\n\\n')[0])) for x in d()]; "
    "print(json.dumps({x['Name']: x.get('Version') for x in reversed(m) if 'Name' in x}))"
)

#: Time limit for listing the packages of an interpreter, s.
_LIST_S = 60


def stopwatch(
    launcher: Launcher, env: Mapping[str, str], command: Sequence[str] = ()
) -> Callable[[], Ran]:
    """Return a function that reports where, with what and for how long a program ran since now.

    `env` has the variables that the program's environment adds to this one.
    """
    git = launcher.git
    started_at, began = utc_now(), time.monotonic()

    def ran() -> Ran:
        seconds = round(time.monotonic() - began, 3)
        here = launcher.here
        inside = here and not launcher.execution.wrapper
        return Ran(
            started_at=started_at,
            ended_at=utc_now(),
            seconds=seconds,
            host=host_name() if here else None,
            gpus=gpu_uuids(env) if here else None,
            environment=variables(env) if here else None,
            packages=packages(command[0]) if inside and command else None,
            machine=machine(env) if here else None,
            git=git,
        )

    return ran


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that can change the speed of a program, without secrets."""
    telling = {name: text for name, text in os.environ.items() if _TELLING.fullmatch(name)}
    found = {**telling, **env}
    return {name: hide(found[name]) for name in sorted(found) if not is_secret_variable(name)}


@cache
def packages(program: str) -> dict[str, str] | None:
    """Return the versions of the packages that matter to a Python program; None for any other."""
    if not re.fullmatch(r"python[\d.]*", PurePath(program).name):
        return None
    try:
        listed = run([program, "-c", _LIST], timeout=_LIST_S)
        found = json.loads(listed.stdout) if listed.ok else None
    except (PerfpipeError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    return {name: found[name] for name in sorted(found) if _PACKAGES.fullmatch(name.lower())}


def host_name() -> str:
    """Return the name of this machine, as the scheduler calls it if there is one."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def gpu_uuids(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a program sees with additional variables; empty if none."""
    import pynvml

    return _of_gpus(pynvml.nvmlDeviceGetUUID, env)


def machine(env: Mapping[str, str]) -> str:
    """Return the models of the GPUs that a program sees with additional variables.

    Without a GPU it is the model of the processor, with the number of CPUs.
    """
    import pynvml

    models = sorted({*_of_gpus(pynvml.nvmlDeviceGetName, env)})
    return " and ".join(models) or _processor()


def _of_gpus(ask: Callable[[Any], str | bytes], env: Mapping[str, str]) -> tuple[str, ...]:
    found, _ = handles_of({**os.environ, **env})
    answers = (ask(handle) for handle in found.values())
    return tuple(a.decode() if isinstance(a, bytes) else a for a in answers)


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    model = next(models, "") or platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} CPUs"
