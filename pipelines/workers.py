"""Worker processes that run task after task; one that crashes or hangs is replaced.

Workers start when needed, stay for later tasks of this process, and end with it.  A worker can have
its own workers.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from perfpipe.blas import load_numpy
from perfpipe.pipelines.bounds import EVERY_S, private_bytes, sizes_of
from perfpipe.pipelines.signals import unwrapped
from perfpipe.pipelines.startup import collect_rarely, leave_pandas_out
from perfpipe.scratch import scratch

#: Time limit for a terminated worker to clean up, s.
_PATIENCE_S = 5

#: A worker that used more than this exits after its task, to release the memory.
_KEPT_BYTES = 1 << 30

# Spawned, not forked: locks held by threads of this process would never be released in a fork.
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Lost:
    """A task without an answer: its worker crashed, took too long, or ran out of memory."""

    why: Literal["crash", "time", "memory"]
    exitcode: int | None = None


@dataclass(frozen=True)
class _Order:
    """A task, and the environment in which this process would run it."""

    work: Callable[[Any], Any]
    task: Any
    scratch: str
    directory: str
    environment: dict[str, str]


@dataclass(frozen=True)
class _Reply:
    answer: Any
    last: bool


class _Worker:
    """A process, the connection to it, and its current task."""

    def __init__(self) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_serve, args=(theirs,))
        with _starting, _no_main(), _uninterrupted():
            self.process.start()
            _all.add(self)
        theirs.close()
        self.task: Any = None
        self.deadline = 0.0

    def give(self, order: _Order, limit_s: float) -> None:
        self.task, self.deadline = order.task, time.monotonic() + limit_s
        # A dead worker is detected when its answer is requested.
        with contextlib.suppress(OSError):
            self.connection.send(order)

    def exceeds(self, memory: int | None) -> bool:
        """Return whether its process takes more memory than this, bytes."""
        return memory is not None and private_bytes(self.process.pid or 0) > memory

    def answer(self) -> Any:
        """Return the answer, and keep the worker for another task if allowed."""
        try:
            reply: _Reply = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            self.forget()
            return Lost("crash", self.process.exitcode)
        if reply.last:
            self.process.join(_PATIENCE_S)
            self.forget()
        else:
            _idle.append(self)
        return reply.answer

    def forget(self) -> None:
        """Close the connection to a process that has ended, or is about to."""
        self.connection.close()
        _all.discard(self)


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """Start processes that do not import the main module of this one.

    It may be a script that uses perfpipe: each worker would run the script again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from the beginning; this one heeds it afterwards."""
    # Its start would let interrupts through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_starting = threading.Lock()
_idle: list[_Worker] = []
_all: set[_Worker] = set()


def spread(
    work: Callable[[Any], Any],
    tasks: Iterable[Any],
    *,
    jobs: int,
    limit_s: float,
    memory: int | None = None,
    stopped: Callable[[], object] = bool,
) -> Iterator[tuple[Any, Any]]:
    """Do `work` for each task in up to `jobs` processes; yield task and answer as they come.

    The answer is a Lost if the worker crashed, took longer than `limit_s` seconds, or more memory
    than `memory` bytes.  All workers end, without an answer, when `stopped` says so.  `work` must
    be a function of a module.  Temporary files that a worker leaves behind are removed.
    """
    waiting = iter(tasks)
    busy: dict[Connection, _Worker] = {}
    looked = time.monotonic()
    with scratch() as folder:
        try:
            while True:
                for task in islice(waiting, jobs - len(busy)):
                    worker = _worker()
                    busy[worker.connection] = worker
                    worker.give(_order(work, task, str(folder)), limit_s)
                if not busy:
                    return
                deadline = min(worker.deadline for worker in busy.values())
                left = deadline - time.monotonic()
                if memory is not None or stopped is not bool:
                    left = min(EVERY_S, left)
                for ready in wait(list(busy), max(0.0, left)):
                    assert isinstance(ready, Connection)  # noqa: S101
                    worker = busy.pop(ready)
                    yield worker.task, worker.answer()
                now = time.monotonic()
                for late in [worker for worker in busy.values() if worker.deadline <= now]:
                    del busy[late.connection]
                    _end([late])
                    yield late.task, Lost("time")
                due = now - looked >= EVERY_S
                looked = now if due else looked
                for large in [one for one in busy.values() if due and one.exceeds(memory)]:
                    del busy[large.connection]
                    _end([large], patience_s=0)
                    yield large.task, Lost("memory")
                if stopped():
                    _end(list(busy.values()), patience_s=0)
                    busy.clear()
                    return
        finally:
            _end(list(busy.values()))


def _worker() -> _Worker:
    while _idle:
        worker = _idle.pop()
        if worker.process.is_alive():
            return worker
        worker.forget()
    return _Worker()


def _order(work: Callable[[Any], Any], task: Any, scratch: str) -> _Order:
    directory = ""
    with contextlib.suppress(OSError):  # removed concurrently
        directory = str(Path.cwd())
    return _Order(work, task, scratch, directory, dict(os.environ))


def _end(workers: list[_Worker], patience_s: float = _PATIENCE_S) -> None:
    """Terminate workers, with some time to clean up."""
    if signal.getsignal(signal.SIGALRM) is _leave:
        # This process is exiting already, so the repeated exit must not interrupt this.
        signal.setitimer(signal.ITIMER_REAL, 0)
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join(patience_s)
        worker.process.kill()
        worker.process.join()
        worker.forget()


def end_idle_workers() -> None:
    """Terminate the workers kept for later tasks."""
    workers, _idle[:] = _idle[:], []
    _end(workers)


@atexit.register
def _end_all() -> None:
    """Terminate all workers of this process."""
    _idle.clear()
    _end(list(_all))


def _serve(orders: Connection) -> None:
    """Run requested tasks until the parent is gone."""
    # An interrupt reaches the whole group; the parent reports it and terminates this process, which
    # then cleans up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, _leave)
    collect_rarely()
    leave_pandas_out()
    load_numpy()
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    last = False
    try:
        with contextlib.suppress(EOFError, OSError):
            while not last:
                order: _Order = orders.recv()
                answer = _answer(order)
                last = _peak_bytes() > _KEPT_BYTES or isinstance(answer, Lost)
                orders.send(_Reply(answer, last))
    finally:
        # Otherwise this process would wait for them.
        _end_all()


def _end_with_the_parent() -> None:
    """End this process when its parent is gone, even in the middle of a task."""
    if parent := multiprocessing.parent_process():
        wait([parent.sentinel])
        os._exit(1)


def _peak_bytes() -> int:
    """Return the peak resident size of this process; 0 if the system does not report it.

    getrusage would include the memory of the parent at the start of this process.
    """
    return sizes_of("self").get("VmHWM", 0)


def _answer(order: _Order) -> Any:
    if os.environ != order.environment:
        os.environ.clear()
        os.environ.update(order.environment)
    with contextlib.suppress(OSError):
        os.chdir(order.directory)
    tempfile.tempdir = order.scratch
    try:
        with unwrapped():
            return order.work(order.task)
    except MemoryError:
        return Lost("memory")


def _leave(*_: object) -> None:
    """Exit this process after cleaning up.

    An exit raised in a destructor or an import hook is lost.  Only then is it repeated: a second
    exit would interrupt the cleaning up.
    """
    signal.signal(signal.SIGALRM, _leave)
    sys.unraisablehook = lambda _: signal.setitimer(signal.ITIMER_REAL, 0.1)
    sys.exit(128 + signal.SIGTERM)
