"""Finds the profilers and the GPU, and says what stands in the way of using them."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfpipe.errors import PerfpipeError, ToolMissing
from pipelines.process import run

#: Where installers put the tools beside PATH; newest directories are tried first.
_PLACES = {
    "nsys": (
        "$CUDA_HOME/bin/nsys",
        "/opt/nvidia/nsight-systems/*/bin/nsys",
        "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
        "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
        "/usr/local/cuda*/bin/nsys",
        "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    ),
    "ncu": (
        "$CUDA_HOME/bin/ncu",
        "/opt/nvidia/nsight-compute/*/ncu",
        "/usr/local/cuda*/bin/ncu",
    ),
}
_VERSION = re.compile(r"\b(\d{4}\.\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Tool:
    """A profiler: its path, and its version as it prints it."""

    name: str
    path: Path
    version: str


@cache
def find_tool(name: str) -> Tool | None:
    """Return nsys or ncu from PATH or from where NVIDIA's installers put it."""
    for path in _candidates(name):
        try:
            answer = run([path, "--version"], timeout=60)
        except PerfpipeError:
            continue
        match = _VERSION.search(answer.stdout)
        if answer.ok and match:
            return Tool(name, path, match[1])
    return None


def need_tool(name: str) -> Tool:
    """Return a tool; ToolMissing tells what to install when it is not there."""
    tool = find_tool(name)
    if tool is None:
        product = {"nsys": "Nsight Systems", "ncu": "Nsight Compute"}[name]
        raise ToolMissing(
            f"{name} was not found on PATH, in CUDA_HOME or under /opt/nvidia; "
            f"install {product}, or see 'perfpipe doctor'"
        )
    return tool


def _candidates(name: str) -> list[Path]:
    found = [Path(p)] if (p := shutil.which(name)) else []
    for pattern in _PLACES[name]:
        place = os.path.expandvars(pattern)
        if place.startswith("/"):
            found += sorted(Path("/").glob(place.lstrip("/")), reverse=True)
    return list(dict.fromkeys(found))


@cache
def gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that the driver shows; empty without a driver."""
    try:
        answer = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=60)
    except PerfpipeError:
        return ()
    return (
        tuple(line.strip() for line in answer.stdout.splitlines() if line.strip())
        if answer.ok
        else ()
    )


#: What a profiler prints, and what to do about it.
_KNOWN_FAULTS = (
    (
        "ERR_NVGPUCTRPERM",
        "the driver lets only administrators read performance counters; run as root, or set "
        "NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
    ),
    ("No kernels were profiled", "no kernel was launched, or none passed the kernel filter"),
    ("libdw.so.1", "nsys cannot import its own data without libdw; install the package libdw1"),
    ("driver version is insufficient", "the NVIDIA driver is too old for this CUDA version"),
    ("No space left on device", "the disk is full"),
)


def explain(output: str) -> str | None:
    """Return what a known message in a profiler's output means and how to mend it."""
    return next((advice for sign, advice in _KNOWN_FAULTS if sign in output), None)
