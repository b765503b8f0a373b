"""Joins GPU operations to the API calls that launched them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from ingest.builder import ReportBuilder
from perfpipe.errors import StoreError
from perfpipe.manifest import StoredTable
from perfpipe.model import SCHEMA_VERSION
from perfpipe.query import NO_EXTENSIONS, quote
from perfpipe.tablewriter import ROW_GROUP

_TABLE = "launches"
_OPERATIONS = ("nsys_kernels", "nsys_memory_ops", "nsys_graph_launches")

#: Bound on DuckDB's memory, beyond which it spills into the report's directory: what its
#: operators need at least, and what an operation takes in the hash join, which cannot spill whole.
_MEMORY_BASE = 90 << 20
_MEMORY_PER_OPERATION = 110


def write_launches(builder: ReportBuilder) -> None:
    """Write the `launches` table from the tables of this report that are on disk already."""
    import duckdb

    path = builder.directory / f"{_TABLE}.parquet"
    sql = resources.files("ingest.nsys").joinpath("launches.sql").read_text(encoding="utf-8")
    inputs = {
        "kernels": "nsys_kernels",
        "memory_ops": "nsys_memory_ops",
        "graphs": "nsys_graph_launches",
        "api_calls": "nsys_api_calls",
    }
    try:
        rows, unlinked = _join(builder, sql, inputs, path)
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        full = "No space left on device" if "No space left" in str(error) else None
        reason = full or str(error).splitlines()[0]
        raise StoreError(f"cannot write {_TABLE}: {reason}; nothing was changed") from error
    builder.stored[_TABLE] = StoredTable.of(path, rows)
    if unlinked:
        builder.warn(f"{unlinked:,} of {rows:,} GPU operations have no launching API call")


def _join(builder: ReportBuilder, sql: str, inputs: dict[str, str], path: Path) -> tuple[int, int]:
    """Run the join into a Parquet file; return its rows, and those without an API call."""
    import duckdb

    operations = sum(builder.stored[table].rows for table in _OPERATIONS)
    with duckdb.connect(
        config={
            **NO_EXTENSIONS,
            "memory_limit": f"{_MEMORY_BASE + _MEMORY_PER_OPERATION * operations}B",
            "temp_directory": str(builder.directory / ".duckdb"),
        }
    ) as con:
        con.execute(f"SET VARIABLE report_id = {quote(builder.source.report_id)}")
        for variable, table in inputs.items():
            file = quote(str(builder.directory / f"{table}.parquet"))
            con.execute(f"SET VARIABLE {variable} = {file}")
        con.execute(
            f"COPY ({sql}) TO {quote(str(path))} (FORMAT parquet, COMPRESSION zstd, "
            f"COMPRESSION_LEVEL 1, ROW_GROUP_SIZE {ROW_GROUP}, "
            f"KV_METADATA {{'perfpipe.schema_version': '{SCHEMA_VERSION}'}})"
        )
        counts = con.execute(
            "SELECT count(*), count(*) FILTER (WHERE api_name IS NULL) "
            f"FROM read_parquet({quote(str(path))})"
        ).fetchone()
    return counts or (0, 0)
