"""perfpipe budget."""

from __future__ import annotations

import re

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.options import (
    json_document,
    json_option,
    resolve_store,
    step_range_option,
    store_option,
    window_option,
)
from perfpipe.units import gpu_name

_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def _ns(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Parse `1.5s`, `200ms`, `3us` or `17ns` into ns; a bare number is in seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"(-?\d+)(?:\.(\d+))?\s*(ns|us|ms|s)?", value.strip())
    if match is None:
        raise click.BadParameter(f"'{value}' is not a time, such as 1.5s, 200ms, 3us or 17ns")
    whole, fraction, unit = match[1], match[2] or "", _UNITS[match[3] or "s"]
    digits: int = int(whole + fraction) * unit
    return digits // int(10 ** len(fraction))


@click.command("budget")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT]...")
@click.option(
    "--from", "start", metavar="TIME", callback=_ns, help="Start of the window: 1.5s, 200ms, ..."
)
@click.option("--to", "end", metavar="TIME", callback=_ns, help="End of the window.")
@click.option("--nvtx", metavar="RANGE", help="Name of the NVTX ranges to break down.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of ranges to show.",
)
@json_option()
@window_option
@step_range_option
@store_option
def budget_command(
    names: tuple[str, ...],
    start: int | None,
    end: int | None,
    nvtx: str | None,
    limit: int,
    as_json: bool,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Break down GPU time in the steady steps, in part of the capture, or within NVTX ranges.

    Every nanosecond of the window belongs to exactly one category.  By default, the window is the
    steady steps; with --window whole, it is the entire capture, and with --window 3, the third
    step.  Times are relative to the start of the capture, as in nsys.  An NVTX range (NAME or
    DOMAIN:NAME) is projected onto the GPU: its window begins with the first operation that the
    range's process launched while the range was open, and ends with the end of the last such
    operation.

    \b
    perfpipe budget
    perfpipe budget --window whole
    perfpipe budget --from 1.2s --to 1300ms
    perfpipe budget --nvtx backward
    """
    from perfpipe.pipelines.budgets import Budgets, budgets_of
    from perfpipe.pipelines.rereading import rereading
    from perfpipe.pipelines.selection import select

    if nvtx is not None and (start is not None or end is not None):
        raise click.UsageError("use either --from and --to, or --nvtx")
    store = resolve_store(store_path, must_exist=True)

    def chosen() -> list[str]:
        return select(store, names).reports

    def read() -> Budgets:
        return budgets_of(
            store,
            chosen(),
            start=start,
            end=end,
            nvtx=nvtx,
            limit=limit,
            step_range=step_range,
            window=window,
        )

    found = rereading(store, chosen, read)
    if found.ranges is not None and found.ranges > limit:
        click.echo(f"showing the first {limit} of {found.ranges:,} ranges (--limit)", err=True)
    rows = found.rows
    if as_json:
        click.echo(json_document(windows=rows))
        return
    if not rows:
        raise InputError("no GPU operations in the selection")
    last = None
    for row in rows:
        if row["window_index"] != last:
            last = row["window_index"]
            click.echo(
                f"{row['source_name']} {gpu_name(row['device'])}: {row['window_name']}, "
                f"{row['window_start_ns'] / 1e6:.3f} to {row['window_end_ns'] / 1e6:.3f} ms"
            )
        if row["time_ns"]:
            spent = f"{row['time_ns'] / 1e3:>14,.3f} us{row['share_pct']:>7.1f} %"
            click.echo(f"  {row['category']:<18}{spent}")
