"""perfpipe project."""

from __future__ import annotations

import click

from perfpipe.pipelines.options import resolve_store, step_range_option, store_option, window_option


@click.command("project")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT]...")
@click.option(
    "--to",
    "target",
    metavar="GPU",
    help="Target GPU, such as b200 ('perfpipe gpu' lists the GPUs).",
)
@click.option(
    "--shorter",
    multiple=True,
    metavar="PART[@RANK]=PERCENT",
    help="Instead of another GPU: replay the steps with a part that is shorter by PERCENT of its "
    "time.  PART is a category of critical_path, 'host work', or the name of a kernel, operation "
    "or call; @RANK selects that of one rank.  Repeat the option for several parts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--md", is_flag=False, flag_value="-", metavar="[FILE]", help="Write Markdown.")
@click.option(
    "--html",
    is_flag=False,
    flag_value="projection.html",
    metavar="[FILE]",
    help="Write a self-contained HTML page [default: projection.html].",
)
@window_option
@step_range_option
@store_option
def project_command(
    names: tuple[str, ...],
    target: str | None,
    shorter: tuple[str, ...],
    as_json: bool,
    md: str | None,
    html: str | None,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Estimate how long a run would take on another GPU, or with shorter parts.

    With --to, the time of a kernel scales with the roof that bounds the kernel on both GPUs; the
    host's part of a step does not change.  The result is an interval with stated assumptions, not a
    guarantee.  Parts whose time is unknown are listed, and are excluded from the result.

    With --shorter, recorded steps are replayed: what waits for what stays the same, also across
    ranks.  The default is the newest run.

    \b
    perfpipe project gemm-2026a --to b200
    perfpipe project --to l4 --html
    perfpipe project --shorter compute=20
    perfpipe project --shorter "host work@1=50" --json
    """
    if (target is None) == (not shorter):
        raise click.UsageError("use either --to or --shorter")
    from perfpipe.pipelines.gate.project import projected, write

    store = resolve_store(store_path, must_exist=True)
    if target is None:
        from perfpipe.pipelines.shortening import shortened

        replay = shortened(store, names, shorter, step_range, window)
        write(replay.page, replay.as_data, as_json="-" if as_json else None, md=md, html=html)
        return
    found = projected(store, names, target, step_range, window)
    write(found.page, found.as_data, as_json="-" if as_json else None, md=md, html=html)
