"""What the process of a candidate may read and write."""

from __future__ import annotations

import glob
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

#: Libraries and tools; PyTorch's directories and the candidate's own come on top.
_LIBRARIES = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/sys", "/run/nvidia")

#: Settings of the loader, the C library, Python, and drivers: everyone may read them.
_SETTINGS = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/nsswitch.conf",
    "/etc/passwd", "/etc/group", "/etc/localtime", "/etc/alternatives", "/etc/nvidia",
    "/etc/OpenCL", "/etc/python3*", "/etc/ssl/openssl.cnf",
)  # fmt: skip

#: Facts on the machine.  Of the processes, a candidate sees its own only: command lines of others
#: may have the seed.
_FACTS = tuple(
    f"/proc/{name}"
    for name in (
        "self", "cpuinfo", "meminfo", "stat", "version", "filesystems", "devices", "modules",
        "loadavg", "uptime", "driver", "sys",
    )
)  # fmt: skip

#: Devices without memory, and those of NVIDIA's driver.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OF_DRIVER = ("/dev/nvidia*",)

#: Packages of perfpipe with references and their candidates.
_OWN = ("workloads",)


def paths(directory: Path, device: str, hidden: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return `readable`, `hidden` and `writable` paths of a candidate in `directory`."""
    roots = [sys.prefix, sys.base_prefix]
    roots += [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib")]
    roots += [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    roots += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    roots += [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    found = _real((*_LIBRARIES, *roots, str(directory)))
    found += [path for pattern in _SETTINGS for path in glob.glob(pattern)]  # noqa: PTH207
    patterns = (*_DEVICES, *(_OF_DRIVER if device != "cpu" else ()))
    devices = [path for pattern in patterns for path in glob.glob(pattern)]  # noqa: PTH207
    return {
        "readable": [*found, *_FACTS],
        "hidden": [*hidden],
        "writable": [str(directory), *devices],
    }


def hidden(problem: Path) -> list[str]:
    """Return what a candidate may not read even if it lies among libraries.

    The problem's file with its compiled form, and references that perfpipe ships.
    """
    tree = Path(__file__).parents[3]
    own = [problem, problem.resolve().parent / "__pycache__", *(tree / name for name in _OWN)]
    return _real(map(str, own))


def _real(names: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(os.path.realpath(path) for path in names if path not in ("", "/"))]
