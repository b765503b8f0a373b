"""perfpipe show."""

from __future__ import annotations

from functools import partial

import click

from perfpipe.pipelines.commands.query import TABLE, TEXT_FORMATS
from perfpipe.pipelines.console import say
from perfpipe.pipelines.options import (
    limit_options,
    resolve_store,
    step_range_option,
    store_option,
    window_option,
)

#: Maximum number of rows in a table.
_ROWS = 40


@click.command("show")
@click.argument("name", required=False)
@click.argument("of", required=False)
@click.option(
    "--report",
    "-r",
    "names",
    multiple=True,
    metavar="RUN|REPORT",
    help="Show these runs or reports instead of the latest run.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(TEXT_FORMATS),
    default=TABLE,
    show_default=True,
    help="Output format: table shows values with units, the other formats show every digit.",
)
@click.option("--all", "everything", is_flag=True, help="Show the whole store.")
@click.option("--sql", "only_sql", is_flag=True, help="Print the SQL instead, for perfpipe query.")
@window_option
@step_range_option
@limit_options
@store_option
def show_command(
    name: str | None,
    of: str | None,
    names: tuple[str, ...],
    form: str,
    everything: bool,
    only_sql: bool,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Show the numbers behind a finding, by NAME.

    The findings of a report name these commands after "next:".  Without NAME, the command lists
    all names.  Some of them need a second word: a CAUSE of idle time, such as launch_gap or host,
    or the name of a KERNEL.

    \b
    perfpipe show
    perfpipe show launches
    perfpipe show idle host -r @2
    perfpipe show memory add_kernel
    perfpipe show lines --sql
    """
    from perfpipe.analysis.questions import entries, query_of
    from perfpipe.pipelines.commands.query import Asked, answer
    from perfpipe.pipelines.query_timeout import within

    if name is None:
        said = {f"{one.name} {one.argument}".strip(): one.about for one in entries().values()}
        width = max(map(len, said))
        for words, about in said.items():
            click.echo(f"{words:{width}}  {about}")
        return
    sql = query_of(name, of)
    if only_sql:
        click.echo(sql)
        return
    if names and everything:
        raise click.UsageError("--report and --all exclude each other")
    store = resolve_store(store_path, must_exist=True)
    asked = Asked(store, sql, names, everything, window, step_range)
    if not within(partial(answer, asked, form, None, _ROWS)):
        say(f"no rows: nothing was collected for this{f', or no {of!r} is there' if of else ''}")
