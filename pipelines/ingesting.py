"""Ingests many inputs in separate processes, since a vendor library may crash or hang."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfpipe.database import MEMORY_VARIABLE
from perfpipe.errors import PerfpipeError, TaskFailed
from perfpipe.ingest.inputs import hashed, identify
from perfpipe.ingest.outcome import Outcome, known
from perfpipe.ingest.source import Input
from perfpipe.ingest.workers import Workers
from perfpipe.pipelines.bounds import OWN_BYTES, query_memory
from perfpipe.pipelines.workers import Lost, spread
from perfpipe.scratch import scratch
from perfpipe.store import Store
from perfpipe.sweeping import sweep

#: Time limit per input, s, ten times what the longest captures take.
TIME_LIMIT_S = 600.0


@dataclass(frozen=True)
class Failure:
    """An input that could not be ingested."""

    path: Path
    error: PerfpipeError


@dataclass(frozen=True)
class _Task:
    source: Path | Input
    store: Store
    force: bool
    #: Processes that may read parts of it.
    jobs: int
    limit_s: float
    #: Memory that it may take, bytes.
    memory: int | None

    @property
    def path(self) -> Path:
        return self.source.path if isinstance(self.source, Input) else self.source


def ingest_many(
    paths: Iterable[Path],
    store: Store,
    *,
    jobs: int,
    force: bool = False,
    limit_s: float = TIME_LIMIT_S,
) -> Iterator[Outcome | Failure]:
    """Ingest inputs with up to `jobs` processes and yield each result as it is ready.

    An input that takes longer than `limit_s` seconds fails, as does one whose reader crashes, or
    takes more than its share of the memory that queries may use.
    """
    inputs = list(paths)
    share = max(1, jobs // max(1, len(inputs)))
    memory = query_memory()
    most = memory and memory // max(1, min(jobs, len(inputs))) + OWN_BYTES
    tasks = [_Task(path, store, force, share, limit_s, most) for path in inputs]
    if len(tasks) == 1 and (tasks[0].path.is_file() or tasks[0].path.is_dir()):
        # No process is needed if it is already in the store, or is not a report.
        result = _looked_up(tasks[0])
        if not isinstance(result, _Task):
            yield result
            return
        tasks = [result]
    for task, answer in spread(_ingest, tasks, jobs=jobs, limit_s=limit_s, memory=most):
        if isinstance(answer, Lost):
            # Remove what the ended worker left behind.
            sweep(store)
            yield Failure(task.path, TaskFailed(f"{task.path}: {_reason(answer, limit_s)}"))
        else:
            yield answer


def _looked_up(task: _Task) -> Outcome | Failure | _Task:
    try:
        found = hashed(identify(task.path))
        there = None if task.force else known(found, task.store)
    except PerfpipeError as error:
        return Failure(task.path, error)
    return there or replace(task, source=found)


def _reason(lost: Lost, limit_s: float) -> str:
    match lost.why:
        case "time":
            return f"reading took longer than {limit_s:g} s; nothing was stored (raise --timeout)"
        case "memory":
            return (
                "reading takes too much memory; nothing was stored (raise --memory or "
                f"{MEMORY_VARIABLE})"
            )
        case _:
            return f"the reader crashed (exit code {lost.exitcode}); nothing was stored"


def _ingest(task: _Task) -> Outcome | Failure:
    """Ingest one input in this process; an .nsys-rep is exported first."""
    # Not needed in the parent process, which only waits for its workers.
    from perfpipe.ingest.reading import ingest

    def export(report: Path) -> Path:
        from perfpipe.pipelines.collectors.nsys import export_nsys_rep

        return export_nsys_rep(report, directory / "export.sqlite")

    with scratch() as directory:
        try:
            return ingest(
                task.source,
                task.store,
                force=task.force,
                export=export,
                workers=Workers(task.jobs, _in_parts(task)),
            )
        except PerfpipeError as error:
            return Failure(task.path, error)


def _in_parts(task: _Task) -> Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]:
    """Return a function that reads the parts of an input in other processes."""

    def answers(work: Callable[[Any], Any], parts: Iterable[Any]) -> Iterator[Any]:
        orders = [(work, part) for part in parts]
        limits: dict[str, Any] = {"limit_s": task.limit_s, "memory": task.memory}
        for _, answer in spread(_attempt, orders, jobs=task.jobs, **limits):
            if isinstance(answer, Lost):
                raise TaskFailed(f"{task.path}: {_reason(answer, task.limit_s)}")
            if isinstance(answer, PerfpipeError):
                raise answer
            yield answer

    return answers


def _attempt(order: tuple[Callable[[Any], Any], Any]) -> Any:
    work, part = order
    try:
        return work(part)
    except PerfpipeError as error:
        return error
