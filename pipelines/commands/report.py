"""perfpipe report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.lazy import WithViews, view_flag
from perfpipe.pipelines.options import (
    limit_options,
    resolve_store,
    step_range_option,
    store_option,
    window_option,
)


def _output(name: str, default: str, text: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name}",
        f"as_{name}",
        is_flag=False,
        flag_value=default,
        metavar="[FILE]",
        help=f"{text} [default: {'stdout' if default == '-' else default}]",
    )


@click.command(
    "report",
    cls=WithViews,
    views={"--findings": "findings", "--rules": "rules", "--tuning": "tuning"},
)
@click.argument("names", nargs=-1, metavar="[RUN|REPORT|BATCH|SEARCH|FILE]...")
@_output("html", "report.html", "Write a self-contained HTML page.")
@_output("md", "report.md", "Write Markdown for a pull request.")
@_output("json", "-", "Write the report's data.")
@click.option(
    "--figures",
    type=click.Choice(["svg", "png"]),
    help="With --md FILE: write figures into FILE-figures/, and show them in the Markdown.",
)
@click.option(
    "--baseline",
    multiple=True,
    metavar="RUN|REPORT",
    help="Compare with this run or report; repeat to compare with several runs.",
)
@click.option(
    "--index",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write one page per run and an index to this directory (default: all runs).",
)
@click.option(
    "--all", "everything", is_flag=True, help="Print every table, not only the first screen."
)
@view_flag("--findings", "Show the verdict and every finding with its evidence.")
@view_flag("--rules", "Run the expert rules of nsys analyze.")
@view_flag("--tuning", "Summarize an autotuning run.")
@window_option
@step_range_option
@limit_options
@store_option
def report_command(
    names: tuple[str, ...],
    as_html: str | None,
    as_md: str | None,
    as_json: str | None,
    figures: Literal["svg", "png"] | None,
    baseline: tuple[str, ...],
    index: Path | None,
    everything: bool,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Report what limits a run or ingested reports, how close kernels are to SOL, and what to try.

    A name is the id of a run, report, batch or search, or a prefix of the id; @1 for the newest
    run, @2 for the one before it; or the name of a workload, for its newest run.  A name can also
    be a file or directory, which is then ingested first.  The default is the latest run, or all
    reports if the store has no runs.

    The command prints the first screen, or every table with --all.  --html and --md also write
    files.  If a report goes to stdout, nothing else is printed there.  Put names before any option
    that takes an optional FILE; otherwise a name is taken as FILE.

    --findings, --rules and --tuning show one part and have options of their own: 'perfpipe report
    --findings --help'.

    The report of a batch covers all its tasks: progress, failures, the best configurations and
    slow nodes.  That of a search shows its candidates, and whether a gain is proven.

    \b
    perfpipe report --html
    perfpipe report capture.nsys-rep kernels.ncu-rep --html
    perfpipe report gemm-2026 --html gemm.html --md gemm.md
    perfpipe report --md pr.md --figures png
    perfpipe report --index reports/
    perfpipe report gemm-2026b --baseline gemm-2026a --md pr.md
    perfpipe report --findings gemm-2026
    """
    from perfpipe.pipelines.confined import query_bounds, result_of
    from perfpipe.pipelines.reading import with_files
    from perfpipe.pipelines.reporting import make_report, output, print_closing
    from perfpipe.pipelines.selection import batch_named, search_named
    from perfpipe.templates.renderers import load_ahead, print_terminal

    if figures and as_md in (None, "-"):
        raise InputError("--figures needs --md FILE: the figures are written next to it")
    # A file is read into the store, which is created if needed.
    store = resolve_store(store_path)
    names, baseline = with_files(store, names), with_files(store, baseline)
    store = resolve_store(store_path, must_exist=True)
    if index is not None:
        from perfpipe.pipelines.indexing import write_index

        click.echo(write_index(store, names, index, step_range, window))
        return
    batch = batch_named(store, names) if not baseline else None
    search = search_named(store, names) if not baseline else None
    if search is not None:
        from perfpipe.pipelines.searching.page import page_of as page_of_search

        report = page_of_search(store, search)
    elif batch is not None:
        from perfpipe.pipelines.batch.page import page_of

        report = page_of(store, batch, Path(as_html).parent if as_html else Path())
    else:
        report = result_of(
            partial(make_report, store, names, baseline, step_range, window),
            query_bounds(),
            load_ahead if as_html is not None else None,
        )
    output(report, html=as_html, md=as_md, as_json=as_json, figures=figures)
    files = [name for name in (as_html, as_md, as_json) if name is not None]
    if everything and not files:
        from perfpipe.pipelines.console import stdout

        print_terminal(report, stdout(highlight=True))
    elif "-" not in files:
        print_closing(report, files, store)
