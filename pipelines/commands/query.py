"""perfpipe query."""

from __future__ import annotations

import csv
import io
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfpipe.database import UNSHOWN, sql_error, unshown
from perfpipe.errors import InputError
from perfpipe.inuse import reading
from perfpipe.pipelines.options import (
    json_document,
    limit_options,
    resolve_store,
    step_range_option,
    store_option,
    window_option,
)
from perfpipe.pipelines.writing import written
from perfpipe.store import Store
from perfpipe.units import format_bytes
from perfpipe.visible import visible_line

if TYPE_CHECKING:
    from perfpipe.pipelines.selection import Selection

TABLE = "table"
TEXT_FORMATS = (TABLE, "csv", "json")
FORMATS = (*TEXT_FORMATS, "parquet")

#: Longest SQL that is read from a file, bytes: a device may have no end.
_LONGEST_SQL = 16 << 20

#: Rows that are fetched at a time.
_BATCH = 10_000

#: Bytes of a Parquet file that are read at a time.
_PIECE = 1 << 20

#: Rows that are counted after the last row shown in a table.
_COUNTED = 100_000

#: Rows of a table unless stated.
ROWS = 40

#: First characters of cells that spreadsheets treat as formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def format_option(forms: Sequence[str]) -> Callable[[Any], Any]:
    """Return the option that chooses one of some formats."""
    option: Callable[[Any], Any] = click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default=TABLE,
        show_default=True,
        help="Output format: table shows values with units, the other formats show every digit.",
    )
    return option


def reports_options(verb: str) -> Callable[[Any], Any]:
    """Return the options that choose runs and reports, for a command that does so with them."""

    def added(command: Any) -> Any:
        whole = click.option("--all", "everything", is_flag=True, help=f"{verb} the whole store.")
        return click.option(
            "--report",
            "-r",
            "names",
            multiple=True,
            metavar="RUN|REPORT",
            help=f"{verb} these runs or reports instead of the latest run.",
        )(whole(command))

    return added


