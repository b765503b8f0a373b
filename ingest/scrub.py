"""Scrubs a report file of any kind that perfpipe launches, or a whole store."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.inputs import identify, opened
from ingest.masking import mask, mask_value, names_in
from ingest.ncu.scrub import scrub_ncu_rep
from ingest.nsys.scrub import scrub_sqlite
from perfpipe.errors import InputError
from perfpipe.manifest import Manifest, StoredTable
from perfpipe.model import tables
from perfpipe.store import Store
from perfpipe.tablewriter import TableWriter

#: Ending of a scrubbed file, by the format that it has.
ENDINGS = {"ncu-rep": ".ncu-rep", "nsys-sqlite": ".sqlite", "torch-kineto": ".json"}


def scrub_file(source: Path, target: Path, *known: str) -> list[str]:
    """Write a scrubbed copy of a report file, decompressed; returns what was left out.

    `known` are names to remove beside those that the report itself gives away.  Raises InputError
    for a format of which perfpipe cannot make one.
    """
    with opened(identify(source)) as found:
        if found.format == "nsys-sqlite":
            return scrub_sqlite(found.content, target, *known)
        if found.format == "ncu-rep":
            scrub_ncu_rep(found.content, target, *known)
        elif found.format == "torch-kineto":
            _scrub_kineto(found.content, target, *known)
        else:
            raise InputError(
                f"{source}: {found.format} cannot be scrubbed; {', '.join(ENDINGS)} and stores can"
            )
    return []


def _scrub_kineto(source: Path, target: Path, *known: str) -> None:
    trace = json.loads(source.read_text(encoding="utf-8"))
    if isinstance(trace, dict):
        trace.pop("traceName", None)
    names = names_in([json.dumps(trace)], *known)
    target.write_text(json.dumps(mask_value(trace, names)), encoding="utf-8")


def scrub_store(source: Store, target: Store) -> int:
    """Write scrubbed copies of all reports into another store; returns how many.

    Report ids stay: they are digests of the inputs that the reports came from.
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
    path = source.table_path(manifest.report_id, name)
    table = tables().get(name)
    if table is None:
        shutil.copyfile(path, directory / path.name)
        return manifest.tables[name]
    with TableWriter(directory, table, manifest.report_id) as writer:
        for batch in pq.ParquetFile(path).iter_batches():
            rows = pa.Table.from_batches([batch])
            if name == "nsys_environment":
                host = [value == "Hostname" for value in rows["name"].to_pylist()]
                rows = rows.filter(pa.array([not is_host for is_host in host]))
            columns = {
                column: _scrub_column(column, rows[column], names)
                for column in rows.column_names
                if column != "report_id"
            }
            writer.write(columns, rows.num_rows)
        return writer.close()


#: Columns that tell one machine from another.
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
