"""DuckDB as perfpipe uses it: in memory, read-only SQL, without network or extensions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from perfpipe.cores import CORES_VARIABLE, cores
from perfpipe.errors import InputError, PerfpipeError, QueryFailed, StoreError, brief
from perfpipe.scratch import spill_directory

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Statement

#: Settings of every connection: no extension is downloaded or loaded.
NO_EXTENSIONS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}

#: Memory limit of a query, such as 2GB; beyond it DuckDB spills to disk.
MEMORY_VARIABLE = "PERFPIPE_MEMORY"

#: DuckDB types of the types of the data model.
SQL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE"}

#: A column of an in-memory table: name, DuckDB type, meaning.
ColumnSpec = tuple[str, str, str]

#: Characters of a query that an error repeats.
_OF_QUERY = 60

#: Parsed statements by text.
_parsed: dict[str, Statement] = {}


def open_database() -> DuckDBPyConnection:
    """Return a connection to an empty database.

    Raises InputError if PERFPIPE_MEMORY or PERFPIPE_CORES is invalid.
    """
    import duckdb

    config: dict[str, Any] = {
        **NO_EXTENSIONS,
        "temp_directory": str(spill_directory()),
        "python_enable_replacements": "false",
    }
    if limit := os.environ.get(MEMORY_VARIABLE):
        config["memory_limit"] = limit
    try:
        con = duckdb.connect(config=config)
    except duckdb.Error as error:
        raise InputError(f"{MEMORY_VARIABLE}={limit}: {first_lines(error)}") from error
    use_cores(con)
    return _watched_and_quiet(con)


def use_cores(con: DuckDBPyConnection) -> None:
    """Let queries run on all cores, or on PERFPIPE_CORES cores."""
    stated = os.environ.get(CORES_VARIABLE)
    con.execute(f"SET threads = {cores()}" if stated else "RESET threads")


def another(con: DuckDBPyConnection) -> DuckDBPyConnection:
    """Return another connection to the same database."""
    return _watched_and_quiet(con.cursor())


def watch(con: DuckDBPyConnection) -> None:
    """Let the blocks of `watching` around this call interrupt a connection's queries."""
    for watched in _watched.get():
        watched.append(con)


def _watched_and_quiet(con: DuckDBPyConnection) -> DuckDBPyConnection:
    import duckdb

    watch(con)

    # DuckDB's progress bar would mix with the progress bar of perfpipe.  In Jupyter without
    # ipywidgets there is none, and DuckDB refuses to set it.
    with contextlib.suppress(duckdb.InvalidInputException):
        con.execute("SET enable_progress_bar = false")
    return con


#: The connections of each block of `watching` around this one; other threads have their own.
_watched: ContextVar[tuple[list[DuckDBPyConnection], ...]] = ContextVar("watched", default=())


@contextlib.contextmanager
def watching() -> Iterator[Callable[[], None]]:
    """Yield a function that interrupts the queries of all connections opened in the block.

    Connections of another thread belong to the block if it runs in a copy of this context.
    """
    import duckdb

    own: list[DuckDBPyConnection] = []

    def interrupt() -> None:
        for con in [*own]:
            with contextlib.suppress(duckdb.Error):
                con.interrupt()

    outer = _watched.set((*_watched.get(), own))
    try:
        yield interrupt
    finally:
        _watched.reset(outer)


def execute_known(con: DuckDBPyConnection, sql: str) -> DuckDBPyConnection:
    """Run a statement of perfpipe; its text is parsed once per process.

    Parsing takes about as long as binding, or as running it on few rows.
    """
    if sql not in _parsed:
        (_parsed[sql],) = con.extract_statements(sql)
    return con.execute(_parsed[sql])


#: What Python raises for values of DuckDB that it has no type for.
UNSHOWN = (ImportError, OverflowError, ValueError)


def unshown(error: Exception) -> InputError:
    """Return one sentence for a value that Python cannot hold."""
    return InputError(
        f"SQL: a value cannot be shown ({error}); cast times with a time zone to VARCHAR"
    )


def sql_error(error: Exception) -> InputError:
    """Return DuckDB's error in a user's query as one sentence."""
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return InputError(
            "SQL: the query needs more memory than allowed, or more disk space to spill to; raise "
            f"the memory limit with --memory SIZE or {MEMORY_VARIABLE}"
        )
    if "'pytz'" in str(error):
        return InputError("SQL: times with a time zone cannot be shown; cast them to VARCHAR")
    return InputError(f"SQL: {first_lines(error)}")


def own_error(error: Exception, sql: str = "") -> PerfpipeError:
    """Return DuckDB's error in a query of perfpipe itself as one sentence.

    A file that cannot be read is a fault of the store.  Anything else is a fault of perfpipe or of
    the DuckDB version.
    """
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return sql_error(error)
    if isinstance(error, duckdb.IOException):
        return StoreError(
            f"cannot read the store: {first_lines(error)}; 'perfpipe store verify' shows what is "
            "damaged"
        )
    named = f" '{brief(sql, _OF_QUERY)}'" if sql else ""
    return QueryFailed(
        f"perfpipe's own query{named} failed under DuckDB {duckdb.__version__}: "
        f"{first_lines(error)}{_needed()}",
        sql,
    )


def _needed() -> str:
    """Return the end of a sentence that names the versions of DuckDB that perfpipe needs."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        needed = [one for one in requires("perfpipe") or () if one.startswith("duckdb")]
    except PackageNotFoundError:
        return ""
    return f"; perfpipe needs {needed[0]}" if needed else ""


def first_lines(error: Exception) -> str:
    """Return the first lines of an error as one."""
    return " ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip())


def quote(text: str) -> str:
    """Return a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def same(column: str, value: int | None) -> str:
    """Return the SQL condition that a column has a value; None is NULL."""
    return f"{column} IS NULL" if value is None else f"{column} = {value}"


def in_list(values: Sequence[str]) -> str:
    """Return the right side of IN for some texts; without texts it matches nothing."""
    return f"({', '.join(quote(value) for value in values) or 'NULL'})"


def create_table(
    con: DuckDBPyConnection,
    name: str,
    columns: Sequence[ColumnSpec],
    rows: Sequence[Sequence[Any]] = (),
) -> None:
    """Create a table and insert rows, column by column.

    Inserting row by row takes a millisecond per row.
    """
    con.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {kind}' for c, kind, _ in columns)})")
    if rows:
        lists = ", ".join(f"unnest(?::{kind}[])" for _, kind, _ in columns)
        con.execute(f"INSERT INTO {name} SELECT {lists}", list(map(list, zip(*rows, strict=True))))


def comment(
    con: DuckDBPyConnection, kind: str, name: str, doc: str, columns: Mapping[str, str]
) -> None:
    """Attach documentation to a view or table and its columns."""
    con.execute(f"COMMENT ON {kind} {name} IS {quote(doc)}")
    for column, text in columns.items():
        con.execute(f"COMMENT ON COLUMN {name}.{column} IS {quote(text)}")
