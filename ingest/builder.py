"""Collects one report: its tables, facts, warnings and gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from perfpipe.errors import InputError
from perfpipe.files import printable
from perfpipe.ingest.source import Input
from perfpipe.ingest.stored import texts_of
from perfpipe.ingest.workers import Workers
from perfpipe.manifest import Facts, Manifest, Missing, StoredTable
from perfpipe.model import tables
from perfpipe.provenance import provenance
from perfpipe.secrets import hidden
from perfpipe.tablewriter import TableWriter

#: A report with a larger share of lost rows in a table is refused, %.
REFUSED_PCT = 20


@dataclass
class ReportBuilder:
    """Writes the tables of one report into `directory`; readers add the other facts."""

    directory: Path
    source: Input
    workers: Workers = field(default_factory=Workers)
    facts: Facts = field(default_factory=Facts)
    warnings: list[str] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    stored: dict[str, StoredTable] = field(default_factory=dict)
    #: The largest share of lost or damaged rows in a table, and the message about it.
    lost: tuple[float, str] = (0.0, "")
    #: How the input ends too early; empty if it is complete.
    incomplete: str = ""
    #: The largest share of GPU work that was recorded incorrectly or not at all, and the message.
    missed: tuple[float, str] = (0.0, "")

    @contextmanager
    def table(self, name: str) -> Iterator[TableWriter]:
        """Yield a writer for a table; the table is in the report if the block succeeds."""
        with TableWriter(self.directory, tables()[name], self.source.report_id) as writer:
            yield writer
            self.stored[name] = writer.close()

    def write(self, name: str, columns: dict[str, Any], rows: int) -> None:
        """Write a table that fits in memory."""
        with self.table(name) as writer:
            writer.write(columns, rows)

    def rewrite(self, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
        """Replace the rows of a table that is in the report, a row group at a time."""
        path = self.directory / f"{name}.parquet"
        old = path.rename(path.with_suffix(".old"))
        with (
            pq.ParquetFile(old, read_dictionary=texts_of(path)) as file,
            self.table(name) as writer,
        ):
            for group in range(file.num_row_groups):
                rows = change(file.read_row_group(group)).drop_columns(["report_id"])
                for batch in rows.combine_chunks().to_batches():
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                    writer.write(columns, batch.num_rows)
        old.unlink()

    def keep_only(self, *names: str) -> None:
        """Drop all tables but these, and what is missing in the others."""
        for other in self.stored.keys() - {*names}:
            (self.directory / f"{other}.parquet").unlink()
            del self.stored[other]
        self.missing = [gap for gap in self.missing if gap.table in names]

    def warn(self, text: str) -> None:
        """Add a warning to the report."""
        if text not in self.warnings:
            self.warnings.append(text)

    def lose(self, what: str, reason: str, rows: int, of: int, *, counts: bool = True) -> None:
        """Record that some of the rows of `what` in the input are lost or damaged.

        `reason` continues "3 of 80 rows of WHAT".  If it `counts`, a large share limits the
        conclusions from the report, or refuses it.
        """
        text = f"{rows:,} of {of:,} rows of {what} {reason}"
        self.warn(text)
        if counts:
            self.lost = max(self.lost, (100 * rows / max(of, rows, 1), text))

    def cut(self, text: str) -> None:
        """Record that the input ends too early; it is refused unless the user forces it."""
        self.warn(text)
        self.incomplete = text

    def miss(self, text: str, events: int, of: int) -> None:
        """Warn that the profiler recorded some GPU work wrongly or not at all.

        A large share limits the conclusions from the report.
        """
        self.warn(text)
        self.missed = max(self.missed, (100 * events / max(of, events, 1), text))

    def check_losses(self) -> None:
        """Raise InputError if too much of the input is lost for any conclusion."""
        if self.incomplete:
            path = self.source.path
            raise InputError(f"{path}: {self.incomplete} (--force stores what precedes the end)")
        share, text = self.lost
        if share > REFUSED_PCT:
            raise InputError(
                f"{self.source.path}: {text}; this is over {REFUSED_PCT} % "
                "(--force stores the report nevertheless)"
            )

    def lacks(self, table: str, reason: str, column: str = "") -> None:
        """Record that a table (or one of its columns) is not in the input."""
        self.missing.append(Missing(table, column, reason))

    def manifest(self) -> Manifest:
        """Drop the files of empty tables and return the finished report's manifest."""
        for name in [name for name, table in self.stored.items() if not table.rows]:
            (self.directory / f"{name}.parquet").unlink()
            del self.stored[name]
        return Manifest(
            report_id=self.source.report_id,
            kind=self.source.kind,
            format=self.source.format,
            source_name=printable(self.source.path.name),
            source_path=printable(str(self.source.path.resolve())),
            source_bytes=self.source.size,
            sha256=self.source.sha256,
            facts=replace(self.facts, command=hidden(self.facts.command)),
            warnings=hidden(tuple(self.warnings)),
            missing=tuple(sorted(self.missing, key=lambda gap: (gap.table, gap.column))),
            tables=dict(sorted(self.stored.items())),
            provenance=provenance(),
            lost_pct=self.lost[0],
            missed_pct=self.missed[0],
            missed=self.missed[1],
        )
