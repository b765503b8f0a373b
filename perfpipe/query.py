"""Opens a store in DuckDB: in memory, over the Parquet files, with no network and no extensions."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Collection, Iterable
from dataclasses import astuple
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpipe.errors import InputError
from perfpipe.model import Table, tables
from perfpipe.runrecord import RUN_COLUMNS, TASK_COLUMNS, run_row, task_row
from perfpipe.work import stated_work

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from perfpipe.manifest import Manifest
    from perfpipe.runrecord import RunRecord
    from perfpipe.store import Store

#: What every connection of perfpipe starts with: no extension is fetched or loaded.
NO_EXTENSIONS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}

#: Bounds what a query may take of memory, such as 2GB; beyond it DuckDB spills to its directory.
MEMORY_VARIABLE = "PERFPIPE_MEMORY"

#: Regular expression of NVTX ranges that are steps, in upper or lower case, instead of ours.
STEP_RANGE_VARIABLE = "PERFPIPE_STEP_RANGE"

#: Tables that are made from manifests and run records: name -> (column, type, meaning).
CATALOGUE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "reports": (
        ("report_id", "VARCHAR", "report"),
        ("run_id", "VARCHAR", "newest run that gave it; NULL when it was ingested by hand"),
        ("kind", "VARCHAR", "ncu, nsys or torch"),
        ("format", "VARCHAR", "format of the input"),
        ("source_name", "VARCHAR", "file name of the input"),
        ("sha256", "VARCHAR", "of the input, decompressed"),
        ("tool_version", "VARCHAR", "version of the profiler"),
        ("export_schema", "VARCHAR", "version of the nsys export schema"),
        ("captured_at", "VARCHAR", "start of the capture, UTC"),
        ("started_ns", "BIGINT", "zero of the report's times, ns since 1970, UTC"),
        ("directory", "VARCHAR", "directory of the input when it was read"),
        ("host", "VARCHAR", "host name"),
        ("command", "VARCHAR", "profiled command"),
        ("gpu", "VARCHAR", "device name"),
        ("sm_count", "BIGINT", "multiprocessors of that device"),
        ("recorded", "BOOLEAN", "whether a run replayed it from a recording"),
        ("warnings", "VARCHAR[]", "what the checks on the way in found"),
    ),
    "runs": RUN_COLUMNS,
    "run_tasks": TASK_COLUMNS,
    "launch_work": (
        ("report_id", "VARCHAR", "report"),
        ("kernel", "VARCHAR", "regular expression of full kernel names; NULL for any"),
        ("nvtx", "VARCHAR", "regular expression of NVTX paths; NULL for any"),
        ("flop", "DOUBLE", "floating-point operations of a launch"),
        ("bytes", "DOUBLE", "bytes that it must move at least"),
        ("dtype", "VARCHAR", "type whose peak counts"),
    ),
    "collection_gaps": (
        ("report_id", "VARCHAR", "report"),
        ("table_name", "VARCHAR", "table that is empty or incomplete"),
        ("column_name", "VARCHAR", "column that is NULL throughout; empty for the whole table"),
        ("reason", "VARCHAR", "why"),
    ),
}


def connect(
    store: Store,
    report_ids: Iterable[str] | None = None,
    sql: str | None = None,
    run_ids: Collection[str] | None = None,
) -> DuckDBPyConnection:
    """Return a connection with every table and view, of some reports and runs or of all.

    With `sql` only those views are made that the text mentions, which is quicker.  Analysis
    views come from the entry points of the group `perfpipe.views`.  Raises InputError where
    PERFPIPE_MEMORY is no size.
    """
    import duckdb

    config: dict[str, Any] = {
        **NO_EXTENSIONS,
        "temp_directory": str(_spill_directory()),
        "python_enable_replacements": "false",
    }
    if limit := os.environ.get(MEMORY_VARIABLE):
        config["memory_limit"] = limit
    try:
        con = duckdb.connect(config=config)
    except duckdb.Error as error:
        raise InputError(f"{MEMORY_VARIABLE}={limit}: {_first_lines(error)}") from error
    wanted = None if report_ids is None else set(report_ids)
    manifests = [m for m in store.manifests() if wanted is None or m.report_id in wanted]
    for table in tables().values():
        _create_table_view(con, store, table, manifests)
    runs = [run for run in store.runs() if run_ids is None or run.run_id in run_ids]
    _fill(con, "reports", _report_rows(manifests, runs))
    _fill(con, "runs", [run_row(run) for run in runs])
    _fill(con, "run_tasks", [task_row(run, task) for run in runs for task in run.tasks])
    known = {m.report_id for m in manifests}
    stated = [astuple(work) for work in stated_work(store) if work.report_id in known]
    _fill(con, "launch_work", stated)
    _fill(
        con,
        "collection_gaps",
        [(m.report_id, gap.table, gap.column, gap.reason) for m in manifests for gap in m.missing],
    )
    for entry in sorted(metadata.entry_points(group="perfpipe.views"), key=lambda e: e.name):
        entry.load()(con, sql)
    return con


def _spill_directory() -> Path:
    """Return a directory of this connection's own: DuckDB makes it when it has to spill.

    A locked connection may read its spill directory, so it must hold nothing else.
    """
    base = os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir()
    return Path(base) / f"perfpipe-duckdb-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def lock(con: DuckDBPyConnection, store: Store) -> None:
    """Let the connection read the store and nothing else, for good."""
    con.execute(f"SET allowed_directories = [{quote(str(store.reports_dir.resolve()) + '/')}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def run_user_sql(con: DuckDBPyConnection, sql: str) -> Any:
    """Run one statement that only reads and return its relation or result.

    Raises InputError for anything else: a store is never changed by a query.
    """
    import duckdb

    try:
        statements = con.extract_statements(sql)
    except duckdb.Error as error:
        raise InputError(f"SQL: {_first_lines(error)}") from error
    if len(statements) != 1:
        raise InputError(f"SQL: one statement is needed, not {len(statements)}")
    kind = statements[0].type
    if kind not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise InputError(f"SQL: only SELECT is allowed here, not {kind.name}")
    try:
        return con.execute(statements[0])
    except duckdb.Error as error:
        raise InputError(f"SQL: {_first_lines(error)}") from error


def quote(text: str) -> str:
    """Return a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip())