@click.command("query")
@click.argument("sql", required=False)
@click.option(
    "--file", "-f", "file", type=click.Path(path_type=Path), help="Read the SQL from this file."
)
@format_option(FORMATS)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Write to this file instead of stdout."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=ROWS,
    show_default=True,
    help="Maximum number of rows in table format; other formats write all rows.",
)
@reports_options("Query")
@window_option
@step_range_option
@limit_options
@store_option
def query_command(
    sql: str | None,
    file: Path | None,
    form: str,
    output: Path | None,
    limit: int,
    names: tuple[str, ...],
    everything: bool,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Run one SQL SELECT on the store's tables and views (listed by `perfpipe schema`).

    The query reads the latest run, or all reports if the store has no runs.  -r chooses other runs
    or reports, and --all the whole store; in a large store, --all takes longer.  Trials do not
    belong to a run, and are always there.

    Write SQL in DuckDB's dialect.  A query can only read the store: it cannot change anything or
    read other files.

    \b
    perfpipe query "FROM kernel_sol"
    perfpipe query --all "FROM runs"
    perfpipe query "SELECT name, total_time_ns FROM cuda_gpu_kern_sum LIMIT 5" --format csv
    """
    text = _sql(sql, file)
    if form == "parquet" and output is None:
        raise InputError("--format parquet needs --output FILE")
    asked = ask(text, names, everything, window, step_range, store_path)
    answer(asked, form, output, limit)


@dataclass(frozen=True)
class Asked:
    """A query and the data that it reads."""

    store: Store
    sql: str
    names: tuple[str, ...]
    everything: bool
    window: str
    step_range: str | int | None

    def selection(self) -> Selection | None:
        """Return the runs and reports that it reads; None for the whole store."""
        from perfpipe.pipelines.selection import chosen

        if self.everything or not (self.names or self.store.run_ids()):
            return None
        return chosen(self.store, self.names, "; --all for the whole store")


def ask(
    sql: str,
    names: tuple[str, ...],
    everything: bool,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> Asked:
    """Return a query as options state it; UsageError for options that exclude each other."""
    if names and everything:
        raise click.UsageError("--report and --all exclude each other")
    store = resolve_store(store_path, must_exist=True)
    return Asked(store, sql, names, everything, window, step_range)


def answer(asked: Asked, form: str, output: Path | None, limit: int) -> bool:
    """Run the query in a process of its own and write its rows, as they come.

    Returns whether there are any.
    """
    from perfpipe.pipelines.confined import confined, query_bounds

    there = False

    def pieces() -> Iterator[str | bytes]:
        nonlocal there
        there = yield from confined(partial(_answer, asked, form, limit), query_bounds())

    _write(pieces(), output)
    return there


def _answer(asked: Asked, form: str, limit: int) -> Generator[str | bytes, None, bool]:
    """Run the query and yield what is written; return whether there are any rows."""
    with reading(asked.store.root):
        return (yield from _rows_of(asked, form, limit))
    raise AssertionError("unreachable")


def _rows_of(asked: Asked, form: str, limit: int) -> Generator[str | bytes, None, bool]:
    from perfpipe.analysis.names import names_in
    from perfpipe.analysis.session import Session
    from perfpipe.analysis.views import views
    from perfpipe.pipelines.rereading import rereading

    size = limit if form == "table" else _BATCH
    own: list[str] = []

    def begin() -> tuple[Session, Any, list[tuple[Any, ...]]]:
        chosen = asked.selection()
        runs = [run.run_id for run in chosen.runs] if chosen and chosen.only_runs else None
        session = Session.open(
            asked.store,
            chosen.reports if chosen else None,
            runs,
            step_range=asked.step_range,
            window=asked.window,
        )
        with ExitStack() as failing:
            failing.callback(session.close)
            named = names_in(session.con, asked.sql) & views().keys()
            own[:] = [f"FROM {view}" for view in sorted(named)]
            result = session.run_user_sql(asked.sql)
            first = [] if form == "parquet" else next(_batches(result, size), [])
            failing.pop_all()
        return session, result, first

    def read() -> list[str]:
        chosen = asked.selection()
        return asked.store.report_ids() if chosen is None else chosen.reports

    session, result, first = rereading(asked.store, read, begin, own)
    with session:
        if form == "parquet":
            yield from _as_parquet(result)
            return True
        columns = [column[0] for column in result.description]
        rows = chain(first, chain.from_iterable(_batches(result, size)))
        shown: dict[str, Callable[..., Iterator[str]]] = {
            "json": _as_json,
            "csv": _as_csv,
            "table": partial(_as_table, limit=limit),
        }
        yield from shown[form](columns, rows)
        return bool(first)
    raise AssertionError("unreachable")


def _batches(result: Any, size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a result, so many at a time; InputError for what DuckDB cannot give."""
    import duckdb

    while True:
        try:
            rows = result.fetchmany(size)
        except duckdb.Error as error:
            raise sql_error(error) from error
        except UNSHOWN as error:
            raise unshown(error) from error
        if not rows:
            return
        yield rows


def _sql(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise InputError("give the SQL either as an argument or with --file")
    if file is None:
        return str(sql)
    try:
        with file.open("rb") as opened:
            content = opened.read(_LONGEST_SQL + 1)
        if len(content) > _LONGEST_SQL:
            raise InputError(f"{file}: SQL of more than {format_bytes(_LONGEST_SQL)}")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error


def _write(pieces: Iterable[str | bytes], output: Path | None) -> None:
    """Write pieces in turn to stdout, or to a file that is there once it is whole."""
    if output is None:
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    with written(output) as temporary, temporary.open("wb") as file:
        for piece in pieces:
            file.write(piece if isinstance(piece, bytes) else piece.encode())
        file.flush()


def _as_json(names: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """Yield one JSON document, as `json_document` writes it."""
    head, tail = json_document(rows=[None]).split("\n  null\n")
    between = head
    for row in rows:
        text = json.dumps(
            dict(zip(names, row, strict=True)), indent=1, default=str, ensure_ascii=False
        )
        yield between + "".join(f"\n  {line}" for line in text.splitlines())
        between = ","
    yield f"{head}{tail.lstrip()}\n" if between == head else f"\n{tail}\n"


def _as_csv(names: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in chain([names], rows):
        writer.writerow([_harmless(value) if isinstance(value, str) else value for value in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _harmless(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: those get an apostrophe in front."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _as_parquet(result: Any) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file."""
    import pyarrow.parquet as pq

    with warnings.catch_warnings(action="ignore", category=UserWarning):
        rows = result.to_arrow_table()
    with tempfile.TemporaryFile() as file:
        pq.write_table(rows, file, compression="zstd")
        file.seek(0)
        while piece := file.read(_PIECE):
            yield piece


def _as_table(names: list[str], found: Iterable[tuple[Any, ...]], *, limit: int) -> Iterator[str]:
    """Yield the first rows as a table that fits the terminal, and how many more there are."""
    import shutil

    from perfpipe.pipelines.grid import grid

    rest = iter(found)
    rows = list(islice(rest, limit))
    more = sum(1 for _ in islice(rest, _COUNTED))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    numeric = [
        all(isinstance(row[at], (int, float, type(None))) for row in rows)
        for at in range(len(names))
    ]
    cells = [[_cell(*own) for own in zip(names, row, strict=True)] for row in rows]
    lines = grid([*map(visible_line, names)], cells, numeric, width)
    if more:
        count = f"{more:,}" if more < _COUNTED else f"{_COUNTED:,} or"
        lines.append(f"... {count} more rows (raise --limit, or use another --format)")
    yield "\n".join(lines) + "\n"


def _cell(name: str, value: Any) -> str:
    """Return a cell of a table, with the unit that the name of its column states."""
    if value is None:
        return "NULL"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        from perfpipe.units import in_unit

        if shown := in_unit(name, value):
            return shown
    return f"{value:.6g}" if isinstance(value, float) else visible_line(str(value))
