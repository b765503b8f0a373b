"""perfpipe report --rules."""

from __future__ import annotations

from typing import Any

import click

from perfpipe.errors import InputError, did_you_mean
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option

#: Rules of `nsys analyze`, each a view rule_NAME, and what they find.
RULES = {
    "cuda_memcpy_async": "asynchronous copies of pageable memory, which are in fact synchronous",
    "cuda_memcpy_sync": "copies that block the host",
    "cuda_memset_sync": "memsets that block the host",
    "cuda_api_sync": "calls that make the host wait for the GPU",
    "gpu_gaps": "long idle intervals of a GPU (threshold analyze.gap_ns)",
    "gpu_time_util": "periods of low GPU utilization (threshold analyze.utilisation_pct)",
}


@click.command("rules")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT]...")
@click.option("--rule", "-r", "rules", multiple=True, metavar="NAME", help="Run only this rule.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Maximum number of rows per rule.",
)
@json_option()
@store_option
def rules_command(
    names: tuple[str, ...],
    rules: tuple[str, ...],
    limit: int,
    as_json: bool,
    store_path: str | None,
) -> None:
    """Run the expert rules of `nsys analyze`, with known bugs fixed.

    The fixes: GPU operations are matched only with API calls of the same process.  A GPU counts as
    idle only if no process uses it.  Overlapping work counts once, CUDA graphs that were traced as
    a whole count as work, and --limit keeps the rows with the longest times.  Each rule is also a
    view, rule_NAME, for `perfpipe query`.  The thresholds are those of nsys; set
    $PERFPIPE_THRESHOLDS to a TOML file to override them.

    \b
    perfpipe report --rules
    perfpipe report --rules -r gpu_gaps -r cuda_api_sync --limit 10
    """
    from perfpipe.analysis.rows import records_of
    from perfpipe.analysis.session import Session
    from perfpipe.pipelines.rereading import rereading
    from perfpipe.pipelines.selection import chosen

    for name in rules:
        if name not in RULES:
            raise InputError(f"no rule '{name}'{did_you_mean(name, RULES)}")
    store = resolve_store(store_path, must_exist=True)
    views = {name: f"rule_{name}" for name in RULES if not rules or name in rules}

    def reports() -> list[str]:
        return chosen(store, names).reports

    def run() -> dict[str, list[dict[str, Any]]]:
        with Session.open(store, reports(), use=("reports", *views.values())) as session:
            return {
                name: records_of(
                    session.con,
                    f"SELECT source_name, v.* FROM {view} AS v JOIN reports USING (report_id)",
                )
                for name, view in views.items()
            }
        raise AssertionError("unreachable")

    found = rereading(store, reports, run)
    if as_json:
        click.echo(json_document(rules={name: items[:limit] for name, items in found.items()}))
        return
    for name, items in found.items():
        click.echo(f"{name}: {RULES[name]}: {len(items) or 'none'}")
        for item in items[:limit]:
            values = {k: v for k, v in item.items() if k != "report_id" and v is not None}
            click.echo("  " + "  ".join(f"{key}={value}" for key, value in values.items()))
        if len(items) > limit:
            click.echo(f"  ... {len(items) - limit} more (raise --limit)")
