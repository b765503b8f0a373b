"""One process at a time works on a run: each leaves a claim in its directory while it does."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.store import storing

#: A claim is an empty file whose name says whose it is: host, process, start of the process.
_CLAIM = re.compile(r"claim@(.+)@(\d+)@(\w+)")


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Claim a run's directory; InputError names the process that works on it already.

    The claim is made before others are looked for, so that of two processes at most one goes on.
    Claims of processes of this machine that have ended are removed.
    """
    host, pid = socket.gethostname(), os.getpid()
    own = directory / f"claim@{host}@{pid}@{_started(pid)}"
    with storing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        own.touch()
    try:
        for other in directory.glob("claim@*"):
            match = _CLAIM.fullmatch(other.name)
            if other == own or not match:
                continue
            its_host, its_pid, started = match.groups()
            if its_host != host:
                end = f"; if it has ended, remove {other}"
            elif _runs(int(its_pid), started):
                end = ""
            else:
                other.unlink(missing_ok=True)
                continue
            raise InputError(f"{directory.name}: process {its_pid} on {its_host} runs it{end}")
        yield
    finally:
        own.unlink(missing_ok=True)


def _runs(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _started(pid) == started


def _started(pid: int) -> str:
    """Return when a process started, which tells it from a later one of the same number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return "unknown"
