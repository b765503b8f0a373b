"""perfpipe ls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option

if TYPE_CHECKING:
    from perfpipe.manifest import Manifest
    from perfpipe.runrecord import RunRecord
    from perfpipe.searchrecord import Search
    from perfpipe.store import Store
    from perfpipe.trialrecord import Trial


@click.command("ls")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum number of runs, of trials, of searches and of other reports.",
)
@json_option()
@store_option
def ls_command(limit: int, as_json: bool, store_path: str | None) -> None:
    """List runs, trials, searches, and reports that belong to no run, the newest first.

    The line below a run is the verdict of its last report.

    Wherever a command takes a run, the number @1, @2, ... of this list stands for it, and the name
    of a workload stands for its newest run.

    \b
    perfpipe ls
    perfpipe report --findings @2
    perfpipe compare @2 @1
    """
    store = resolve_store(store_path, must_exist=True)
    every = store.runs()
    runs = every[::-1][:limit]
    trials = store.trials()[::-1][:limit]
    searches = store.searches()[::-1][:limit]
    of_runs = {report for run in every for report in run.reports}
    others: list[Manifest] = []
    # Of a large store, the manifests take minutes to read.
    if not of_runs.issuperset(store.report_ids()):
        others = [own for own in store.each_manifest() if own.report_id not in of_runs]
        others.sort(key=_written, reverse=True)
    if as_json:
        click.echo(
            json_document(
                runs=[_run(number, run, store) for number, run in enumerate(runs, 1)],
                trials=[_trial(trial) for trial in trials],
                searches=[_search(store, search) for search in searches],
                reports=[_report(own) for own in others[:limit]],
            )
        )
        return
    rows = [_run(number, run, store) for number, run in enumerate(runs, 1)]
    _show([_cells_of_run(row) for row in rows], below=[row["headline"] for row in rows])
    _show([tuple(str(text) for text in _trial(trial).values()) for trial in trials], "Trials:")
    told = [_search(store, search) for search in searches]
    _show([tuple(str(text) for text in row.values()) for row in told], "Searches:")
    found = [tuple(str(text) for text in _report(own).values()) for own in others[:limit]]
    _show(found, "Reports of no run:")
    left = max(0, len(every) - limit), max(0, len(others) - limit)
    if any(left):
        click.echo(f"{left[0]:,} more runs and {left[1]:,} more reports: --limit", err=True)


def _run(number: int, run: RunRecord, store: Store) -> dict[str, Any]:
    """Return what is listed of a run."""
    from perfpipe.headlinerecord import headline_of

    times = sorted(ms for task in run.tasks if (ms := task.median_ms) is not None)
    return {
        "name": f"@{number}",
        "started_at": run.started_at,
        "run_id": run.run_id,
        "status": run.status,
        "replayed": run.replayed,
        "configurations": len(run.tasks),
        "done": sum(task.done for task in run.tasks),
        "shortest_ms": times[0] if times else None,
        "longest_ms": times[-1] if times else None,
        "machine": _machine(run),
        "headline": headline_of(store, run) or _still(store, run, f"@{number}"),
    }


def _still(store: Store, run: RunRecord, name: str) -> str | None:
    """Return what is said of a run whose program was detached and still runs."""
    from perfpipe.runrecord import DETACH

    if run.collector != DETACH or run.status != "running":
        return None
    from perfpipe.pipelines.attaching.detaching import line_of

    return line_of(store, run.run_id, name)


def _machine(run: RunRecord) -> str | None:
    """Return the models of the GPUs of a run, else that of its CPU."""
    if run.recording is not None:
        return run.recording.gpu
    return next((ran.machine for task in run.tasks if (ran := task.ran) and ran.machine), None)


def _cells_of_run(row: dict[str, Any]) -> tuple[str, ...]:
    from perfpipe.units import counted, format_ns

    ends = dict.fromkeys(
        format_ns(1e6 * row[key]) for key in ("shortest_ms", "longest_ms") if row[key] is not None
    )
    done = counted(row["configurations"], "configuration")
    if row["done"] < row["configurations"]:
        done = f"{row['done']} of {done}"
    return (
        row["name"],
        _minute(row["started_at"]),
        row["run_id"],
        "replayed" if row["replayed"] and row["status"] == "done" else row["status"],
        done,
        " to ".join(ends),
        row["machine"] or "",
    )


def _trial(trial: Trial) -> dict[str, Any]:
    """Return what is listed of a trial."""
    from perfpipe.pipelines.trying.answering import headline

    return {"at": _minute(trial.at), "trial": trial.trial_id, "headline": headline(trial)}


def _search(store: Store, search: Search) -> dict[str, Any]:
    """Return what is listed of a search."""
    from perfpipe.analysis.search_summary import headline
    from perfpipe.pipelines.searching.page import found_named

    told = headline(found_named(store, search.search_id))
    return {
        "at": _minute(search.created_at), "search": search.search_id, "state": search.state,
        "headline": told,
    }  # fmt: skip


def _report(manifest: Manifest) -> dict[str, Any]:
    """Return what is listed of a report."""
    return {
        "at": _minute(_written(manifest)),
        "report_id": manifest.report_id,
        "kind": manifest.kind,
        "source": manifest.source_name,
    }


def _written(manifest: Manifest) -> str:
    return manifest.provenance.get("written_at", "")


def _minute(at: str) -> str:
    """Return a time to the minute, UTC."""
    return at[:16].replace("T", " ")


def _show(
    rows: list[tuple[str, ...]], title: str = "", below: Sequence[str | None] | None = None
) -> None:
    """Print rows in columns, with a line below some; a terminal breaks lines that are too long."""
    from perfpipe.visible import visible_line

    if rows and title:
        click.echo(title)
    shown = [[visible_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row, line in zip(shown, below or [None] * len(rows), strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
        if line:
            click.echo(f"{' ' * widths[0]}  {visible_line(line)}")
