"""perfpipe history."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option

if TYPE_CHECKING:
    from perfpipe.analysis.batch.nodes import Compared
    from perfpipe.analysis.gate.history.series import Course
    from perfpipe.viewmodel import Report

#: Rows of a configuration in the terminal, the newest.
_SHOWN = 30


@click.command("history")
@click.argument("workload")
@click.option(
    "--by",
    type=click.Choice(["time", "commit", "node", "gpu"]),
    default="time",
    show_default=True,
    help="time: one row per run; commit: one row per commit; node, gpu: compare nodes or GPUs "
    "on the same work.",
)
@click.option(
    "--html",
    "html",
    is_flag=False,
    flag_value="history.html",
    type=click.Path(path_type=Path),
    metavar="[FILE]",
    help="Write a self-contained HTML page with figures [default: history.html].",
)
@json_option()
@store_option
def history_command(
    workload: str, by: str, html: Path | None, as_json: bool, store_path: str | None
) -> None:
    """Show how a workload's run time changed from run to run or commit to commit.

    WORKLOAD is the name of a workload or a workload file.  Each configuration and kind of machine
    has its own history.  Arms of 'perfpipe ab' that use a different environment, interpreter or
    wrapper are excluded.  If there are 12 or more runs, perfpipe detects where the time shifted,
    and reports the commits or runs before and after each shift.  With --by commit, commits are in
    git's order if the repository is here, else in the order of their commit times.  With --by node
    or --by gpu, the command compares the same work on different machines, and lists the outliers.

    \b
    perfpipe history gemm --by commit --html
    perfpipe history gemm --by node
    """
    from perfpipe.analysis.batch.nodes import compare_places
    from perfpipe.analysis.gate.history.order import backfilled, by_run, order_of
    from perfpipe.analysis.gate.history.page import page_of, page_of_places
    from perfpipe.analysis.gate.history.series import (
        COURSES,
        by_time,
        courses_of,
        points_of,
        times_of,
    )
    from perfpipe.pipelines.git import places_of
    from perfpipe.pipelines.writing import write_text
    from perfpipe.templates.renderers import render_html

    store = resolve_store(store_path, must_exist=True)
    name = _name_of(workload)
    runs = store.runs()
    points = points_of(run for run in runs if run.workload == name)
    if not points:
        known = ", ".join(sorted({run.workload for run in runs})) or "none"
        raise InputError(f"{name}: no measured runs in {store.root} (workloads: {known})")
    found: Compared | list[Course]
    more: dict[str, object] = {}
    if by in COURSES:
        commits = {point.revision for point in points if point.revision}
        order = order_of(by_time(points), places_of(_directory_of(workload), commits))
        found = courses_of(points, by, order)
        said = order.said if by == "commit" else by_run(backfilled(by_time(points), order))
        page = page_of(name, found, by, said)
        more = {"order": order.by if by == "commit" else "measurement"}
    else:
        found = compare_places(times_of(points, by), "GPU" if by == "gpu" else by)
        page = page_of_places(name, found, by)
    if html is not None:
        write_text(html, render_html(page))
    if as_json:
        data = asdict(found) if not isinstance(found, list) else {"courses": [*map(asdict, found)]}
        click.echo(json_document(workload=name, by=by, **more, **data))
    else:
        _print(page)


def _is_file(workload: str) -> bool:
    return Path(workload).suffix in (".yaml", ".yml")


def _directory_of(workload: str) -> Path:
    """Return a directory in the repository of a workload."""
    return Path(workload).resolve().parent if _is_file(workload) else Path.cwd()


def _name_of(workload: str) -> str:
    """Return the name of a workload, which its file states."""
    path = Path(workload)
    if not _is_file(workload):
        return workload
    from perfpipe.pipelines.workload import load_workload

    return load_workload(path).name


def _print(page: Report) -> None:
    from rich.table import Table as Grid

    from perfpipe.pipelines.console import stdout
    from perfpipe.templates.formats import format_value

    for statement in page.statements:
        click.echo(f"{statement.text}.")
    for table in page.tables:
        shown = [at for at, column in enumerate(table.columns) if column.core]
        grid = Grid(box=None, pad_edge=False, title=table.title, title_justify="left")
        for at in shown:
            column = table.columns[at]
            left = column.kind == "text"
            grid.add_column(column.title, justify="left" if left else "right", no_wrap=at == 0)
        for row in table.rows[-_SHOWN:]:
            grid.add_row(*(format_value(row[at], table.columns[at].kind) for at in shown))
        stdout(highlight=True).print(grid)
