"""Converts tables of an export: probes columns, resolves ids, keeps time order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, Future
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.nsys.door import Door
from perfpipe.ingest.nsys.launches import SOURCES
from perfpipe.ingest.nsys.mappings import MAPPINGS, STRING, From, Mapping
from perfpipe.ingest.nsys.resolve import Resolver, ascending, pid_of, tid_of
from perfpipe.model import tables
from perfpipe.tablewriter import TableWriter

Batch = dict[str, pa.Array]

#: Tables that no other table is made from.
OTHERS = frozenset(mapping.table for mapping in MAPPINGS) - SOURCES

#: What CUPTI writes for "no stream" and "no event".
_NONE_ID = 0xFFFFFFFF

_API_KINDS = {"CUDA runtime": "runtime", "CUDA driver": "driver"}


class _Unsorted(Exception):
    """The rows of the file are not in time order."""


def start_writing(
    builder: ReportBuilder,
    export: Door,
    resolver: Resolver,
    pool: Executor,
    names: Collection[str],
) -> list[Future[None]]:
    """Start writing some tables of MAPPINGS; a table without rows becomes a gap with its reason.

    Uses threads, since the readers and the Parquet writer release the interpreter's lock.
    """
    wanted = (mapping for mapping in MAPPINGS if mapping.table in names)
    groups = [list(group) for _, group in groupby(wanted, key=lambda m: m.table)]
    return [pool.submit(_write_table, builder, export, resolver, group) for group in groups]


def _write_table(
    builder: ReportBuilder, export: Door, resolver: Resolver, mappings: list[Mapping]
) -> None:
    present = [m for m in mappings if export.has_rows(m.source)]
    if not present:
        builder.lacks(mappings[0].table, _reason(export, mappings[0]))
        builder.write(mappings[0].table, {}, 0)
        return
    for mapping in present:
        _state_missing_columns(builder, export, mapping)
    if len(present) == 1:
        _stream(builder, export, resolver, present[0])
    else:
        _merge(builder, export, resolver, present)


def _reason(export: Door, mapping: Mapping) -> str:
    there = mapping.source in export.tables()
    state = "is empty" if there else "is not in the export"
    return f"{mapping.source} {state}" + (f"; {mapping.hint}" if mapping.hint else "")


def _state_missing_columns(builder: ReportBuilder, export: Door, mapping: Mapping) -> None:
    there = export.columns(mapping.source)
    for name, origin in mapping.columns.items():
        if origin.column not in there:
            reason = f"{mapping.source} in this export has no column {origin.column}"
            builder.lacks(mapping.table, reason, name)


def _stream(builder: ReportBuilder, export: Door, resolver: Resolver, mapping: Mapping) -> None:
    """Write in file order if that is time order, as usual for nsys; else sort first."""
    try:
        with builder.table(mapping.table) as writer:
            last = None
            for batch in _batches(export, resolver, mapping, ()):
                if mapping.timed:
                    times = batch["start_ns"]
                    if not ascending(times, last):
                        raise _Unsorted
                    last = times[-1].as_py()
                _write(writer, batch)
    except _Unsorted:
        with builder.table(mapping.table) as writer:
            for batch in _batches(export, resolver, mapping, _order(export, mapping)):
                _write(writer, batch)


def _merge(
    builder: ReportBuilder, export: Door, resolver: Resolver, mappings: list[Mapping]
) -> None:
    """Write several sources as one table in time order."""
    key = ("start_ns", "end_ns", "pid", "correlation_id")
    parts = [
        _as_table(mapping, batch)
        for mapping in mappings
        for batch in _batches(export, resolver, mapping, _order(export, mapping))
    ]
    if not parts:
        builder.write(mappings[0].table, {}, 0)
        return
    whole = pa.concat_tables(parts, promote_options="default")
    sorted_rows = whole.sort_by([(k, "ascending") for k in key if k in whole.column_names])
    with builder.table(mappings[0].table) as writer:
        for batch in sorted_rows.combine_chunks().to_batches():
            _write(writer, dict(zip(batch.schema.names, batch.columns, strict=True)))


def _as_table(mapping: Mapping, batch: Batch) -> pa.Table:
    """Return a batch with the plain types of the data model, so that parts match."""
    schema = tables()[mapping.table].schema
    return pa.table({name: column.cast(schema.field(name).type) for name, column in batch.items()})


def _write(writer: TableWriter, batch: Batch) -> None:
    writer.write(batch, len(next(iter(batch.values()))))


def _order(export: Door, mapping: Mapping) -> tuple[str, ...]:
    there = export.columns(mapping.source)
    return tuple(column for column in mapping.order if column in there)


def _batches(
    export: Door, resolver: Resolver, mapping: Mapping, order: tuple[str, ...]
) -> Iterator[Batch]:
    there = export.columns(mapping.source)
    wanted = {n: origin for n, origin in mapping.columns.items() if origin.column in there}
    needed = list(dict.fromkeys(origin.column for origin in wanted.values()))
    if order == () and not mapping.timed:
        order = _order(export, mapping)
    unknown = {o.column: 0 for o in wanted.values() if o.how == STRING}
    for rows in export.scan(mapping.source, needed, order):
        batch = {n: _column(rows.column(o.column), o, resolver) for n, o in wanted.items()}
        for name, origin in wanted.items():
            if origin.how == STRING:
                unknown[origin.column] += resolver.unknown(batch[name])
        if mapping.timed:
            batch["dur_ns"] = pc.subtract(batch["end_ns"], batch["start_ns"])
        for name, value in mapping.constants:
            batch[name] = pa.repeat(pa.scalar(value), rows.num_rows)
        _finish(mapping, batch)
        yield batch
    for column, count in unknown.items():
        export.note(mapping.source, f"have a {column} that is not in StringIds", count)


def _column(values: pa.Array, origin: From, resolver: Resolver) -> pa.Array:
    match origin.how:
        case "pid":
            return pid_of(values)
        case "tid":
            return tid_of(values)
        case "string":
            return resolver.strings(values)
        case "api":
            return resolver.api_names(values)
        case "enum":
            return resolver.enum(values, origin.enum)
        case "id":
            return pc.if_else(pc.equal(values, _NONE_ID), pa.scalar(None, pa.int64()), values)
        case _:
            return values


def _finish(mapping: Mapping, batch: Batch) -> None:
    """Spell enum labels as the data model does."""
    if mapping.source == "CUPTI_ACTIVITY_KIND_MEMCPY" and "operation" in batch:
        batch["operation"] = _relabel(batch["operation"], lambda kind: f"[CUDA memcpy {kind}]")
    elif mapping.source == "CUPTI_ACTIVITY_KIND_RUNTIME" and "api" in batch:
        batch["api"] = _relabel(batch["api"], lambda kind: _API_KINDS.get(kind, kind.lower()))


def _relabel(labels: pa.DictionaryArray, spell: Callable[[str], str]) -> pa.DictionaryArray:
    renamed = [None if label is None else spell(label) for label in labels.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(labels.indices, pa.array(renamed, pa.string()))
