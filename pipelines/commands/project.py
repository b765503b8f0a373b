"""perfpipe project."""

from __future__ import annotations

import click

from perfpipe.pipelines.options import resolve_store, step_range_option, store_option, window_option


@click.command("project")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT]...")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="GPU",
    help="Target GPU, such as b200 ('perfpipe gpu' lists the GPUs).",
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
    target: str,
    as_json: bool,
    md: str | None,
    html: str | None,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Estimate how long a run would take on another GPU, from the rooflines of both GPUs.

    The time of a kernel scales with the roof that bounds the kernel; the host's part of a step does
    not change.  The result is an interval with stated assumptions, not a guarantee.  Parts whose
    time is unknown are listed, and are excluded from the result.  The default is the newest run.

    \b
    perfpipe project gemm-2026a --to b200
    perfpipe project --to l4 --html
    """
    from perfpipe.pipelines.gate.project import projected, write

    store = resolve_store(store_path, must_exist=True)
    found = projected(store, names, target, step_range, window)
    write(found.page, found.as_data, as_json="-" if as_json else None, md=md, html=html)
