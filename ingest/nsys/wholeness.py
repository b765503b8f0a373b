"""Detects exports that nsys had not finished when they were copied.

nsys writes one table after another.  SQLite finds no damage in a copy that was taken in between, so
the tables are compared with each other, and with what nsys says that it collected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.nsys.columns import EXPORT_META
from perfpipe.ingest.nsys.door import Door

#: Messages of nsys on what it did.
MESSAGES = "DIAGNOSTIC_EVENT"

_PROCESSES = "PROCESSES"
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"

_RANGES = "NVTX_EVENTS"

#: nsys prints this for each process.
_COLLECTED = re.compile(r"Number of NVTX events collected:\s*(\d+)")


def check_whole(builder: ReportBuilder, export: Door, messages: Iterable[str | None]) -> None:
    """Refuse an export that lacks what nsys writes last, and warn of tables that lack all rows.

    `messages` are those of nsys, from the table MESSAGES.
    """
    if missing := next(_missing(export), None):
        builder.cut(f"the export is incomplete: {missing}; export the report again")
    elif not _described(export):
        builder.warn(
            f"the export has no {EXPORT_META[0]}: it is incomplete, or of an early release"
        )
    if MESSAGES in export.tables() and not export.has_rows(MESSAGES):
        builder.warn(f"the export may be incomplete: it has no messages of nsys in {MESSAGES}")
    collected = sum(int(n) for text in messages for n in _COLLECTED.findall(text or ""))
    if collected and not export.has_rows(_RANGES):
        builder.warn(
            f"the export is incomplete: nsys collected {collected:,} NVTX events, "
            f"but {_RANGES} has no rows"
        )
    if export.has_rows("TARGET_INFO_GPU_METRICS") and not export.has_rows("GPU_METRICS"):
        builder.warn(
            "the export is incomplete: GPU_METRICS has no rows, although nsys sampled GPUs"
        )


def _missing(export: Door) -> Iterator[str]:
    """Yield what is missing in an unfinished export."""
    tables = export.tables()
    if _PROCESSES in tables and not export.has_rows(_PROCESSES):
        yield f"{_PROCESSES} has no rows, and nsys writes it after the events"
    if any(table.startswith("ENUM_") for table in tables) and not _described(export):
        yield f"it has no {EXPORT_META[0]}, which every export with labels has"
    if export.has_rows(_KERNELS) and not export.has_rows(_CALLS):
        yield f"{_KERNELS} has rows, but {_CALLS} with the calls that launched them has none"


def _described(export: Door) -> bool:
    return any(export.has_rows(table) for table in EXPORT_META)
