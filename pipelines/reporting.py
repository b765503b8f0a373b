"""Builds reports from a store and writes them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import click

from perfpipe.analysis.batch import summary
from perfpipe.analysis.batch.summary import OneTask
from perfpipe.analysis.report import before as kernels_before
from perfpipe.analysis.report.build import VIEWS_USED, build_report
from perfpipe.analysis.session import Session
from perfpipe.batchrecord import TaskSummary
from perfpipe.headlinerecord import keep
from perfpipe.pipelines.console import say
from perfpipe.pipelines.gate.sides import is_exported, selected
from perfpipe.pipelines.query_timeout import within
from perfpipe.pipelines.rereading import rereading
from perfpipe.pipelines.selection import chosen, select
from perfpipe.pipelines.writing import write_bytes, write_text
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.templates.closing import closing_lines
from perfpipe.templates.renderers import figure_files, load_ahead, render_html, render_markdown
from perfpipe.viewmodel import Report
from perfpipe.windows import STEADY

#: What qualifies the first screen of a run that goes on.
_PRELIMINARY = (
    "Preliminary, from the timeline alone: the report at the end of the run replaces this."
)


def make_report(
    store: Store,
    names: Sequence[str],
    baseline: Sequence[str] = (),
    step_range: str | int | None = None,
    window: str = STEADY,
    page: bool = False,
) -> Report:
    """Build the report of the named runs and reports, compared with those of a baseline.

    `step_range` is a regular expression of NVTX ranges to treat as steps, instead of the default;
    `window` is the part of timelines to analyze: steady, whole, startup or a step.  With `page`,
    the modules of an HTML page are loaded while views are made, which leaves a core free.
    """
    make = partial(_make, store, names, baseline, step_range, window, page)
    every = partial(_read_by, store, names, baseline)
    return within(lambda: rereading(store, every, make))


def _read_by(store: Store, names: Sequence[str], baseline: Sequence[str]) -> list[str]:
    """Return the reports that a report of some names reads."""
    found = select(store, names).reports
    before = [name for name in baseline if not is_exported(name)]
    return [*found, *(selected(store, before).reports if before else ())]


def _make(
    store: Store,
    names: Sequence[str],
    baseline: Sequence[str],
    step_range: str | int | None,
    window: str,
    page: bool,
) -> Report:
    named = chosen(store, names)
    compared, both, before = None, None, None
    if baseline:
        from perfpipe.analysis.gate.compare.page import with_decision
        from perfpipe.pipelines.gate.compare import compared as compare

        found = compare(store, baseline, names, step_range, window)
        compared = with_decision(found.decision, found.comparison)
        both = found.both_steps(store, step_range, window)
        before = _kernels(store, baseline)
    if page:
        load_ahead()
    # A report of a run uses only that run, even if other runs share its reports.
    runs = [run.run_id for run in named.runs] if named.only_runs else None
    with Session.open(
        store, named.reports, runs, use=VIEWS_USED, step_range=step_range, window=window
    ) as session:
        session.check_window()
        report = build_report(
            session.con,
            named.reports,
            named.run,
            compared,
            named.title,
            both,
            named.left_out,
            before,
        )
    usual = window == STEADY and not isinstance(step_range, int) and not baseline
    if usual and named.run is not None and named.run.status != "running":
        keep(store, named.run, report.headline)
    return report


def _kernels(store: Store, baseline: Sequence[str]) -> kernels_before.Kernels:
    """Return the profiled kernels of a baseline; none of an exported one."""
    named = [name for name in baseline if not is_exported(name)]
    reports = selected(store, named).reports if named else ()
    if not reports:
        return {}
    with Session.open(store, reports, use=kernels_before.VIEWS) as session:
        return kernels_before.kernels_of(session.con, reports)
    raise AssertionError("unreachable")


def report_with_summary(store: Store, run: RunRecord) -> tuple[Report, TaskSummary]:
    """Build the report of a run with one task, and its summary for a batch, in one session."""
    alone = OneTask(store, run.reports, run)
    views = (*VIEWS_USED, *summary.VIEWS)

    def make() -> tuple[Report, TaskSummary]:
        reports, left_out = alone.readable(run.reports)
        with Session.open(alone, reports, [run.run_id], use=views) as session:
            report = build_report(session.con, reports, run, left_out=left_out)
            return report, summary.summarize(session.con, reports, run)
        raise AssertionError("unreachable")

    return rereading(alone, lambda: alone.readable(run.reports)[0], make)


def output(
    report: Report,
    *,
    html: str | None = None,
    md: str | None = None,
    as_json: str | None = None,
    figures: Literal["svg", "png"] | None = None,
) -> None:
    """Write the requested formats of a report; the path `-` is stdout.

    `figures` are written to a directory next to the Markdown file, which shows them.
    """
    markdown: Callable[[Report], str] = render_markdown
    if figures and md is not None:
        folder = Path(f"{md.removesuffix('.md')}-figures")
        for name, content in figure_files(report, figures).items():
            write_bytes(folder / name, content)
        markdown = partial(render_markdown, folder=folder.name, kind=figures)
    for target, render in ((html, render_html), (md, markdown), (as_json, to_json)):
        if target == "-":
            click.echo(render(report), nl=False)
        elif target is not None:
            write_text(Path(target), render(report))


def report_of_run(
    store: Store,
    run: RunRecord,
    *,
    html: str | None,
    md: str | None,
    step_range: str | int | None = None,
    quiet: bool = False,
) -> None:
    """Write the report of a run as HTML and Markdown, and print its conclusions.

    A file without a given name gets the default name, with a number if that exists; a run in which
    everything failed has nothing to show in such a file.  With `quiet`, or if a report goes to
    stdout, nothing else is printed there.
    """
    report = make_report(store, [run.run_id], step_range=step_range, page=True)
    html_file, md_file = html, md
    if any(task.done or task.reports for task in run.tasks):
        usual_html, usual_md = _free("report.html", "report.md")
        html_file, md_file = html or usual_html, md or usual_md
    output(report, html=html_file, md=md_file)
    targets = [name for name in (html_file, md_file) if name is not None]
    if quiet or "-" in targets:
        return
    print_closing(report, targets, store)
    kept = [
        name
        for name, given in (("report.html", html), ("report.md", md))
        if targets and given is None and name not in targets
    ]
    if kept:
        say(f"{' and '.join(kept)} of an earlier run kept; to choose names, use --html and --md")


def preview_of_run(store: Store, run: RunRecord, step_range: str | int | None = None) -> str:
    """Return the first screen of a run that goes on, as plain text."""
    report = make_report(store, [run.run_id], step_range=step_range)
    report = replace(report, notice=_PRELIMINARY)
    width = shutil.get_terminal_size().columns
    return "\n".join(closing_lines(report, (), store.option, width))


def print_closing(report: Report, files: Sequence[str], store: Store) -> None:
    """Print the first screen of a report, in color if the terminal supports it."""
    width = shutil.get_terminal_size().columns
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo("\n".join(closing_lines(report, files, store.option, width, colour=colour)))


def _free(*names: str) -> list[str]:
    """Return unused names: all as given, or all with the same number added."""
    for number in itertools.count(1):
        paths = [Path(name) for name in names]
        found = [path.with_stem(f"{path.stem}-{number}") if number > 1 else path for path in paths]
        if not any(path.exists() for path in found):
            return [str(path) for path in found]
    raise AssertionError("unreachable")


def to_json(report: Report) -> str:
    """Return the view-model as one JSON document."""
    return json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n"
