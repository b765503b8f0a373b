"""Checks the integrity of a store."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.errors import StoreError
from perfpipe.manifest import Manifest, StoredTable
from perfpipe.model import SCHEMA_VERSION, tables
from perfpipe.store import Store


def verify(store: Store) -> Iterator[tuple[str, str | None]]:
    """Yield (report or run id, fault); the fault is None for each intact one.

    Each table must be there with the size, checksum, rows, columns and schema version that the
    manifest and the data model state.
    """
    for report_id in store.report_ids():
        faults: list[str | None]
        try:
            faults = list(_report_faults(store, store.manifest(report_id)))
        except StoreError as error:
            faults = [str(error)]
        yield from ((report_id, fault) for fault in faults or [None])
    for run_id in store.run_ids():
        try:
            missing = [r for r in store.run(run_id).reports if not store.has_report(r)]
        except StoreError as error:
            yield run_id, str(error)
        else:
            yield run_id, f"refers to missing reports: {', '.join(missing)}" if missing else None


def _report_faults(store: Store, manifest: Manifest) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, stated in manifest.tables.items():
        path = store.table_path(manifest.report_id, name)
        if not path.is_file():
            yield f"{name}: the table is missing"
            continue
        if StoredTable.of(path, stated.rows) != stated:
            yield f"{name}: size or checksum differs from the manifest"
            continue
        try:
            file = pq.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            yield f"{name}: not readable as Parquet ({error})"
            continue
        version = (file.metadata.metadata or {}).get(b"perfpipe.schema_version", b"").decode()
        if version != str(SCHEMA_VERSION):
            yield f"{name}: schema version {version or 'not stated'}, expected {SCHEMA_VERSION}"
        if file.metadata.num_rows != stated.rows:
            yield f"{name}: {file.metadata.num_rows} rows, the manifest states {stated.rows}"
        if name in tables() and file.schema_arrow.names != tables()[name].schema.names:
            yield f"{name}: other columns than the data model"
