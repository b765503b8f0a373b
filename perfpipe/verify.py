"""Checks the integrity of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from perfpipe import baselinerecord, calibrationrecord, searchrecord, trialrecord
from perfpipe.batchrecord import Batch, read_record
from perfpipe.database import first_lines, open_database, quote
from perfpipe.errors import StoreError
from perfpipe.manifest import Manifest, StoredTable
from perfpipe.model import SCHEMA_VERSION, tables
from perfpipe.paths import pattern_of
from perfpipe.segments import Segment, segment_manifests
from perfpipe.store import Store
from perfpipe.work import read_work, work_files


def verify(store: Store) -> Iterator[tuple[str, str | None]]:
    """Yield (report, segment or run id, fault); the fault is None if it is intact.

    Each table must exist with the size, checksum, rows, columns and schema version of the manifest
    and the data model; a segment must hold the rows in its manifests.
    """
    known = frozenset(store.report_ids())
    checks: list[tuple[str, Iterable[str]]] = [
        *((report_id, _report_faults(store, report_id)) for report_id in store.own_report_ids()),
        *((segment.segment_id, _segment_faults(segment)) for segment in store.segments()),
        *((segment_id, [fault]) for segment_id, fault in store.damaged_segments().items()),
        *((run_id, _run_faults(store, run_id, known)) for run_id in store.run_ids()),
        *((name, _record_faults(read)) for name, read in _records(store)),
    ]
    for name, faults in checks:
        found: list[str | None] = []
        try:
            found += faults
        except StoreError as error:
            found.append(str(error))
        yield from ((name, fault) for fault in found or [None])


def damage(store: Store, report_ids: Iterable[str]) -> dict[str, str]:
    """Return the damaged ones of some reports, by the checks of `verify`, with a fault of each."""
    held = {
        report_id: segment
        for segment, reports in store.reports_in_segments().items()
        for report_id in reports
    }
    found = {}
    for report_id in report_ids:
        segment = held.get(report_id)
        faults = _segment_faults(segment) if segment else _report_faults(store, report_id)
        try:
            fault = next(iter(faults), None)
        except StoreError as error:
            fault = str(error)
        if fault is not None:
            found[report_id] = f"segment {segment.segment_id}, {fault}" if segment else fault
    return found


def _run_faults(store: Store, run_id: str, known: frozenset[str]) -> Iterator[str]:
    missing = [report for report in store.run(run_id).reports if report not in known]
    if missing:
        yield f"refers to missing reports: {', '.join(missing)}"


def _records(store: Store) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the small files about runs and reports, and the reader of each."""
    for batch_id in store.batch_ids():
        path = store.batches_dir / batch_id / "batch.json"
        yield batch_id, partial(read_record, Batch, path, "batch")
    for name in baselinerecord.names(store.root):
        yield f"baseline {name}", partial(baselinerecord.read, store.root, name)
    for path in calibrationrecord.files(store.root):
        yield f"calibration {path.stem}", partial(calibrationrecord.read_file, path)
    for path in trialrecord.files(store.root):
        yield f"trial {path.stem}", partial(trialrecord.read_file, path)
    for name in searchrecord.identifiers(store.root):
        folder = searchrecord.directory(store.root) / name
        yield f"search {name}", partial(searchrecord.read, folder)
        yield f"search {name}, candidates", partial(searchrecord.read_attempts, folder)
    for path in work_files(store.root):
        yield f"work {path.parent.name}/{path.stem}", partial(read_work, path)


def _record_faults(read: Callable[[], object]) -> Iterator[str]:
    # The caller turns the error into a fault.
    read()
    yield from ()


def _report_faults(store: Store, report_id: str) -> Iterator[str]:
    manifest = Manifest.read(store.manifest_path(report_id))
    if manifest.report_id != report_id:
        yield f"the manifest belongs to another report, {manifest.report_id}"
    for name, stated in manifest.tables.items():
        for fault in _file_faults(store.table_path(report_id, name), name, stated):
            yield f"{name}: {fault}"


def _segment_faults(segment: Segment) -> Iterator[str]:
    """Yield the faults of the files of a segment, and of its reports."""
    whole = True
    for file in segment.files:
        stated = StoredTable(file.rows, file.bytes, file.sha256, file.schema)
        for fault in _file_faults(segment.path / file.file, file.table, stated):
            whole = False
            yield f"{file.file}: {fault}"
    if not whole:
        return
    manifests = list(segment_manifests(segment, segment.reports))
    if {manifest.report_id for manifest in manifests} != segment.reports:
        yield "catalogue and index list different reports"
    for file in segment.files:
        if file.table in tables():
            stated_rows = {
                m.report_id: m.tables[file.table].rows for m in manifests if file.table in m.tables
            }
            if _rows_by_report(segment.path / file.file) != stated_rows:
                yield f"{file.file}: the rows of a report differ from its manifest"


def _rows_by_report(path: Path) -> dict[str, int]:
    import duckdb

    source = f"read_parquet({quote(pattern_of(path))})"
    sql = f"SELECT report_id, count(*) FROM {source} GROUP BY report_id"
    with open_database() as con:
        try:
            return dict(con.execute(sql).fetchall())
        except duckdb.Error as error:
            raise StoreError(f"{path.name}: not readable ({first_lines(error)})") from error


def _file_faults(path: Path, table: str, stated: StoredTable) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        yield "the table is missing"
        return
    if StoredTable.of(path, stated.rows, stated.schema) != stated:
        yield "size or checksum differs from the manifest"
        return
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        yield f"not readable as Parquet ({error})"
        return
    version = (file.metadata.metadata or {}).get(b"perfpipe.schema_version", b"").decode()
    if version != str(SCHEMA_VERSION):
        yield f"schema version {version or 'not stated'}, expected {SCHEMA_VERSION}"
    if file.metadata.num_rows != stated.rows:
        yield f"{file.metadata.num_rows} rows, but the manifest states {stated.rows}"
    if table in tables() and file.schema_arrow.names != tables()[table].schema.names:
        yield "the columns differ from the data model"
