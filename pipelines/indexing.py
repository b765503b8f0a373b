"""Writes an index of runs, a page for each run, and a page of changes since the previous run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfpipe.analysis.gate.compare.page import page_of
from perfpipe.errors import InputError
from perfpipe.pipelines import reporting
from perfpipe.pipelines.gate.compare import compared
from perfpipe.pipelines.selection import select
from perfpipe.pipelines.writing import write_text
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.templates.index_page import Difference, Entry, render_index
from perfpipe.templates.renderers import render_html
from perfpipe.windows import STEADY


def write_index(
    store: Store,
    names: Sequence[str],
    folder: Path,
    step_range: str | int | None = None,
    window: str = STEADY,
) -> Path:
    """Write a page for each run (all, or the named ones), and an index that links to them.

    A run with an earlier run of the same workload also has a page of changes.  Raises InputError if
    there is no run, or if a name is not a run.
    """
    chosen = _chosen(store, names)
    entries = []
    for at, run in enumerate(chosen):
        report = reporting.make_report(
            store, [run.run_id], step_range=step_range, window=window, page=True
        )
        file = f"{run.run_id}.html"
        write_text(folder / file, render_html(report))
        earlier = tuple(other for other in chosen[:at] if other.workload == run.workload)
        changed = None
        if earlier:
            changed = _difference(store, earlier[-1], run, folder, step_range, window)
        entries.append(Entry(file, run, report, earlier, changed))
    write_text(folder / "index.html", render_index(entries))
    return folder / "index.html"


def _chosen(store: Store, names: Sequence[str]) -> list[RunRecord]:
    """Return the runs that are listed, oldest first."""
    runs = {run.run_id: run for run in store.runs()}
    chosen = {}
    for name in names or runs:
        run = select(store, [name]).run
        if run is None:
            raise InputError(f"{name} is not a run, and an index lists only runs")
        chosen[run.run_id] = run
    if not chosen:
        raise InputError(f"{store.root}: no runs to list")
    return sorted(chosen.values(), key=lambda run: (run.started_at, run.run_id))


def _difference(
    store: Store,
    before: RunRecord,
    after: RunRecord,
    folder: Path,
    step_range: str | int | None,
    window: str,
) -> Difference | None:
    """Write the page of what changed; None for runs that cannot be compared."""
    try:
        found = compared(store, [before.run_id], [after.run_id], step_range, window)
    except InputError:
        # Replays of the same recording have the same reports.
        return None
    decision = found.decision
    if not decision.endpoints:
        return None
    file = f"{after.run_id}-change.html"
    page = page_of(decision, found.comparison, found.both_steps(store, step_range, window))
    write_text(folder / file, render_html(page))
    changes = sorted(100 * pair.change.ratio for pair in decision.endpoints if pair.change)
    ends = dict.fromkeys(f"{change:+.1f}" for change in (*changes[:1], *changes[-1:]))
    return Difference(file, str(decision.verdict), f"{' to '.join(ends)} %" if ends else "")
