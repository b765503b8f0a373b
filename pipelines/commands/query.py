"""perfpipe query."""

from __future__ import annotations

import csv
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from perfpipe.errors import InputError
from perfpipe.files import replacing
from pipelines.options import (
    json_document,
    resolve_store,
    step_range_option,
    store_option,
    window_option,
)

FORMATS = ("table", "csv", "json", "parquet")


@click.command("query")
@click.argument("sql", required=False)
@click.option(
    "--file", "-f", "file", type=click.Path(path_type=Path), help="Read the SQL from FILE."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Write to FILE instead of stdout."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=40,
    show_default=True,
    help="Rows to show in a table; other formats write all rows.",
)
@click.option(
    "--report",
    "-r",
    "names",
    multiple=True,
    metavar="RUN|REPORT",
    help="Restrict the query to these; opens only their files, which is faster in a large store.",
)
@window_option
@step_range_option
@store_option
def query_command(
    sql: str | None,
    file: Path | None,
    form: str,
    output: Path | None,
    limit: int,
    names: tuple[str, ...],
    window: str,
    step_range: str | None,
    store_path: str | None,
) -> None:
    """Run one SQL SELECT on the tables and views of the store (`perfpipe schema` lists them).

    The dialect is DuckDB's.  A query can only read the store: no other files, no changes.

    \b
    perfpipe query "FROM kernel_sol"
    perfpipe query "SELECT name, total_time_ns FROM cuda_gpu_kern_sum LIMIT 5" --format csv
    """
    from analysis.session import Session
    from pipelines.selection import select

    text = _sql(sql, file)
    if form == "parquet" and output is None:
        raise InputError("--format parquet needs --output FILE")
    store = resolve_store(store_path, must_exist=True)
    reports = select(store, names).reports if names else None
    with Session.open(store, reports, step_range=step_range, window=window) as session:
        result = session.run_user_sql(text)
        if form == "parquet" and output is not None:
            _write_parquet(result, output)
            return
        columns = [column[0] for column in result.description]
        rows = result.fetchall()
    if form == "json":
        document = json_document(rows=[dict(zip(columns, r, strict=True)) for r in rows])
        _write(document + "\n", output)
    elif form == "csv":
        _write_csv(columns, rows, output)
    else:
        _write(_as_table(columns, rows, limit), output)


def _sql(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise InputError("give the SQL either as an argument or with --file")
    if file is None:
        return str(sql)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
    else:
        from pipelines.reporting import write_text

        write_text(output, text)


def _write_csv(names: list[str], rows: list[tuple[Any, ...]], output: Path | None) -> None:
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    _write(buffer.getvalue(), output)


def _write_parquet(result: Any, output: Path) -> None:
    import pyarrow.parquet as pq

    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            rows = result.to_arrow_table()
        with replacing(output) as temporary:
            pq.write_table(rows, temporary, compression="zstd")
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror or error}") from error


def _as_table(names: list[str], rows: list[tuple[Any, ...]], limit: int) -> str:
    """Return the rows as a table that fits the terminal."""
    import io
    import shutil

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(names):
        numeric = all(isinstance(row[index], (int, float, type(None))) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(escape(_cell(value)) for value in row))
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None).print(table)
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    if len(rows) > limit:
        lines.append(f"... {len(rows) - limit:,} more rows (--limit, or another --format)")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
