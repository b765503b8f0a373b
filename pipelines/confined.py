"""Runs queries in a process of their own, within limits of time and memory.

Functions of DuckDB that build large values check neither its time limit nor its memory limit.  So
the process is watched from outside: it ends at the time limit, and if it takes more memory than
queries may use.  It is forked, which takes some ms, and sends what it prints piece by piece.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pickle import PicklingError
from typing import Any, NoReturn, TypeVar

import click

from perfpipe.errors import PerfpipeError
from perfpipe.pipelines import signals
from perfpipe.pipelines.bounds import EVERY_S, Bounds, Watched, crashed, out_of_memory, query_memory
from perfpipe.pipelines.query_timeout import time_limit
from perfpipe.scratch import sweep_spilled

T = TypeVar("T")

#: What makes pieces of text or bytes, and returns a result.
Work = Callable[[], Generator[str | bytes, None, T]]

#: Most characters, or bytes, of a piece that is sent.
_PIECE = 1 << 20

_PR_SET_PDEATHSIG = 1


def confined(work: Work[T], bounds: Bounds) -> Generator[str | bytes, None, T]:
    """Yield the pieces of some work in another process, and return its result.

    Errors are raised, and warnings logged, as if it ran here.  Raises InputError if the process
    exceeds a bound or crashes.  It ends with this generator, and with this process.
    """
    receive, send = Pipe(duplex=False)
    parent = os.getpid()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        # Other threads of this process wait for signals, and hold no locks.
        child = os.fork()
    if child == 0:
        receive.close()
        _become(work, send, parent, bounds)
    send.close()
    try:
        found: T = yield from _received(receive, Watched(child, bounds))
        return found
    finally:
        receive.close()
        _end(child)


def query_bounds() -> Bounds:
    """Return the bounds of queries that the environment states; raises InputError."""
    return Bounds(time_limit(), query_memory())


def result_of(
    work: Callable[[], T], bounds: Bounds, meanwhile: Callable[[], None] | None = None
) -> T:
    """Return what some work gives in another process; raises as `confined` does.

    This process may do something else `meanwhile`, which must not take long.
    """

    def pieces() -> Generator[str | bytes, None, T]:
        yield ""
        return work()

    running = confined(pieces, bounds)
    next(running)
    if meanwhile is not None:
        meanwhile()
    try:
        next(running)
    except StopIteration as end:
        found: T = end.value
        return found
    raise AssertionError("unreachable")


def _received(receive: Connection, watched: Watched) -> Generator[str | bytes, None, Any]:
    while True:
        message = _message(receive, watched)
        if message is None:
            _, status = os.waitpid(watched.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            raise crashed(code)
        kind, what = message
        match kind:
            case "piece":
                yield what
            case "said":
                click.echo(what, nl=False, err=True)
            case "logged":
                logging.getLogger(what.name).handle(what)
            case "failed":
                raise what
            case _:
                return what


def _message(receive: Connection, watched: Watched) -> tuple[str, Any] | None:
    """Return the next message; None if the process has ended."""
    watched.wait()
    ready = False
    while not ready:
        ready = receive.poll(EVERY_S)
        signals.check()
        watched.check()
    try:
        kind, what = receive.recv()
    except EOFError:
        return None
    return kind, what


def _end(child: int) -> None:
    """Kill the process if it still runs, and remove its temporary files."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    sweep_spilled()


def _become(work: Work[Any], send: Connection, parent: int, bounds: Bounds) -> NoReturn:
    """Do the work, send what it gives, and exit; only in a forked child."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:
            # The parent reports an interrupt, and ends this process.
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            bounds.limit_here()
            _work(work, send)
    finally:
        os._exit(1)


def _work(work: Work[Any], line: Connection) -> None:
    logging.root.handlers[:] = [_Relayed(line)]
    sys.stderr = _Said(line)
    try:
        making = work()
        while True:
            try:
                piece = next(making)
            except StopIteration as end:
                line.send(("ended", end.value))
                return
            for at in range(0, max(1, len(piece)), _PIECE):
                line.send(("piece", piece[at : at + _PIECE]))
    except MemoryError:
        line.send(("failed", out_of_memory()))
    except BaseException as error:
        _send_failure(line, error)


def _send_failure(line: Connection, error: BaseException) -> None:
    try:
        line.send(("failed", error))
    except (TypeError, AttributeError, PicklingError):
        line.send(("failed", PerfpipeError(str(error))))


class _Relayed(logging.Handler):
    """Sends log records to the parent."""

    def __init__(self, line: Connection) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        self._line.send(("logged", record))


class _Said(io.TextIOBase):
    """Sends what is written to stderr to the parent."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def write(self, text: str) -> int:
        self._line.send(("said", text))
        return len(text)
