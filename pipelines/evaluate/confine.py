"""Confines the process of a candidate: files, network, signals, memory of others, resources.

Landlock (Linux 5.13 or later) refuses files outside an allow-list; later versions also TCP (6.7)
and signals to other processes (6.12).  A confined process may not trace one outside, and so not
read its memory.  Imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable, Mapping

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
_NO_NEW_PRIVS, _PARENT_DEATH = 38, 1


def confine(
    readable: Iterable[str], writable: Iterable[str], limits: Mapping[str, int]
) -> dict[str, bool]:
    """Confine this process and its children permanently; return the restrictions.

    `files`, `network` and `signals` say what the kernel enforces.  `limits` has file_bytes and
    cpu_s.  Only the calling thread is confined: call it before other threads start.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _limit(resource.RLIMIT_CPU, limits["cpu_s"])
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        return {"files": False, "network": False, "signals": False}
    version = libc.syscall(_CREATE, None, 0, _VERSION_ONLY)
    refused = {"files": version >= 1, "network": version >= 4, "signals": version >= 6}
    if version < 1:
        return refused
    handled = _ALL[min(version, 3)]
    rules = struct.pack("QQQ", handled, _TCP * refused["network"], _SCOPES * refused["signals"])
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE, rules, size, 0)
    if ruleset < 0:
        return dict.fromkeys(refused, False)
    for path in readable:
        _allow(libc, ruleset, path, _READ & handled)
    for path in writable:
        _allow(libc, ruleset, path, handled)
    if libc.syscall(_RESTRICT, ruleset, 0):
        refused = dict.fromkeys(refused, False)
    os.close(ruleset)
    return refused


def limit_memory(more: int) -> None:
    """Allow this process `more` bytes of address space beyond what it has."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        pages = int(file.read().split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + more)


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
