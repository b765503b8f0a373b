"""Forks processes of candidates from a process with PyTorch that never runs their code.

Runs as a program of its own, under the supervisor, with the descriptor of a socket as its last
argument.  Each packet asks for one thing, in JSON:

    {"do": "bear", ...}        fork a process; it gets the descriptors that come along
    {"do": "end", "pid": PID}  end it, with all that it started

and is answered by {"pid": PID} or {"code": exit code, -N for signal N; "left": other processes}.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from perfpipe.pipelines.evaluate.packets import PACKET

_SUBREAPER = 36

#: How many descriptors come along with a packet.
_DESCRIPTORS = 4

#: How long a killed process may take to end, s.
_KILLED_S = 20.0


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Disable garbage collection in the block, and exclude the objects loaded in it afterwards.

    Collection makes PyTorch load a fifth slower, and in a fork it would copy pages.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def main() -> None:
    """Answer until the socket closes."""
    control = socket.socket(fileno=int(sys.argv[-1]))
    control.set_inheritable(False)
    ours = [path for path in json.loads(sys.argv[-2]) if path not in sys.path]
    # Only the standard library and what PyTorch needs: neither perfpipe nor references.
    sys.path[:] = [path for path in sys.path[1:] if is_library(path)] + ours
    with loading():
        import torch
        import torch._dynamo  # replaces functions of PyTorch when it is first imported

        with contextlib.suppress(ImportError):
            import triton
            import triton.language  # noqa: F401
        from perfpipe.pipelines.evaluate import inside, watching

        # Load lazily loaded parts once, before forking.
        watching.operators_of(torch, lambda: torch.empty(0))
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    born: set[int] = set()
    control.send(b'{"ready": true}')
    while True:
        packet, given, _, _ = socket.recv_fds(control, PACKET, _DESCRIPTORS)
        if not packet:
            return
        asked = json.loads(packet)
        if asked["do"] == "bear":
            pid = os.fork()
            if pid == 0:
                control.close()
                inside.run(asked, *given)
            born.add(pid)
            for descriptor in given:
                os.close(descriptor)
            answer: dict[str, Any] = {"pid": pid}
        else:
            born.discard(asked["pid"])
            answer = _end(asked["pid"], born)
        control.send(json.dumps(answer).encode())


def is_library(path: str) -> bool:
    """Return whether a directory of modules is the standard library or installed packages."""
    return path.endswith((".zip", "lib-dynload", "site-packages", "dist-packages")) or (
        os.path.isfile(os.path.join(path, "os.py"))  # noqa: PTH113, PTH118
    )


def _end(pid: int, others: set[int]) -> dict[str, Any]:
    """End a process and all that it started, and orphaned processes."""
    found, code = os.waitpid(pid, os.WNOHANG)
    left = [one for one in _ended_with(others) if one != pid]
    late = time.monotonic() + _KILLED_S
    while time.monotonic() < late:
        gone = _ended_with(others)
        # All are stopped first: those that start others would outrun their end.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for one in gone:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)
        if found == 0:
            found, code = os.waitpid(pid, os.WNOHANG)
        for one in gone:
            if one != pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one, os.WNOHANG)
        if found and not gone:
            break
        time.sleep(0.001)
    return {"code": os.waitstatus_to_exitcode(code) if found else -signal.SIGKILL, "left": left}


def _ended_with(others: set[int]) -> list[int]:
    """Return the processes below this one that do not belong to one of the others."""
    stats = _stats()
    spared = {one for root in others for one in (root, *_kin(root, stats))}
    return [pid for pid in _below(os.getpid(), stats) if pid not in spared]


def kin(root: int) -> list[int]:
    """Return every process that a candidate's process started, directly or not.

    All are in its session: a confined process cannot start another one.  Where the kernel cannot
    confine it, only those that it still is above are found.
    """
    return _kin(root, _stats())


def _kin(root: int, stats: dict[int, tuple[int, int]]) -> list[int]:
    session = {pid for pid, (_, leader) in stats.items() if leader == root}
    return [pid for pid in {*session, *_below(root, stats)} if pid != root]


def _below(root: int, stats: dict[int, tuple[int, int]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, []))
    for pid in found:
        found += children.get(pid, [])
    return found


def _stats() -> dict[int, tuple[int, int]]:
    """Return parent and session of every process."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                _, parent, _, session, *_ = file.read().rpartition(b")")[2].split()
                found[int(name)] = int(parent), int(session)
    return found
