"""perfpipe rules."""

from __future__ import annotations

import click

from perfpipe.errors import InputError, did_you_mean
from pipelines.options import json_document, json_option, resolve_store, store_option

#: Rules of `nsys analyze`, each a view rule_NAME, and what they look for.
RULES = {
    "cuda_memcpy_async": "asynchronous copies of pageable memory, which are not asynchronous",
    "cuda_memcpy_sync": "copies that block the host",
    "cuda_memset_sync": "memsets that block the host",
    "cuda_api_sync": "calls that make the host wait for the GPU",
    "gpu_gaps": "long idle intervals of a GPU (threshold analyze.gap_ns)",
    "gpu_time_util": "stretches in which a GPU is little used (analyze.utilisation_pct)",
}


@click.command("rules")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT]...")
@click.option("--rule", "-r", "chosen", multiple=True, metavar="NAME", help="Only this rule.")
@click.option(
    "--rows", type=click.IntRange(1), default=50, show_default=True, help="Rows of each rule."
)
@json_option()
@store_option
def rules_command(
    names: tuple[str, ...],
    chosen: tuple[str, ...],
    rows: int,
    as_json: bool,
    store_path: str | None,
) -> None:
    """Print what the expert rules of `nsys analyze` find, with their known faults mended.

    Operations and calls are joined within their process, idle is the GPU's and not a process's,
    concurrent work counts once, CUDA graphs traced as a whole are work, and a limit never drops
    the longest rows.  Each rule is also a view, rule_NAME, for `perfpipe query`.  Thresholds are
    those of nsys; $PERFPIPE_THRESHOLDS names a TOML file with others.

    \b
    perfpipe rules
    perfpipe rules -r gpu_gaps -r cuda_api_sync --rows 10
    """
    from analysis.session import Session
    from perfpipe.database import in_list
    from pipelines.selection import select

    for name in chosen:
        if name not in RULES:
            raise InputError(f"no rule '{name}'{did_you_mean(name, RULES)}")
    store = resolve_store(store_path, must_exist=True)
    reports = select(store, names).reports
    found = {}
    wanted = [name for name in RULES if not chosen or name in chosen]
    with Session.open(store, reports, use=[f"rule_{name}" for name in wanted]) as session:
        for name in wanted:
            result = session.execute(
                f"SELECT source_name, v.* FROM rule_{name} AS v JOIN reports USING (report_id) "
                f"WHERE report_id IN {in_list(reports)}"
            )
            columns = [column[0] for column in result.description]
            found[name] = [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
    if as_json:
        click.echo(json_document(rules={name: items[:rows] for name, items in found.items()}))
        return
    for name, items in found.items():
        click.echo(f"{name}: {RULES[name]}: {len(items) or 'none'}")
        for item in items[:rows]:
            values = {k: v for k, v in item.items() if k != "report_id" and v is not None}
            click.echo("  " + "  ".join(f"{key}={value}" for key, value in values.items()))
        if len(items) > rows:
            click.echo(f"  ... {len(items) - rows} more (--rows)")
