"""The device that tests of the judge use: PERFPIPE_TEST_DEVICE, which is cpu or cuda."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import pytest

from perfpipe.pipelines.evaluate.device import device_of, pytorch

_ASKED = os.environ.get("PERFPIPE_TEST_DEVICE", "cpu")
if _ASKED not in ("cpu", "cuda"):
    raise pytest.UsageError(f"PERFPIPE_TEST_DEVICE={_ASKED}: give cpu or cuda")

ON_GPU = _ASKED == "cuda"

#: Rows, of 2048 columns, of calls that are timed: on a GPU, kernels must take longer than their
#: launches, and a batch longer than switching from process to process.
ROWS = 4096 if ON_GPU else 16

#: Host memory that the libraries of CUDA take in the process of a candidate, MiB.
DRIVER_MB = 4096 if ON_GPU else 0

#: How long a process may take to initialize CUDA, s.
DRIVER_S = 20.0 if ON_GPU else 0.0

#: Where nvcc usually is, if the PATH does not have it.
_CUDA = "/usr/local/cuda/bin"


def device() -> str:
    """Return PyTorch's name of the device; raises ToolMissing without a GPU."""
    return device_of(pytorch(), _ASKED)


def wait(torch: Any) -> None:
    """Wait until the device has done its work."""
    if ON_GPU:
        torch.cuda.synchronize()


def applicable(
    names: Iterable[str],
    cpu_only: Mapping[str, str],
    gpu_only: Mapping[str, str] | None = None,
) -> list[Any]:
    """Return the names as parameters of a test; those that do not apply to the device are skipped.

    `cpu_only` says why a candidate needs the CPU, `gpu_only` which program or Python package one
    for GPUs needs.
    """
    return [
        pytest.param(name, marks=[pytest.mark.skip(reason=why)] if why else [])
        for name in names
        for why in [_why_not(name, cpu_only, gpu_only or {})]
    ]


def _why_not(name: str, cpu_only: Mapping[str, str], gpu_only: Mapping[str, str]) -> str | None:
    if ON_GPU and name in cpu_only:
        return cpu_only[name]
    if name not in gpu_only:
        return None
    if not ON_GPU:
        return "needs a GPU: set PERFPIPE_TEST_DEVICE=cuda"
    what = gpu_only[name]
    path = f"{os.environ.get('PATH', '')}:{_CUDA}"
    there = shutil.which(what, path=path) or find_spec(what)
    return None if there else f"{what} is not installed"
