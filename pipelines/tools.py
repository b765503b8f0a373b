"""Finds the profilers and the GPU, and explains what prevents their use."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfpipe.errors import PerfpipeError, ToolMissing
from perfpipe.ingest.ncu.faults import KNOWN
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.process import Finished, run

#: Where installers put the tools, besides PATH; the newest directories are tried first.
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

#: The oldest supported profilers.
OLDEST = {"nsys": "2023.1", "ncu": "2022.1"}

_HELP = ("profile", "--help")

_VERSION = re.compile(r"\b(\d{4}\.\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Tool:
    """A profiler: its path on the machine where it runs, and its version as printed."""

    name: str
    path: str
    version: str


@cache
def find_tool(name: str) -> Tool | None:
    """Return nsys or ncu from PATH or from where NVIDIA's installers put it."""
    for path in _candidates(name):
        try:
            answer = run([path, "--version"], timeout=60)
        except PerfpipeError:
            continue
        if tool := _tool(name, path, answer):
            return tool
    return None


def find_tool_on(launcher: Launcher, name: str) -> Tool | None:
    """Return nsys or ncu on the machine where a launcher runs programs."""
    return find_tool(name) if launcher.here else _find_tool_there(launcher, name)


@cache
def _find_tool_there(launcher: Launcher, name: str) -> Tool | None:
    """Look up a tool once per launcher, not once per task."""
    # $CUDA_HOME is expanded on the remote side.
    path = launcher.which([name, *_PLACES[name]])
    return _tool(name, path, launcher.run([path, "--version"], timeout=60)) if path else None


def require_tool(name: str, launcher: Launcher | None = None) -> Tool:
    """Return a usable tool; raises ToolMissing with what to install or update."""
    tool = find_tool_on(launcher, name) if launcher else find_tool(name)
    product = {"nsys": "Nsight Systems", "ncu": "Nsight Compute"}[name]
    if tool is None:
        where = " on the target machine" if launcher and not launcher.here else ""
        raise ToolMissing(
            f"{name} was not found on PATH, in CUDA_HOME or under /opt/nvidia{where}; "
            f"install {product}, or see 'perfpipe doctor'"
        )
    if _numbers(tool.version) < _numbers(OLDEST[name]):
        raise ToolMissing(
            f"{name} {tool.version} is too old: {product} {OLDEST[name]} or newer is needed"
        )
    return tool


def nsys_offers(option: str, nsys: str, launcher: Launcher) -> bool:
    """Return whether `nsys profile` has an option, where a launcher runs programs."""
    return option in (_help_of(nsys) if launcher.here else _help_there(launcher, nsys))


@cache
def _help_of(nsys: str) -> str:
    return _help(run([nsys, *_HELP], timeout=60))


@cache
def _help_there(launcher: Launcher, nsys: str) -> str:
    return _help(launcher.run([nsys, *_HELP], timeout=60))


def offered(nsys: str, verb: str, words: Iterable[str]) -> list[str]:
    """Return the words whose option `nsys VERB` has, in this version."""
    known = _options_of(nsys, verb)
    return [word for word in words if word.partition("=")[0] in known]


@cache
def _options_of(nsys: str, verb: str) -> frozenset[str]:
    """Return the long options of `nsys VERB`, from its help."""
    said = _help(run([nsys, verb, "--help"], timeout=60))
    return frozenset(re.findall(r"(?m)^\s*(?:-\w,\s*)?(--[\w-]+)", said))


def _help(answer: Finished) -> str:
    return answer.stdout + answer.stderr


def _tool(name: str, path: str, answer: Finished) -> Tool | None:
    match = _VERSION.search(answer.stdout)
    return Tool(name, path, match[1]) if answer.ok and match else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _candidates(name: str) -> list[str]:
    found = [path] if (path := shutil.which(name)) else []
    for pattern in _PLACES[name]:
        place = os.path.expandvars(pattern)
        if place.startswith("/"):
            found += sorted(map(str, Path("/").glob(place.lstrip("/"))), reverse=True)
    return list(dict.fromkeys(found))


@cache
def gpus() -> tuple[str, ...]:
    """Return the names of the local GPUs; empty without a driver."""
    return _gpus(run)


def gpus_on(launcher: Launcher) -> tuple[str, ...]:
    """Return the names of the GPUs on the machine where a launcher runs programs."""
    return gpus() if launcher.here else _gpus(launcher.run)


def _gpus(run_there: Callable[..., Finished]) -> tuple[str, ...]:
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        answer = run_there(query, timeout=60)
    except PerfpipeError:
        return ()
    lines = [line.strip() for line in answer.stdout.splitlines()]
    return tuple(line for line in lines if line) if answer.ok else ()


#: Parts of known profiler messages in lower case, with the explanation and remedy.
_KNOWN_FAULTS = (
    *KNOWN,
    (
        "libdw.so.1",
        "nsys cannot import its own data without libdw; install the packages libdw1 and libelf1",
    ),
    (
        "libelf.so.1",
        "nsys cannot import its own data without libelf; install the packages libdw1 and libelf1",
    ),
    ("cuda error: out of memory", "the GPU is out of memory"),
    ("cuda out of memory", "the GPU is out of memory"),
    ("no space left on device", "the disk is full"),
    ("disk quota exceeded", "the disk quota is exceeded"),
)


def explain(output: str) -> str | None:
    """Return the meaning of a known message in a profiler's output, and the remedy."""
    told = output.lower()
    return next((advice for sign, advice in _KNOWN_FAULTS if sign in told), None)
