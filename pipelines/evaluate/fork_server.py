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
    """End a process and its children, and orphaned processes."""
    found, code = os.waitpid(pid, os.WNOHANG)
    left = [one for one in below(os.getpid()) if one != pid and not _of(one, others)]
    late = time.monotonic() + _KILLED_S
    while time.monotonic() < late:
        gone = [one for one in below(os.getpid()) if not _of(one, others)]
        for one in gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
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


def _of(pid: int, roots: set[int]) -> bool:
    """Return whether a process is one of the roots or below one."""
    while pid > 1:
        if pid in roots:
            return True
        pid = _parent(pid)
    return False


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def below(root: int) -> list[int]:
    """Return every process below one."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal():
            below.setdefault(_parent(int(name)), []).append(int(name))
    found = list(below.get(root, []))
    for pid in found:
        found += below.get(pid, [])
    return found
