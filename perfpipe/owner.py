"""Owners of temporary files: the name identifies the process, so that its end can be detected.

    .tmp-gemm-1a2b3c4d@node7@4026531836@4711@8812345     host, process namespace, process, its start

The next command that writes there removes the files of a killed process.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from functools import cache
from pathlib import Path

#: Start of a process that the system hides.
_UNKNOWN = "unknown"

_MARK = re.compile(r"@(?P<host>[^@/]+)@(?P<space>\d+)@(?P<pid>\d+)@(?P<started>\w+)")


def own_name(begin: str) -> str:
    """Return a new name with this prefix that marks this process as the owner."""
    return f"{begin}-{uuid.uuid4().hex[:8]}{own_mark()}"


def own_mark() -> str:
    """Return the suffix of names that this process owns."""
    pid = os.getpid()
    return f"@{host()}@{_space()}@{pid}@{_started(pid)}"


def owner_of(name: str) -> tuple[str, int] | None:
    """Return host and process of the owner of a name; None if the name has no owner."""
    found = _MARK.search(name)
    return (found["host"], int(found["pid"])) if found else None


def has_ended(name: str) -> bool:
    """Return whether the owner of a name is known to have ended."""
    return _lives(name) is False


def is_at_work(name: str) -> bool:
    """Return whether the owner of a name is known to be running."""
    return _lives(name) is True


def _lives(name: str) -> bool | None:
    """Return whether the owner of a name runs; None for other machines and containers.

    A process with the same number that started later is a different process.  None also where the
    system hides when a process of another user started.
    """
    found = _MARK.search(name)
    if not found or (found["host"], found["space"]) != (host(), _space()):
        return None
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    started = _started(pid)
    if started == found["started"]:
        return True
    return None if started == _UNKNOWN else False


@cache
def host() -> str:
    """Return the name of this machine, without characters that file names cannot have."""
    return re.sub(r"[@/\0]", "_", socket.gethostname()) or "localhost"


@cache
def _space() -> str:
    """Return the number of the process namespace; containers have their own."""
    try:
        return re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink())) or "0"
    except OSError:
        return "0"


def _started(pid: int) -> str:
    """Return the start time of a process, which distinguishes reused process numbers."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _UNKNOWN
    fields = stat.rpartition(")")[2].split()
    # An ended process stays in the list until its parent reaps it.
    return "ended" if fields[0] in "ZX" else fields[19]
