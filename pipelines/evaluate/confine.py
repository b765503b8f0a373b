"""Confines the process of a candidate: files, network, signals, memory of others, resources.

Landlock (Linux 5.13 or later) refuses files outside an allow-list; later versions also signals to
other processes (6.12).  A confined process may not trace one outside, and so not read its memory.
A seccomp filter refuses sockets and other calls that no kernel needs.  Root loses its
capabilities.  Imports nothing but the standard library and the filter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perfpipe.pipelines.evaluate import seccomp

#: System calls of Landlock, alike on all architectures.
_CREATE, _ADD, _RESTRICT = 444, 445, 446

#: Rights on files, by bit: the first four are reading and running.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ = _EXECUTE | _READ_FILE | _READ_DIR

#: Rights that the versions of Landlock know; `ioctl` on devices (bit 15) is not restricted.
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}

#: Rights that files have, and directories only.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14

#: Bind and connect over TCP; abstract sockets and signals to processes outside.
_TCP, _SCOPES = 3, 3

_VERSION_ONLY, _PATH_RULE = 1, 1
_NO_NEW_PRIVS, _PARENT_DEATH, _DROP = 38, 1, 24

#: capset(), and the version of its structures.
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES = 0x20080522

#: Capabilities that root keeps: Landlock decides on files, as it does for others.
_OF_OWNERS = 1 << 1 | 1 << 2

#: What a GPU's profiler needs where its counters are for administrators only: CAP_SYS_ADMIN.
_OF_COUNTERS = 1 << 21

#: What a GPU's driver may use while it starts, besides what a candidate may.
_DRIVER_READS, _DRIVER_WRITES = ("/etc", "/run", "/proc"), ("/dev", "/tmp/nvidia-mps")  # noqa: S108


def confine(asked: Mapping[str, Any], *, profiled: bool = False) -> dict[str, bool]:
    """Confine this process and its children permanently; return the restrictions.

    `asked` has the paths `readable`, `hidden` (not readable although below a readable one) and
    `writable`, and `limits` with file_bytes and cpu_s.  The answer says what the kernel enforces:
    files, network (no sockets), signals, and system calls.  Landlock confines only the calling
    thread and those that it starts: call this before other threads start.
    """
    limits = asked["limits"]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _limit(resource.RLIMIT_CPU, limits["cpu_s"])
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        return dict.fromkeys(("files", "network", "signals", "system calls"), False)
    _drop(libc, _OF_OWNERS | _OF_COUNTERS * profiled)
    version = _landlock(libc, asked["readable"], asked["hidden"], asked["writable"])
    filtered = seccomp.install()
    return {
        "files": version >= 1, "network": filtered, "signals": version >= 6,
        "system calls": filtered,
    }  # fmt: skip


def confine_driver(asked: Mapping[str, Any]) -> None:
    """Confine the threads that a GPU's driver is about to start.

    They run functions of a candidate (cudaLaunchHostFunc), and Landlock does not reach threads
    that run already; the filter of `confine` does.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        return
    _drop(libc, _OF_OWNERS)
    reads = [*asked["readable"], *_DRIVER_READS]
    _landlock(libc, reads, asked["hidden"], [*asked["writable"], *_DRIVER_WRITES])


def limit_memory(more: int) -> None:
    """Allow this process `more` bytes of address space beyond what it has."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        pages = int(file.read().split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + more)


def visible(root: str, hidden: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield paths below `root` with the rights to read them, for everything but `hidden`.

    A directory above something hidden can be listed; what it contains is readable one by one.
    """
    below = [path for path in hidden if path == root or path.startswith(f"{root}/")]
    if not below:
        yield root, _READ
    elif root not in below:
        yield root, _READ_DIR
        with contextlib.suppress(OSError):
            for name in os.listdir(root):  # noqa: PTH208
                path = os.path.join(root, name)  # noqa: PTH118
                # A link is only another name: what it leads to has rules of its own.
                if not os.path.islink(path):  # noqa: PTH114
                    yield from visible(path, below)


def _landlock(
    libc: ctypes.CDLL, readable: Iterable[str], hidden: Iterable[str], writable: Iterable[str]
) -> int:
    """Restrict this thread, and return the version of Landlock that enforces it; 0 is none."""
    version: int = libc.syscall(_CREATE, None, 0, _VERSION_ONLY)
    if version < 1:
        return 0
    handled = _ALL[min(version, 3)]
    rules = struct.pack("QQQ", handled, _TCP * (version >= 4), _SCOPES * (version >= 6))
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE, rules, size, 0)
    if ruleset < 0:
        return 0
    hidden = [*hidden]
    for root in readable:
        for path, rights in visible(root, hidden):
            _allow(libc, ruleset, path, rights & handled)
    for path in writable:
        _allow(libc, ruleset, path, handled)
    failed = libc.syscall(_RESTRICT, ruleset, 0)
    os.close(ruleset)
    return 0 if failed else version


def _drop(libc: ctypes.CDLL, kept: int) -> None:
    """Give up the capabilities of root except for some; a failure changes nothing."""
    call = _CAPSET.get(os.uname().machine)
    if call is None or os.geteuid():
        return
    for number in range(64):
        if not kept >> number & 1:
            libc.prctl(_DROP, number, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITIES, 0)
    now = ctypes.create_string_buffer(24)
    libc.syscall(call - 1, header, now)  # capget() comes before capset()
    effective, permitted, *_ = struct.unpack("=6I", now.raw)
    data = struct.pack("=6I", effective & kept, permitted & kept, 0, 0, 0, 0)
    libc.syscall(call, header, data)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Allow everything below a path; a missing path is skipped."""
    try:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112
        rights &= _OF_FILES
    libc.syscall(_ADD, ruleset, _PATH_RULE, struct.pack("=Qi", rights, at), 0)
    os.close(at)