def _create_table_view(
    con: DuckDBPyConnection, store: Store, table: Table, manifests: list[Manifest]
) -> None:
    """Make a view over a table's files; the typed empty half gives columns to older files."""
    types = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE"}
    nulls = ", ".join(f"NULL::{types[c.type]} AS {c.name}" for c in table.columns)
    sql = f"CREATE VIEW {table.name} AS SELECT {nulls} WHERE false"
    files = [
        quote(str(store.table_path(m.report_id, table.name).resolve()))
        for m in manifests
        if table.name in m.tables
    ]
    if files:
        sql += (
            " UNION ALL BY NAME SELECT * FROM "
            f"read_parquet([{', '.join(files)}], union_by_name = true)"
        )
    con.execute(sql)
    comment(con, "VIEW", table.name, table.doc, {c.name: c.doc for c in table.columns})


def comment(
    con: DuckDBPyConnection, kind: str, name: str, doc: str, columns: dict[str, str]
) -> None:
    """Attach documentation to a view or table and its columns."""
    con.execute(f"COMMENT ON {kind} {name} IS {quote(doc)}")
    for column, text in columns.items():
        con.execute(f"COMMENT ON COLUMN {name}.{column} IS {quote(text)}")


def _report_rows(manifests: list[Manifest], runs: list[RunRecord]) -> list[tuple[Any, ...]]:
    newest = {report: run for run in runs for report in run.reports}
    rows = []
    for m in manifests:
        run = newest.get(m.report_id)
        rows.append(
            (
                m.report_id,
                run and run.run_id,
                m.kind,
                m.format,
                m.source_name,
                m.sha256,
                m.facts.tool_version,
                m.facts.export_schema,
                m.facts.captured_at,
                m.facts.started_ns,
                str(Path(m.source_path).parent),
                m.facts.host,
                m.facts.command,
                m.facts.gpu,
                m.facts.sm_count,
                run is not None and run.replayed,
                list(m.warnings),
            )
        )
    return rows


def _fill(con: DuckDBPyConnection, name: str, rows: list[tuple[Any, ...]]) -> None:
    spec = CATALOGUE[name]
    con.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {kind}' for c, kind, _ in spec)})")
    if rows:
        con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(spec))})", rows)
    comment(con, "TABLE", name, CATALOGUE_DOCS[name], {c: doc for c, _, doc in spec})


CATALOGUE_DOCS = {
    "reports": "Ingested reports, one row each.",
    "runs": "What perfpipe launched or replayed, one row each.",
    "run_tasks": "Configurations of runs, one row each.",
    "launch_work": "Work that 'perfpipe work' stated of launches.",
    "collection_gaps": "What a report does not hold, and why; such values are NULL, never 0.",
}
