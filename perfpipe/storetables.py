"""Creates the tables of a store in DuckDB: stored tables are views over files, others in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from perfpipe.catalogue import (
    CATALOGUE,
    CATALOGUE_DOCS,
    MANIFEST_COLUMNS,
    gap_rows,
    manifest_row,
)
from perfpipe.database import SQL_TYPES, ColumnSpec, comment, create_table, in_list, quote
from perfpipe.model import Table, aliases, tables
from perfpipe.paths import pattern_of
from perfpipe.runrecord import RunRecord, run_row, task_row
from perfpipe.segments import CATALOGUE as SEGMENT_CATALOGUE
from perfpipe.snapshot import Files, Snapshot
from perfpipe.trialrecord import trial_rows
from perfpipe.work import stated_work

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class StoreTables:
    """The tables of a snapshot's reports and of some or all runs, each created when needed.

    With `row_numbers`, stored tables have an additional column, file_row_number.
    """

    def __init__(
        self,
        con: DuckDBPyConnection,
        snapshot: Snapshot,
        run_ids: Collection[str] | None = None,
        *,
        row_numbers: bool = False,
    ) -> None:
        self._con, self._snapshot, self._run_ids = con, snapshot, run_ids
        self._row_numbers = row_numbers
        self._makers: dict[str, Callable[[], None]] = {
            "reports": self._make_reports,
            "runs": self._make_runs,
            "run_tasks": self._make_run_tasks,
            "trials": self._make_trials,
            "launch_work": self._make_launch_work,
            "collection_gaps": self._make_collection_gaps,
        }

    @staticmethod
    def names() -> frozenset[str]:
        """Return the names of all tables of a store."""
        return frozenset((*tables(), *CATALOGUE))

    def make(self, name: str) -> None:
        """Create a table, or the view over its files.  Raises KeyError for an unknown name."""
        if name in self._makers:
            self._makers[name]()
        else:
            self._make_stored(tables()[name])

    def bytes(self) -> float:
        """Return the size of the files of all reports; raises StoreError if one is unreadable."""
        return self._snapshot.bytes()

    def has_files(self, name: str) -> bool:
        """Return whether any report has a file of a table."""
        return any(files.paths for files in self._snapshot.files(name))

    def _make_stored(self, table: Table) -> None:
        every = frozenset(column.name for column in table.columns)
        parts = []
        for files in self._snapshot.files(table.name):
            if files.schema == table.signature:
                parts.append(self._select(table, files.paths, every, files.keep))
            else:
                for paths, columns in self._by_columns(files):
                    parts.append(self._select(table, paths, columns, files.keep))
        sql = " UNION ALL ".join(parts) or self._select(table, (), frozenset(), frozenset())
        self._con.execute(f"CREATE VIEW {table.name} AS {sql}")

    def _select(
        self,
        table: Table,
        paths: Sequence[str | Path],
        there: frozenset[str],
        keep: frozenset[str] | None,
    ) -> str:
        """Return the query of files with the columns `there`, and NULL for other columns."""
        columns = [
            column.name
            if column.name in there
            else f"NULL::{SQL_TYPES[column.type]} AS {column.name}"
            for column in table.columns
        ]
        if not paths:
            return f"SELECT {', '.join(columns)} WHERE false"
        numbered = ", file_row_number = true" if self._row_numbers else ""
        columns += ["file_row_number"] if self._row_numbers else []
        source = f"read_parquet([{_listed(paths)}]{numbered})"
        return f"SELECT {', '.join(columns)} FROM {source}{_where(keep)}"

    def _by_columns(self, files: Files) -> list[tuple[list[str], frozenset[str]]]:
        """Return files of other versions, grouped by the columns that they have."""
        rows = self._con.execute(
            f"""
            SELECT list(file_name ORDER BY file_name), columns
            FROM (
                SELECT file_name, list(name ORDER BY name) AS columns
                FROM parquet_schema([{_listed(files.paths)}])
                WHERE type IS NOT NULL
                GROUP BY file_name
            )
            GROUP BY columns
            ORDER BY columns
            """
        ).fetchall()
        return [(paths, frozenset(columns)) for paths, columns in rows]

    def _make_reports(self) -> None:
        rows = [manifest_row(manifest) for manifest in self._snapshot.manifests]
        create_table(self._con, "_manifests", MANIFEST_COLUMNS, rows)
        self._add_from_segments("_manifests", MANIFEST_COLUMNS, SEGMENT_CATALOGUE)
        newest = {
            report: (report, run.run_id, run.replayed)
            for run in self._runs
            for report in run.reports
        }
        create_table(
            self._con,
            "_newest_runs",
            (("report_id", "VARCHAR", ""), ("run_id", "VARCHAR", ""), ("recorded", "BOOLEAN", "")),
            list(newest.values()),
        )
        columns = [
            "coalesce(recorded, false) AS recorded" if name == "recorded" else name
            for name, *_ in CATALOGUE["reports"]
        ]
        self._con.execute(
            f"CREATE TABLE reports AS SELECT {', '.join(columns)} "
            "FROM _manifests LEFT JOIN _newest_runs USING (report_id) ORDER BY report_id"
        )
        self._con.execute("DROP TABLE _manifests; DROP TABLE _newest_runs")

    def _make_collection_gaps(self) -> None:
        name, spec = "collection_gaps", CATALOGUE["collection_gaps"]
        rows = [row for manifest in self._snapshot.manifests for row in gap_rows(manifest)]
        create_table(self._con, name, spec, rows)
        self._add_from_segments(name, spec, name)
        stored, public = [*aliases().values()], [*aliases()]
        self._con.execute(
            f"UPDATE {name} SET table_name = n.public "
            "FROM (SELECT unnest(?) AS stored, unnest(?) AS public) AS n "
            f"WHERE {name}.table_name = n.stored",
            [stored, public],
        )

    def _add_from_segments(self, name: str, spec: Sequence[ColumnSpec], table: str) -> None:
        """Insert the rows of segments; columns that older versions lack are NULL."""
        columns = ", ".join(column for column, *_ in spec)
        for files in self._snapshot.files(table):
            self._con.execute(
                f"INSERT INTO {name} SELECT {columns} "
                f"FROM (FROM {name} WHERE false UNION ALL BY NAME FROM {rows_of(files)})"
            )

    @cached_property
    def _runs(self) -> list[RunRecord]:
        runs = self._snapshot.store.runs()
        return [run for run in runs if self._run_ids is None or run.run_id in self._run_ids]

    def _make_runs(self) -> None:
        create_table(self._con, "runs", CATALOGUE["runs"], [run_row(run) for run in self._runs])

    def _make_run_tasks(self) -> None:
        rows = [task_row(run, task) for run in self._runs for task in run.tasks]
        create_table(self._con, "run_tasks", CATALOGUE["run_tasks"], rows)

    def _make_trials(self) -> None:
        rows = [row for trial in self._snapshot.store.trials() for row in trial_rows(trial)]
        create_table(self._con, "trials", CATALOGUE["trials"], rows)

    def _make_launch_work(self) -> None:
        stated = stated_work(self._snapshot.store)
        rows = [astuple(work) for work in stated if self._snapshot.holds(work.report_id)]
        create_table(self._con, "launch_work", CATALOGUE["launch_work"], rows)


def document(con: DuckDBPyConnection, name: str) -> None:
    """Attach the documentation of a table of a store."""
    if name in CATALOGUE:
        columns = {column: doc for column, _, doc in CATALOGUE[name]}
        comment(con, "TABLE", name, CATALOGUE_DOCS[name], columns)
    else:
        table = tables()[aliases().get(name, name)]
        comment(con, "VIEW", name, table.doc, {c.name: c.doc for c in table.columns})


def rows_of(files: Files) -> str:
    """Return the SQL source of the rows that count in files with the same columns."""
    return f"read_parquet([{_listed(files.paths)}]){_where(files.keep)}"


def _where(keep: frozenset[str] | None) -> str:
    return "" if keep is None else f" WHERE report_id IN {in_list(sorted(keep))}"


def _listed(paths: Iterable[str | Path]) -> str:
    return ", ".join(quote(pattern_of(path)) for path in paths)
