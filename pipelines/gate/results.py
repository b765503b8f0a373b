"""Compares what programs printed in the runs of two sides, from the output that runs keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfpipe.analysis.trying.results import Compared, Results, compare, read
from perfpipe.analysis.trying.series import Kind
from perfpipe.pipelines.runs import task_folder
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store

#: Bytes that are read of an output, half of them from its end.
_MOST = 1_000_000


def compared_results(
    store: Store, before: Sequence[RunRecord], after: Sequence[RunRecord], name: str
) -> Compared:
    """Compare the results of runs, with a sentence in which `name` is the first side.

    The most severe one of several configurations stands for all.
    """
    found = []
    for label, old, new in _matched(before, after):
        own = compare(_launches(store, old), _launches(store, new)).of(name)
        found.append(replace(own, why=f"{label}: {own.why}") if label else own)
    nothing = Compared(Kind.UNKNOWN, "The sides have no runs of the same configuration.")
    return max(found, key=lambda one: [*Kind].index(one.kind), default=nothing)


_Tasks = list[tuple[RunRecord, TaskResult]]


def _matched(
    before: Sequence[RunRecord], after: Sequence[RunRecord]
) -> Iterator[tuple[str, _Tasks, _Tasks]]:
    """Yield the configurations of both sides: by name, else in order."""
    old, new = _by_label(before), _by_label(after)
    pairs = [(label, label) for label in old if label in new]
    if not pairs and len(old) == len(new):
        pairs = [*zip(old, new, strict=True)]
    for one, other in pairs:
        yield "" if len(pairs) == 1 else other, old[one], new[other]


def _by_label(runs: Sequence[RunRecord]) -> dict[str, _Tasks]:
    found: dict[str, _Tasks] = {}
    for run in runs:
        for task in run.tasks:
            if task.done:
                found.setdefault(task.label, []).append((run, task))
    return found


def _launches(store: Store, tasks: _Tasks) -> list[Results]:
    """Return the results of each launch whose output was kept."""
    found = []
    for run, task in tasks:
        folder = store.runs_dir / run.run_id / "tasks" / task_folder(task.index, task.key)
        for path in sorted(folder.glob("plain*.out")):
            output = "\n".join(_text(own) for own in (path, path.with_suffix(".err")))
            found.append(read(None, output))
    return found


def _text(path: Path) -> str:
    """Return an output, or its beginning and its end; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= _MOST:
                return file.read().decode(errors="replace")
            begin = file.read(_MOST // 2)
            file.seek(-_MOST // 2, 2)
            return b"\n".join((begin, file.read())).decode(errors="replace")
    except OSError:
        return ""
