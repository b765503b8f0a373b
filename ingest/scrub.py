"""Anonymizes a report file, or a whole store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from perfpipe.errors import InputError, StoreError
from perfpipe.ingest.formats import FORMATS
from perfpipe.ingest.inputs import check_unchanged, identify, opened
from perfpipe.ingest.masking import mask, names_in
from perfpipe.manifest import Manifest, StoredTable
from perfpipe.model import tables
from perfpipe.store import Store
from perfpipe.tablewriter import TableWriter

#: Ending of a scrubbed file by format.
ENDINGS = {form.name: form.endings[0] for form in FORMATS.values() if form.scrubber}


def scrub_file(source: Path, target: Path, *known: str) -> list[str]:
    """Write a scrubbed, decompressed copy of a report file; returns what was removed.

    `known` are names to remove in addition to names found in the report.  Raises InputError for a
    format that cannot be scrubbed.
    """
    found = identify(source)
    if found.format not in ENDINGS:
        raise InputError(
            f"{source}: {found.format} cannot be scrubbed (only {', '.join(ENDINGS)} and stores)"
        )
    with opened(found) as readable:
        removed = FORMATS[found.format].scrub(readable.content, target, *known)
        check_unchanged(readable)
        return removed


def scrub_store(source: Store, target: Store) -> int:
    """Write scrubbed copies of all reports into another store; returns their number.

    Report ids do not change: they are digests of the original inputs.
    """
    for manifest in source.manifests():
        if target.has_report(manifest.report_id):
            continue
        names = names_in([manifest.source_path, manifest.facts.command], manifest.facts.host)
        with target.new_report(manifest.report_id) as directory:
            stored = {
                name: _scrub_table(source, manifest, name, directory, names)
                for name in manifest.tables
            }
            facts = manifest.facts
            command = None if facts.command is None else mask(facts.command, names)
            scrubbed = replace(
                manifest,
                source_name=mask(manifest.source_name, names),
                source_path=mask(manifest.source_name, names),
                facts=replace(facts, host=None, command=command),
                warnings=tuple(mask(text, names) for text in manifest.warnings),
                tables=stored,
            )
            target.publish(directory, scrubbed)
    return len(source.report_ids())


def _scrub_table(
    source: Store, manifest: Manifest, name: str, directory: Path, names: frozenset[str]
) -> StoredTable:
    table = tables().get(name)
    if table is None:
        path = source.table_path(manifest.report_id, name)
        shutil.copyfile(path, directory / path.name)
        return manifest.tables[name]
    read = 0
    with TableWriter(directory, table, manifest.report_id) as writer:
        for rows in _rows_of(source, manifest.report_id, name):
            read += rows.num_rows
            if name == "nsys_environment":
                host = [value == "Hostname" for value in rows["name"].to_pylist()]
                rows = rows.filter(pa.array([not is_host for is_host in host]))
            columns = {
                column: _scrub_column(column, rows[column], names)
                for column in rows.column_names
                if column != "report_id"
            }
            writer.write(columns, rows.num_rows)
        if read != (stated := manifest.tables[name].rows):
            raise StoreError(
                f"{source.root}: {name} of report {manifest.report_id} has {read:,} rows, "
                f"but the manifest states {stated:,}"
            )
        return writer.close()


def _rows_of(source: Store, report_id: str, name: str) -> Iterator[pa.Table]:
    """Yield the rows of a table of a report, from its own file or from a segment."""
    for segment, held in source.reports_in_segments().items():
        if report_id in held:
            for file in segment.files:
                if file.table == name:
                    path = segment.path / file.file
                    yield pq.read_table(path, filters=[("report_id", "=", report_id)])
            return
    for batch in pq.ParquetFile(source.table_path(report_id, name)).iter_batches():
        yield pa.Table.from_batches([batch])


#: Columns that identify a machine.
_IDENTITY = frozenset({"uuid", "bus_location"})


def _scrub_column(name: str, values: pa.ChunkedArray, names: frozenset[str]) -> pa.Array:
    values = values.combine_chunks()
    if name in _IDENTITY:
        return pa.nulls(len(values), values.type)
    if not pa.types.is_string(values.type):
        return values
    encoded = values.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    masked = [
        None if text is None else mask(text, names) for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(masked, pa.string()).take(encoded.indices)
