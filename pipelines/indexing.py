"""Writes an index of runs, a page for each run, and a page of changes since the previous run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfpipe.analysis.gate.compare.page import page_of
from perfpipe.errors import InputError
from perfpipe.pipelines import reporting
from perfpipe.pipelines.console import progress, say
from perfpipe.pipelines.gate.compare import compared
from perfpipe.pipelines.known_pages import Inputs, Known, read_known, write_known
from perfpipe.pipelines.selection import select
from perfpipe.pipelines.writing import write_text
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.templates.index_page import Difference, Entry, Summary, render_index
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

    A run with an earlier run of the same workload also has a page of changes.  A page is made again
    only if something that it was made from has changed.  Raises InputError if there is no run, or
    if a name is not a run.
    """
    chosen = _chosen(store, names)
    pages = [*_pages(chosen)]
    makes = _Making(store, folder, step_range, window)
    known = makes.known(pages)
    rest = [page for page in pages if page not in known]
    if known:
        say(f"{len(known):,} of {len(pages):,} pages unchanged")
    with progress("pages", len(rest)) as steps:
        for page in rest:
            steps.detail(page.file)
            known[page] = makes.page(page)
            steps.step(page.file)
    write_text(folder / "index.html", render_index([*_entries(chosen, known)]))
    return folder / "index.html"


def _chosen(store: Store, names: Sequence[str]) -> list[RunRecord]:
    """Return the runs that are listed, oldest first."""
    runs = {run.run_id: run for run in store.runs()}
    chosen = {}
    for name in names or runs:
        run = select(store, [name]).run if names else runs[name]
        if run is None:
            raise InputError(f"{name} is not a run, and an index lists only runs")
        chosen[run.run_id] = run
    if not chosen:
        raise InputError(f"{store.root}: no runs to list")
    return sorted(chosen.values(), key=lambda run: (run.started_at, run.run_id))


@dataclass(frozen=True)
class _Page:
    """The page of a run, or of what changed since the run `before`, by their ids."""

    run: str
    before: str | None = None

    @property
    def file(self) -> str:
        return f"{self.run}-change.html" if self.before else f"{self.run}.html"


def _pages(runs: Sequence[RunRecord]) -> Iterator[_Page]:
    """Yield the pages of some runs, which are the oldest first."""
    for at, run in enumerate(runs):
        yield _Page(run.run_id)
        if earlier := _earlier(runs[:at], run):
            yield _Page(run.run_id, earlier[-1].run_id)


def _earlier(runs: Sequence[RunRecord], run: RunRecord) -> tuple[RunRecord, ...]:
    return tuple(other for other in runs if other.workload == run.workload)


def _entries(runs: Sequence[RunRecord], known: Mapping[_Page, Known]) -> Iterator[Entry]:
    """Yield the rows of the index."""
    for at, run in enumerate(runs):
        page, earlier = _Page(run.run_id), _earlier(runs[:at], run)
        change = known[_Page(run.run_id, earlier[-1].run_id)] if earlier else None
        difference = change.difference if change else None
        if summary := known[page].summary:
            yield Entry(page.file, run, summary, earlier, difference)


@dataclass(frozen=True)
class _Making:
    """Makes the pages of a folder, all with the same options."""

    store: Store
    folder: Path
    step_range: str | int | None
    window: str

    def known(self, pages: Sequence[_Page]) -> dict[_Page, Known]:
        """Return those of some pages that need not be made again."""
        inputs = self._inputs(*(page.run for page in pages))
        found = {
            page: read_known(self.folder / page.file, inputs.of(page.run, page.before))
            for page in pages
        }
        return {page: known for page, known in found.items() if known is not None}

    def page(self, page: _Page) -> Known:
        """Make a page, and write it with what is known of it."""
        key = self._key(page)
        text, known = self._change(page) if page.before else self._run(page)
        # What changed meanwhile is in the page or is not.
        settled = replace(known, key=key if key == self._key(page) else "")
        write_known(self.folder / page.file, text, settled)
        return settled

    def _run(self, page: _Page) -> tuple[str, Known]:
        report = reporting.make_report(
            self.store, [page.run], step_range=self.step_range, window=self.window, page=True
        )
        return render_html(report), Known(summary=Summary.of(report))

    def _change(self, page: _Page) -> tuple[str, Known]:
        """Return the page of what changed; without text for runs that cannot be compared."""
        chosen = (self.store, self.step_range, self.window)
        try:
            found = compared(self.store, [page.before or ""], [page.run], *chosen[1:])
        except InputError:
            # Replays of the same recording have the same reports.
            return "", Known()
        decision = found.decision
        if not decision.endpoints:
            return "", Known()
        changes = sorted(100 * pair.change.ratio for pair in decision.endpoints if pair.change)
        ends = dict.fromkeys(f"{change:+.1f}" for change in (*changes[:1], *changes[-1:]))
        change = f"{' to '.join(ends)} %" if ends else ""
        difference = Difference(page.file, str(decision.verdict), change)
        text = render_html(page_of(decision, found.comparison, found.both_steps(*chosen)))
        return text, Known(difference=difference)

    def _key(self, page: _Page) -> str:
        named = (page.run, page.before) if page.before else (page.run,)
        return self._inputs(*named).of(*named)

    def _inputs(self, *runs: str) -> Inputs:
        return Inputs(self.store, runs, self.step_range, self.window)
