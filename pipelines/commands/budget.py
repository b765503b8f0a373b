"""perfpipe budget."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

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
from perfpipe.units import format_ns, gpu_name

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
    from perfpipe.pipelines.selection import chosen

    if nvtx is not None and (start is not None or end is not None):
        raise click.UsageError("use either --from and --to, or --nvtx")
    store = resolve_store(store_path, must_exist=True)

    def reports() -> list[str]:
        return chosen(store, names).reports

    def read() -> Budgets:
        return budgets_of(
            store,
            reports(),
            start=start,
            end=end,
            nvtx=nvtx,
            limit=limit,
            step_range=step_range,
            window=window,
        )

    found = rereading(store, reports, read)
    if found.ranges is not None and found.ranges > limit:
        click.echo(f"showing the first {limit} of {found.ranges:,} ranges (--limit)", err=True)
    rows = found.rows
    if as_json:
        click.echo(json_document(windows=rows))
        return
    if not rows:
        raise InputError("no GPU operations in the selection")
    for own in _windows(rows):
        click.echo("\n".join(_lines(own)))
    for several in _by_gpu(rows):
        click.echo("\n".join(_sum(several)))


Rows = list[dict[str, Any]]


def _windows(rows: Rows) -> list[Rows]:
    """Return the rows of each window."""
    return [[*own] for _, own in itertools.groupby(rows, key=itemgetter("window_index"))]


def _by_gpu(rows: Rows) -> list[Rows]:
    """Return the rows of each GPU that has several windows."""
    gpus: dict[tuple[str, int | None], Rows] = {}
    for row in rows:
        gpus.setdefault((row["source_name"], row["device"]), []).append(row)
    return [own for own in gpus.values() if len({row["window_index"] for row in own}) > 1]


def _lines(window: Rows) -> Iterator[str]:
    """Yield the budget of a window."""
    first = window[0]
    start, end = (first[name] / 1e6 for name in ("window_start_ns", "window_end_ns"))
    yield f"{_gpu(first)}: {first['window_name']}, {start:,.3f} to {end:,.3f} ms"
    yield from _categories({row["category"]: row["time_ns"] for row in window})


def _sum(rows: Rows) -> Iterator[str]:
    """Yield the sum of the budgets of a GPU's windows."""
    times: Counter[str] = Counter()
    for row in rows:
        times[row["category"]] += row["time_ns"]
    windows = len({row["window_index"] for row in rows})
    names = {row["window_name"] for row in rows}
    what = f" of {min(names)}" if len(names) == 1 else ""
    yield f"{_gpu(rows[0])}: sum of {windows:,} windows{what}, {format_ns(times.total())}"
    yield from _categories(dict(times.most_common()))


def _gpu(row: dict[str, Any]) -> str:
    return f"{row['source_name']} {gpu_name(row['device'])}"


def _categories(times: dict[str, int]) -> Iterator[str]:
    """Yield the categories that take time, with their shares."""
    whole = sum(times.values())
    for category, time_ns in times.items():
        if time_ns:
            yield f"  {category:<18}{format_ns(time_ns):>10}{100 * time_ns / whole:>7.1f} %"
