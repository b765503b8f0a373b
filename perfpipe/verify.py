"""Checks the integrity of a store."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from perfpipe import baselinerecord, calibrationrecord, searchrecord, trialrecord
from perfpipe.batchrecord import Batch, read_record
from perfpipe.database import first_lines, open_database, quote
from perfpipe.errors import StoreError
from perfpipe.inuse import busy
from perfpipe.manifest import Manifest, StoredTable
from perfpipe.model import SCHEMA_VERSION, tables
from perfpipe.paths import pattern_of
from perfpipe.segments import Segment, segment_manifests
from perfpipe.store import Store
from perfpipe.work import read_work, work_files

#: Attempts to check what changes meanwhile.
_ATTEMPTS = 5


def verify(store: Store) -> Iterator[tuple[str, str | None]]:
    """Yield (report, segment or run id, fault); the fault is None if it is intact.

    Each table must exist with the size, checksum, rows, columns and schema version of the manifest
    and the data model; a segment must hold the rows in its manifests.
    """
    own, segments, damaged = store.own_report_ids(), store.segments(), store.damaged_segments()
    known = frozenset(store.report_ids())
    checks: list[tuple[str, Path, Callable[[], Iterable[str]]]] = [
        *((name, store.reports_dir / name, partial(_report_faults, store, name)) for name in own),
        *((one.segment_id, one.path, partial(_segment_faults, one)) for one in segments),
        *(
            (name, store.segments_dir / name, lambda why=why: [why])
            for name, why in damaged.items()
        ),
        *(
            (name, store.runs_dir / name, partial(_run_faults, store, name, known))
            for name in store.run_ids()
        ),
        *((name, store.root, partial(_record_faults, read)) for name, read in _records(store)),
    ]
    for name, place, faults in checks:
        yield from ((name, fault) for fault in _settled(store, place, faults))


def _settled(
    store: Store, place: Path, faults: Callable[[], Iterable[str]]
) -> Sequence[str | None]:
    """Return the faults of what is at a place, or None; nothing if it was removed meanwhile.

    What changed while it was checked is checked again.
    """
    for _ in range(_ATTEMPTS):
        before = _changed_at(place)
        found = _found(faults())
        if not found:
            return [None]
        if (after := _changed_at(place)) == before:
            return found if after else []
    raise busy(store.root)


def _found(faults: Iterable[str]) -> list[str]:
    found: list[str] = []
    try:
        found += faults
    except StoreError as error:
        found.append(str(error))
    return found


def _changed_at(place: Path) -> tuple[int, int] | None:
    """Return a value that changes if a directory is replaced; None if there is none."""
    try:
        at = place.stat()
    except OSError:
        return None
    return at.st_ino, at.st_mtime_ns


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
        place = segment.path if segment else store.reports_dir / report_id
        check = (
            partial(_segment_faults, segment)
            if segment
            else partial(_report_faults, store, report_id)
        )
        fault = next(iter(_settled(store, place, check)), None)
        if fault is not None:
            found[report_id] = f"segment {segment.segment_id}, {fault}" if segment else fault
    return found


def _run_faults(store: Store, run_id: str, known: Container[str]) -> Iterator[str]:
    # What is not in the list may have been added since.
    absent = [report for report in store.run(run_id).reports if report not in known]
    missing = [report for report in absent if not store.has_report(report)]
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
