"""Ingests many inputs, each in a process of its own: a vendor library may crash or hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ingest.report import Outcome, ingest, present
from perfpipe.errors import PerfpipeError, TaskFailed
from perfpipe.store import Store
from pipelines.collectors.nsys import export_nsys_rep

#: How long a reader that is told to end may take to clean up, s.
_PATIENCE_S = 5


@dataclass(frozen=True)
class Failure:
    """An input that could not be ingested."""

    path: Path
    error: PerfpipeError


def default_jobs() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def ingest_many(
    paths: Iterable[Path], store: Store, *, jobs: int, force: bool = False
) -> Iterator[Outcome | Failure]:
    """Ingest inputs with up to `jobs` processes and yield each result as it is ready."""
    waiting = []
    for path in paths:
        try:
            there = None if force else present(path, store)
        except PerfpipeError as error:
            yield Failure(path, error)
            continue
        if there is not None:
            yield there
        else:
            waiting.append(path)
    waiting.reverse()
    running: dict[Connection, tuple[Path, BaseProcess]] = {}
    # Not forked: this process may hold threads, whose locks nobody would release in the child.
    context = multiprocessing.get_context("spawn")
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                path = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_work, args=(sender, path, store, force)
                )
                process.start()
                sender.close()
                running[receiver] = (path, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)  # noqa: S101
                yield _result(ready, *running.pop(ready))
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join(_PATIENCE_S)
            process.kill()


def ingest_one(path: Path, store: Store, *, force: bool = False) -> Outcome:
    """Ingest one input in this process; an .nsys-rep is exported first."""
    with tempfile.TemporaryDirectory(prefix="perfpipe-") as directory:
        target = Path(directory) / "export.sqlite"
        return ingest(
            path, store, force=force, export=lambda report: export_nsys_rep(report, target)
        )


def _result(ready: Connection, path: Path, process: BaseProcess) -> Outcome | Failure:
    try:
        result = ready.recv()
    except EOFError:
        process.join()
        result = Failure(
            path,
            TaskFailed(
                f"{path}: the reader crashed (exit code {process.exitcode}); nothing was stored"
            ),
        )
    ready.close()
    process.join()
    assert isinstance(result, (Outcome, Failure))  # noqa: S101
    return result


def _leave(*_: object) -> None:
    """End this process, tidying up on the way.

    Raised in a destructor or an import hook the exit is printed and lost: then it comes again.
    """
    sys.unraisablehook = lambda _: None
    signal.signal(signal.SIGALRM, _leave)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    sys.exit(128 + signal.SIGTERM)


def _work(sender: Connection, path: Path, store: Store, force: bool) -> None:
    # An interrupt goes to the whole group; the parent says so and ends this process, which then
    # leaves nothing behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    try:
        result: Outcome | Failure = ingest_one(path, store, force=force)
    except PerfpipeError as error:
        result = Failure(path, error)
    except MemoryError:
        result = Failure(path, TaskFailed(f"{path}: not enough memory to read it"))
    sender.send(result)
    sender.close()
