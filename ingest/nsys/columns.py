"""Types and value ranges of the columns of an nsys export.

A value of another type, or outside its range, is read as NULL; a row without a required value is
skipped.  Both are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from perfpipe.ingest.nsys.mappings import MAPPINGS

#: The table about the export, and its name before nsys 2023.3.
EXPORT_META = ("META_DATA_EXPORT", "EXPORT_META_DATA")

#: Kinds of columns.  COUNT: an integer, 0 or more; TIME: ns; BLOB: bytes or hexadecimal digits.
INT, COUNT, TIME, NUMBER, TEXT, BLOB = "int", "count", "time", "number", "text", "blob"

TYPES = {
    INT: pa.int64(),
    COUNT: pa.int64(),
    TIME: pa.int64(),
    NUMBER: pa.float64(),
    TEXT: pa.string(),
}

#: Description of a value that a column of each kind does not accept.
NOT = {
    INT: "not an integer",
    COUNT: "not a size",
    TIME: "not a time",
    NUMBER: "not a number",
    TEXT: "not text",
    BLOB: "neither bytes nor hexadecimal digits",
}

#: Largest count; floating-point numbers cannot represent all larger integers.
MOST = 2**53

#: Largest absolute time, ns: far above clocks that count from 1970, and twice this value still fits
#: in 64 bits.
LATEST_NS = 4 * 10**18

#: The longest operation, call or range, ns: a year.
LONGEST_NS = 366 * 86_400 * 10**9

_TEXTS = frozenset(
    "name label text uuid chipName busLocation utcTime members metricName function file".split()
)
#: Tables in which `value` is text.
_TEXT_VALUES = frozenset(("StringIds", "TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", *EXPORT_META))
_TIMES = frozenset(("start", "end", "timestamp"))
_COUNTS = frozenset(
    "bytes size recvSize offset gridX gridY gridZ blockX blockY blockZ registersPerThread "
    "staticSharedMemory dynamicSharedMemory sharedMemoryExecuted localMemoryPerThread smCount "
    "clockRate totalMemory memoryBandwidth l2CacheSize maxWarpsPerSm maxShmemPerSm "
    "maxRegistersPerSm computeMajor computeMinor localMemoryPoolSize "
    "localMemoryPoolUtilizedSize".split()
)

#: Tables of work on GPUs, which always ends before the export is made.
_ON_GPU = tuple(
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "GRAPH_TRACE")
)

#: The one of these tables whose rows are intervals on the host.
_SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"

#: Tables of intervals.
TIMED = frozenset(mapping.source for mapping in MAPPINGS if mapping.timed)

#: Required columns of tables without a mapping.
_NEEDED = (
    {
        "StringIds": ("id",),
        "NVTX_EVENTS": ("start", "globalTid", "eventType"),
        "GPU_METRICS": ("timestamp", "typeId", "metricId"),
        "TARGET_INFO_GPU_METRICS": ("typeId", "metricId", "metricName"),
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": ("domainId", "schemaId", "type"),
        "NVTX_PAYLOAD_ENUM_ENTRIES": ("domainId", "schemaId"),
        "NVTX_PAYLOAD_ENUMS": ("domainId", "schemaId"),
        "TARGET_INFO_SYSTEM_ENV": ("name",),
        "META_DATA_CAPTURE": ("name",),
        "DIAGNOSTIC_EVENT": ("text",),
        "CUDA_GPU_MEMORY_USAGE_EVENTS": ("start", "address", "bytes", "memoryOperationType"),
        "PERFPIPE_HOST_SAMPLES": ("start", "end", "pid", "tid", "stackId"),
        "PERFPIPE_HOST_FRAMES": ("stackId", "depth", "function"),
    }
    | dict.fromkeys(EXPORT_META, ("name",))
    | dict.fromkeys(TIMED, ("start",))
)


@dataclass(frozen=True)
class Rules:
    """The rules of a table.

    The table must have `columns`; a row must have a value in every `needed` column; `ends` means
    that every row has an end, and `runs` that rows are operations of GPUs.
    """

    columns: tuple[str, ...]
    needed: tuple[str, ...]
    ends: bool
    runs: bool


def rules_of(table: str) -> Rules:
    """Return the rules of a table of an export."""
    needed = _NEEDED.get(table, ("id",) if table.startswith("ENUM_") else ())
    timed = table in TIMED or table == "NVTX_EVENTS"
    columns = (*needed, "end") if timed else needed
    return Rules(columns, needed, table in _ON_GPU, table in _ON_GPU and table != _SYNCS)


def kind_of(table: str, column: str) -> str:
    """Return the kind of a column."""
    if column == "value":
        if table in _TEXT_VALUES:
            return TEXT
        return NUMBER if table == "GPU_METRICS" else INT
    if column in _TEXTS:
        return TEXT
    if column == "binaryData":
        return BLOB
    if column in _TIMES:
        return TIME
    return COUNT if column in _COUNTS else INT


def type_of(table: str, column: str) -> pa.DataType:
    """Return the type for reading a column, null for bytes."""
    return TYPES.get(kind_of(table, column), pa.null())
