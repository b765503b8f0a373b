"""The page of a batch, and its results for CI, from the files on disk."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from perfpipe.analysis.batch.items import Item, in_order, plain_text
from perfpipe.analysis.batch.page import batch_report
from perfpipe.batchrecord import TaskState, TaskSummary
from perfpipe.paths import is_plain
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.junit import junit
from perfpipe.pipelines.batch.state import BatchState, state_of
from perfpipe.pipelines.reporting import make_report, output
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.pipelines.writing import write_text
from perfpipe.runrecord import RunRecord
from perfpipe.secrets import hide
from perfpipe.store import Store
from perfpipe.viewmodel import Report

#: Last lines of a log that are shown, and the bytes that are read for them.
_LINES, _BYTES = 12, 8192

#: Failed tasks whose logs are read; thousands of failures usually have the same cause.
_LOGS = 200

#: How long to wait for Slurm, s, while the user waits for the page.
_PATIENCE_S = 10.0

#: Most reports of a run that gets a page: a larger page takes longer than everything else.
_MOST_REPORTS = 60

#: Name of a page, of a batch as of a run.
_PAGE = "report.html"


def write_pages(directory: BatchDirectory, state: BatchState, cluster: Cluster | None) -> None:
    """Write the page, its Markdown and data, and JUnit XML into the directory of a batch."""
    folder = directory.path
    items = items_of(directory, state, folder, cluster)
    report = batch_report(directory.batch, items, pages_of_runs(directory, folder), state.unasked)
    paths = {kind: str(folder / f"report.{kind}") for kind in ("html", "md", "json")}
    output(report, html=paths["html"], md=paths["md"], as_json=paths["json"])
    write_text(folder / "junit.xml", junit(directory.batch, items))


def write_run_page(directory: BatchDirectory, run: RunRecord) -> None:
    """Write the page of a run; the batch's page links to it.

    A run without profiles, or with very many, does not get a page: each configuration has its own,
    and `perfpipe report RUN` writes it.
    """
    if directory.batch.pages and 0 < len(run.reports) <= _MOST_REPORTS:
        page = directory.store.runs_dir / run.run_id / _PAGE
        output(make_report(directory.store, [run.run_id], page=True), html=str(page))


def page_of(store: Store, batch_id: str, folder: Path) -> Report:
    """Return the current page of a batch, with links for a page in `folder`.

    Slurm is asked about tasks without a result, with a short timeout.
    """
    directory = BatchDirectory.read(store, batch_id)
    cluster = Cluster(patience_s=_PATIENCE_S)
    state = state_of(directory, cluster)
    items = items_of(directory, state, folder, cluster)
    return batch_report(directory.batch, items, pages_of_runs(directory, folder), state.unasked)


def pages_of_runs(directory: BatchDirectory, folder: Path) -> dict[str, str]:
    """Return the existing pages of runs, relative to `folder`, by run id."""
    runs = directory.store.runs_dir.resolve()
    return {
        run.run_id: _relative(runs / run.run_id / _PAGE, folder)
        for run in directory.batch.runs
        if (runs / run.run_id / _PAGE).exists()
    }


def items_of(
    directory: BatchDirectory, state: BatchState, folder: Path, cluster: Cluster | None = None
) -> list[Item]:
    """Return the tasks with their state and results; links are relative to `folder`.

    A cluster with accounting says what their jobs used.
    """
    items = [_item(directory, task, state, folder) for task in state.tasks]
    if cluster is not None:
        elements = {item.state.element for item in items if item.state.element}
        used = cluster.usage(sorted({element.partition("_")[0] for element in elements}))
        items = [replace(item, usage=used.get(item.state.element or "")) for item in items]
    failed = [item for item in in_order(items) if item.failed]
    for item in failed[:_LOGS]:
        items[item.index] = replace(item, log=_log(directory, item.state))
    return items


def _item(directory: BatchDirectory, task: TaskState, state: BatchState, folder: Path) -> Item:
    result = state.results.get(task.task.index)
    if result is None:
        return Item(task)
    summary = directory.summary(task.task) or TaskSummary()
    page = None
    if is_plain(summary.page):
        page = _relative(directory.task_directory(task.task) / str(summary.page), folder)
    return Item(task, result, summary, (result.ran and result.ran.gpus) or (), page)


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder.resolve())


def _log(directory: BatchDirectory, task: TaskState) -> str | None:
    """Return the last lines that a task's program printed as errors, else those of its job."""
    folder = directory.task_directory(task.task)
    for path in (*_errors(folder), directory.log_of(task.element)):
        if path is not None and (text := _tail(path)):
            return text
    return None


def _errors(folder: Path) -> list[Path]:
    """Return what the program printed as errors, the newest first."""
    found = [path for path in folder.glob("**/*.err") if path.is_file() and path.stat().st_size]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def _tail(path: Path) -> str | None:
    """Return the last lines of a file; None if there are none."""
    try:
        with path.open("rb") as file:
            start = max(file.seek(0, os.SEEK_END) - _BYTES, 0)
            file.seek(start)
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # A partial line is skipped.
    lines = [line.rstrip() for line in hide(plain_text(text)).splitlines()[1 if start else 0 :]]
    return "\n".join([line for line in lines if line][-_LINES:]) or None
