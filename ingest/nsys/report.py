"""Reads an nsys export into the nsys tables."""

from __future__ import annotations

from collections import Counter

from ingest.builder import ReportBuilder
from ingest.nsys.attribution import write_call_ranges
from ingest.nsys.convert import write_mapped_tables
from ingest.nsys.export import Export, open_export
from ingest.nsys.launches import write_launches
from ingest.nsys.metadata import write_environment, write_gpu_metrics, write_gpus
from ingest.nsys.nvtx import write_nvtx
from ingest.nsys.resolve import Resolver


def read_nsys(builder: ReportBuilder) -> None:
    """Read an SQLite, parquetdir or arrowdir export; the same capture gives the same tables.

    Raises InputError when it is no whole export.
    """
    export = open_export(builder.source)
    write_environment(builder, export)
    resolver = Resolver(export)
    devices = write_gpus(builder, export)
    write_mapped_tables(builder, export, resolver)
    write_nvtx(builder, export, resolver)
    write_gpu_metrics(builder, export, devices)
    write_launches(builder)
    write_call_ranges(builder)
    _check(builder, export)


def _check(builder: ReportBuilder, export: Export) -> None:
    """Warn of what nsys says about the capture, of hidden work, and of a capture without any."""
    for note in export.notes:
        builder.warn(f"{note}; they were read as NULL")
    enum = export.read("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", ["id", "label"])
    labels = dict(zip(enum["id"].to_pylist(), enum["label"].to_pylist(), strict=True))
    rows = export.read("DIAGNOSTIC_EVENT", ["severity", "text"])
    serious = Counter(
        text.strip()
        for severity, text in zip(*(rows[c].to_pylist() for c in rows.column_names), strict=True)
        if labels.get(severity) in ("Warning", "Error")
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
        builder.warn("the capture holds no GPU work")
