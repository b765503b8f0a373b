"""What tests let workers do: a worker imports this module, and with it no test."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path


def act(task: tuple[str, str]) -> object:
    """Do what a task says, in a worker."""
    what, argument = task
    Path(tempfile.mkdtemp(), "leftover").touch()
    if what == "pid":
        return os.getpid()
    if what == "where":
        return str(Path.cwd()), os.environ.get("PERFPIPE_TEST")
    if what == "list":
        import pyarrow as pa

        return pa.array([1, 2]).to_pylist(), "pandas" in sys.modules
    if what == "exit":
        os._exit(3)
    if what == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "memory":
        raise MemoryError
    if what == "hang":
        # As a library does that no longer listens to signals.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what == "destroy":
        held = _Slow()
        Path(argument).write_text(str(os.getpid()))
        del held
    Path(argument).write_text(str(os.getpid()))
    try:
        while True:
            time.sleep(0.05)
    finally:
        time.sleep(0.5)
        Path(f"{argument}-left").touch()


class _Slow:
    """Its destructor takes longer than a test waits before it ends the worker."""

    def __del__(self) -> None:
        time.sleep(2)


def grow(size: int) -> int:
    """Hold memory for a moment."""
    held = bytearray(size)
    held[:: 1 << 12] = b"1" * len(held[:: 1 << 12])
    return os.getpid()
