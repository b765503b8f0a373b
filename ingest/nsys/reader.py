"""Reads an nsys export into the nsys tables."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from perfpipe.errors import InputError
from perfpipe.ingest.arrays import give_back
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import Columns
from perfpipe.ingest.nsys.convert import OTHERS, start_writing
from perfpipe.ingest.nsys.directory_export import DirectoryExport
from perfpipe.ingest.nsys.door import Door
from perfpipe.ingest.nsys.export import Export
from perfpipe.ingest.nsys.launch_modules import CALLS
from perfpipe.ingest.nsys.launch_modules import TABLE as MODULES
from perfpipe.ingest.nsys.launches import SOURCES, join_launches
from perfpipe.ingest.nsys.metadata import write_environment, write_gpu_metrics, write_gpus
from perfpipe.ingest.nsys.nvtx import ranges_of, start_reading, why_no_ranges
from perfpipe.ingest.nsys.payloads import write_payloads
from perfpipe.ingest.nsys.resolve import Resolver
from perfpipe.ingest.nsys.sqlite_export import SqliteExport
from perfpipe.ingest.nsys.stacks import write_stacks
from perfpipe.ingest.nsys.timeline import RANGES, write_timeline
from perfpipe.ingest.nsys.wholeness import MESSAGES, check_whole
from perfpipe.ingest.source import Input
from perfpipe.scratch import scratch

#: Tables to read concurrently; more would only use more memory.
_THREADS = 2


def read_nsys(builder: ReportBuilder) -> None:
    """Read a SQLite, parquetdir or arrowdir export; the same capture gives the same tables.

    Raises InputError if it is not a complete export.
    """
    with scratch() as directory:
        _read(builder, Columns(directory))


def _read(builder: ReportBuilder, columns: Columns) -> None:
    export = _open(builder.source)
    write_environment(builder, export)
    resolver = Resolver(export)
    devices = write_gpus(builder, export)
    with ThreadPoolExecutor(1) as checking, ThreadPoolExecutor(_THREADS) as pool:
        # SQLite releases the interpreter's lock.
        checked = checking.submit(export.check)
        sources = start_writing(builder, export, resolver, pool, SOURCES)
        ranges_read = start_reading(export, pool)
        others = start_writing(builder, export, resolver, pool, OTHERS)
        for table in sources:
            table.result()
        # Joined while the ranges, often most of the data, are still being read.
        launches = join_launches(builder, columns)
        give_back()
        # Sorted while other tables are read.
        ranges, stacks = ranges_of(ranges_read, resolver, columns)
        for table in others:
            table.result()
        checked.result()
    write_gpu_metrics(builder, export, devices)
    if ranges is None:
        builder.lacks(RANGES, why_no_ranges(export))
    write_payloads(builder, export, ranges)
    write_stacks(builder, export, resolver, stacks)
    write_timeline(builder, launches, ranges)
    _check(builder, export, resolver)
    if builder.source.kind == "modules":
        # Its ranges slow the program down, so it is not a timeline.
        builder.keep_only(MODULES, CALLS)


def _open(source: Input) -> Door:
    """Open a SQLite, parquetdir or arrowdir export.

    Raises InputError if the file is truncated or not an nsys export.
    """
    if source.format in ("nsys-sqlite", "nsys-modules"):
        export: Export = SqliteExport(source.path, source.content)
    else:
        export = DirectoryExport(source.path, source.content)
    if "StringIds" not in export.tables():
        raise InputError(f"{source.path}: not an nsys export (no table StringIds)")
    return Door(export)


def _check(builder: ReportBuilder, export: Door, resolver: Resolver) -> None:
    """Add warnings: lost data, warnings of nsys, hidden work, and a capture without GPU work."""
    export.report(builder)
    rows = export.read(MESSAGES, ["severity", "text"])
    severities, texts = rows["severity"].to_pylist(), rows["text"].to_pylist()
    check_whole(builder, export, texts)
    labels = resolver.labels("ENUM_DIAGNOSTIC_SEVERITY_LEVEL")
    serious = Counter(
        text.strip()
        for severity, text in zip(severities, texts, strict=True)
        if text and labels.get(severity) in ("Warning", "Error")
    )
    for text, count in serious.items():
        builder.warn(f"nsys: {text}" + (f" ({count} times)" if count > 1 else ""))
    stored = builder.stored
    if stored["nsys_graph_launches"].rows:
        builder.warn(
            f"{stored['nsys_graph_launches'].rows:,} CUDA graph launches were traced as a whole; "
            "their kernels are hidden (trace with --cuda-graph-trace=node)"
        )
    elif not stored["launches"].rows:
        builder.warn("the capture has no GPU work")
