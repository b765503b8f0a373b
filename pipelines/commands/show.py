"""perfpipe show."""

from __future__ import annotations

import click

from perfpipe.pipelines.commands.query import (
    ROWS,
    TEXT_FORMATS,
    answer,
    ask,
    format_option,
    reports_options,
)
from perfpipe.pipelines.console import say
from perfpipe.pipelines.options import (
    limit_options,
    step_range_option,
    store_option,
    window_option,
)


@click.command("show")
@click.argument("name", required=False)
@click.argument("of", required=False)
@reports_options("Show")
@format_option(TEXT_FORMATS)
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
    asked = ask(sql, names, everything, window, step_range, store_path)
    if not answer(asked, form, None, ROWS):
        say(f"no rows: nothing was collected for this{f', or no {of!r} is there' if of else ''}")
