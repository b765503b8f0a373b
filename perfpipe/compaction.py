"""Combines the rows of many reports in segments, so that thousands of reports open quickly.

A compaction writes a new segment from reports with their own directories and from smaller
segments, and publishes it by renaming.  Nothing is changed in place: readers continue with the
files that they have opened, and a later compaction or `store gc` removes the replaced files.
Segments grow geometrically, so each row is written only a few times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpipe.catalogue import CATALOGUE as CATALOGUE_TABLES
from perfpipe.catalogue import MANIFEST_COLUMNS, gap_rows, manifest_row
from perfpipe.database import ColumnSpec, create_table, first_lines, open_database, quote
from perfpipe.errors import StoreError
from perfpipe.inuse import busy, reading
from perfpipe.manifest import Manifest, StoredTable
from perfpipe.model import SCHEMA_VERSION, schema_signature, tables
from perfpipe.paths import pattern_of
from perfpipe.prune import remove_replaced
from perfpipe.segments import CATALOGUE, Segment, SegmentFile
from perfpipe.snapshot import Snapshot
from perfpipe.store import Store
from perfpipe.storetables import StoreTables, rows_of
from perfpipe.sweeping import sweep
from perfpipe.verify import damage
from perfpipe.visible import encodable

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from duckdb import DuckDBPyConnection

#: Reports with larger files are not compacted: copying them costs more than it saves.
LARGEST = 32 << 20

#: A segment is rewritten if it holds at most this many times the number of added reports.
_GROWTH = 2

#: Rows of a row group, few enough that a query of one report reads little; of the catalogue, whose
#: manifests have some kB each.
_ROW_GROUP, _OF_CATALOGUE = 32_768, 1_024

#: Attempts while other commands change the reports.
_ATTEMPTS = 5

#: Row groups that are sorted at a time.
_AT_ONCE = 64


@dataclass(frozen=True)
class Compacted:
    """Result of a compaction: the new `segment`, None if there was nothing to do.

    It has `added` reports that were in no segment, and those of `merged` segments.  `removed` are
    earlier replaced files.
    """

    added: int
    merged: int
    segment: Segment | None
    removed: list[Path]


def compact(store: Store, grace_s: float) -> Compacted:
    """Combine small reports in a segment, and remove files replaced `grace_s` seconds ago.

    Readers may still have newer replaced files open.  Damaged reports are skipped with a warning.
    Raises StoreError if the store cannot be read or written; the store then does not change.
    """
    swept = sweep(store)
    with reading(store.root):
        added, merged, segment = _gather_again(store)
    return Compacted(added, merged, segment, [*swept, *remove_replaced(store, grace_s)])


def _gather_again(store: Store) -> tuple[int, int, Segment | None]:
    """Do what `_gather` does; again without damaged reports, or if others changed the store."""
    for _ in range(_ATTEMPTS):
        before = _state(store)
        try:
            return _gather(store)
        except StoreError:
            # Files may have the right size and the wrong content.
            own, _held = _candidates(store)
            damaged = damage(store, [manifest.report_id for manifest in own])
            if not damaged and _state(store) == before:
                raise
            for report_id, fault in damaged.items():
                store.set_aside(report_id, fault)
    raise busy(store.root)


def _state(store: Store) -> dict[str, int]:
    """Return the reports, with a value that changes when one is written or moved."""
    own, held = store.reports_by_place()
    found = {report: store.written_at(report) for report in own}
    return found | {report: 0 for reports in held.values() for report in reports}


def _gather(store: Store) -> tuple[int, int, Segment | None]:
    """Combine small reports and segments in a segment; return their numbers and the segment."""
    own, held = _candidates(store)
    if not own and not _to_merge(held, 0):
        return 0, 0, None
    with store.new_segment() as directory:
        # Listed again: reports that Store.remove removes from now on are hidden.
        own, held = _candidates(store)
        merged = {s: held[s] for s in _to_merge(held, len(own))}
        if not own and not merged:
            return 0, 0, None
        sources = {
            report_id: at
            for segment, reports in merged.items()
            for report_id, at in segment.sources.items()
            if report_id in reports
        } | {m.report_id: store.written_at(m.report_id) for m in own}
        _write(store, directory, own, merged, sources)
        return len(own), len(merged), store.publish_segment(directory)


def _candidates(store: Store) -> tuple[list[Manifest], dict[Segment, frozenset[str]]]:
    """Return small reports that are read from their own directories, and the segments."""
    own, held = store.reports_by_place()
    manifests, damaged = store.own_manifests(sorted(own))
    for report_id, fault in damaged.items():
        store.leave_out(report_id, fault)
    return [m for m in manifests if sum(t.bytes for t in m.tables.values()) <= LARGEST], held


def _to_merge(held: Mapping[Segment, frozenset[str]], added: int) -> list[Segment]:
    """Return the segments to merge with a number of reports, smallest first.

    They are not much larger than what is merged with them.  Without reports to add there are none,
    or at least two.
    """
    chosen: list[Segment] = []
    total = added
    for segment in sorted(held, key=lambda s: (len(held[s]), s.segment_id)):
        count = len(held[segment])
        if count > _GROWTH * total:
            if added or len(chosen) > 1:
                break
            chosen, total = [], 0
        chosen.append(segment)
        total += count
    return chosen if added or len(chosen) > 1 else []


def _write(
    store: Store,
    directory: Path,
    own: Sequence[Manifest],
    merged: Mapping[Segment, frozenset[str]],
    sources: Mapping[str, int],
) -> None:
    """Write the files of a segment and its index."""
    import duckdb

    reports = frozenset(manifest.report_id for manifest in own).union(*merged.values())
    snapshot = Snapshot(store, [manifest.report_id for manifest in own], merged)
    with open_database() as con:
        try:
            writer = _Writer(con, directory, sorted(reports))
            files = _write_catalogue(writer, own, snapshot)
            source = StoreTables(con, snapshot, row_numbers=True)
            stated = _stated_rows(con, directory)
            for name in [name for name in tables() if name in stated]:
                source.make(name)
                sql = f"SELECT * EXCLUDE (file_row_number) FROM {name}"
                order = "report_id, file_row_number"
                files.append(writer.write(name, sql, order, tables()[name].signature))
        except StoreError as error:
            raise StoreError(f"{error}; nothing was changed") from error
        except duckdb.Error as error:
            raise StoreError(
                f"cannot compact {store.root}: {first_lines(error)}; nothing was changed "
                "('perfpipe store verify' lists damaged reports)"
            ) from error
    _check(files, stated)
    replaces = frozenset(segment.segment_id for segment in merged)
    Segment(directory, reports, replaces, tuple(files), sources).write_index(directory)


@dataclass(frozen=True)
class _Writer:
    """Writes tables into a directory, sorted by report: some of the `reports` at a time.

    So memory does not grow with the segment.
    """

    con: DuckDBPyConnection
    directory: Path
    reports: Sequence[str]

    def write(
        self, name: str, sql: str, order: str, schema: str, row_group: int = _ROW_GROUP
    ) -> SegmentFile:
        """Write the rows of a query; returns the file."""
        from perfpipe.tablewriter import open_parquet

        path, rows = self.directory / f"{name}.parquet", 0
        with ExitStack() as stack:
            file: pq.ParquetWriter | None = None
            for first, last in self._ranges(sql, row_group):
                which = f"WHERE report_id BETWEEN {quote(first)} AND {quote(last)}"
                # A relation, of which no copy is made.
                found: Any = self.con.sql(f"{sql} {which} ORDER BY {order}")
                batches = found.to_arrow_reader(row_group)
                if file is None:
                    file = open_parquet(path, batches.schema, "report_id")
                    stack.enter_context(file)
                    file.add_key_value_metadata({"perfpipe.schema_version": str(SCHEMA_VERSION)})
                for batch in batches:
                    file.write_batch(batch, row_group)
                    rows += batch.num_rows
        stored = StoredTable.of(path, rows, schema)
        return SegmentFile(path.name, name, schema, stored.rows, stored.bytes, stored.sha256)

    def _ranges(self, sql: str, row_group: int) -> Iterator[tuple[str, str]]:
        """Yield the first and last reports of parts with about _AT_ONCE row groups."""
        ((rows,),) = self.con.execute(f"SELECT count(*) FROM ({sql})").fetchall()
        parts = max(1, math.ceil(rows / (row_group * _AT_ONCE)))
        step = max(1, math.ceil(len(self.reports) / parts))
        for at in range(0, max(1, len(self.reports)), step):
            own = self.reports[at : at + step] or [""]
            yield own[0], own[-1]


def _write_catalogue(
    writer: _Writer, own: Sequence[Manifest], snapshot: Snapshot
) -> list[SegmentFile]:
    """Write what segments say of reports; the manifests of merged segments stay on disk."""
    columns = (*MANIFEST_COLUMNS, ("manifest", "VARCHAR", ""))
    rows = [(*manifest_row(m), _json(m)) for m in own]
    gaps = [row for m in own for row in gap_rows(m)]
    every = (
        (CATALOGUE, columns, rows),
        ("collection_gaps", CATALOGUE_TABLES["collection_gaps"], gaps),
    )
    return [_write_merged(writer, snapshot, name, own, rows) for name, own, rows in every]


def _write_merged(
    writer: _Writer,
    snapshot: Snapshot,
    name: str,
    columns: Sequence[ColumnSpec],
    rows: Sequence[Sequence[Any]],
) -> SegmentFile:
    """Write rows and those of merged segments; columns that older versions lack are NULL."""
    create_table(writer.con, name, columns, rows)
    sources = [f"FROM {name}", *(f"FROM {rows_of(files)}" for files in snapshot.files(name))]
    listed = ", ".join(column for column, *_ in columns)
    sql = f"SELECT {listed} FROM ({' UNION ALL BY NAME '.join(sources)})"
    # A report has one row in the catalogue, so that manifests need not be sorted by.
    order, row_group = ("report_id", _OF_CATALOGUE) if name == CATALOGUE else ("ALL", _ROW_GROUP)
    return writer.write(name, sql, order, _signature(columns), row_group)


def _stated_rows(con: DuckDBPyConnection, directory: Path) -> dict[str, int]:
    """Return the rows of each table according to the manifests in the catalogue just written."""
    path = quote(pattern_of(directory / f"{CATALOGUE}.parquet"))
    found = con.execute(
        f"""
        SELECT name, sum(rows)::BIGINT
        FROM (
            SELECT
                unnest(json_keys(manifest, '$.tables')) AS name,
                unnest(json_extract(manifest, '$.tables.*.rows'))::BIGINT AS rows
            FROM read_parquet({path})
        )
        GROUP BY name
        """
    )
    return dict(found.fetchall())


def _signature(spec: Sequence[ColumnSpec]) -> str:
    return schema_signature([(name, kind) for name, kind, _ in spec])


def _check(files: Sequence[SegmentFile], stated: Mapping[str, int]) -> None:
    """Raise StoreError if a file does not have the number of rows in the manifests."""
    for file in files:
        if file.table in stated and file.rows != stated[file.table]:
            raise StoreError(
                f"{file.table}: {file.rows} rows, but the manifests state {stated[file.table]}; "
                "nothing was changed ('perfpipe store verify' lists damaged reports)"
            )


def _json(manifest: Manifest) -> str:
    """Return a manifest as JSON; DuckDB's JSON refuses lone surrogates."""
    return encodable(json.dumps(asdict(manifest), ensure_ascii=False))
