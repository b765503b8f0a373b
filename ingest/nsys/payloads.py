"""Payloads of NVTX ranges, decoded with the schemas in the export."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.nsys.export import Export
from perfpipe.ingest.nsys.ranges import Ranges

TABLE = "nsys_nvtx_payloads"

#: Header that an export writes before each payload: domain, schema, bytes, offset.
_HEADER = struct.Struct("<4Q")

#: Entry types of nvToolsExtPayload.h with a single value: type number -> struct format.
_FORMATS = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q",
    11: "b", 12: "B", 13: "h", 14: "H", 15: "i", 16: "I", 17: "q", 18: "Q",
    19: "f", 20: "d", 22: "Q", 23: "Q",
}  # fmt: skip

#: Struct formats of enums by their size in bytes.
_ENUMS = {1: "b", 2: "h", 4: "i", 8: "q"}


@dataclass(frozen=True)
class _Entry:
    name: str
    offset: int
    value: struct.Struct
    labels: dict[int, str]


Schemas = dict[tuple[int, int], list[_Entry]]


def write_payloads(builder: ReportBuilder, export: Export, ranges: Ranges | None) -> None:
    """Write nsys_nvtx_payloads in the order of their ranges."""
    schemas = _schemas(export)
    column: dict[str, list[object]] = {"range_id": [], "field": [], "value": [], "text": []}
    for range_id, content in (ranges.payloads if ranges else {}).items():
        for values in _decoded(content, schemas):
            for name, item in zip(column, (range_id, *values), strict=True):
                column[name].append(item)
    if not column["field"]:
        reason = "no payloads in NVTX_EVENTS; export with nsys export --include-blobs=true"
        builder.lacks(TABLE, reason)
    builder.write(TABLE, column, len(column["field"]))


def has_payload_schemas(export: Export) -> bool:
    """Return whether payloads can be decoded, and so are worth reading."""
    return export.has_rows("NVTX_PAYLOAD_SCHEMA_ENTRIES") and "binaryData" in export.columns(
        "NVTX_EVENTS"
    )


def _schemas(export: Export) -> Schemas:
    """Return (domain, schema) -> entries; only entries with a single value are included."""
    labels: dict[tuple[int, int], dict[int, str]] = {}
    columns = ["domainId", "schemaId", "name", "value"]
    for domain, schema, label, number in _rows(export, "NVTX_PAYLOAD_ENUM_ENTRIES", columns):
        labels.setdefault((domain, schema), {})[number or 0] = label
    sizes: dict[tuple[int, int], int] = {}
    for domain, schema, size in _rows(
        export, "NVTX_PAYLOAD_ENUMS", ["domainId", "schemaId", "size"]
    ):
        sizes[domain, schema] = size
    schemas: Schemas = {}
    columns = ["domainId", "schemaId", "type", "name", "offset"]
    for domain, schema, kind, name, offset in _rows(export, "NVTX_PAYLOAD_SCHEMA_ENTRIES", columns):
        known = labels.get((domain, kind), {})
        code = _ENUMS.get(sizes.get((domain, kind), 4)) if known else _FORMATS.get(kind)
        if code and name:
            entry = _Entry(name, offset or 0, struct.Struct("<" + code), known)
            schemas.setdefault((domain, schema), []).append(entry)
    return schemas


def _rows(export: Export, table: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    rows = export.read(table, columns)
    return zip(*(rows[c].to_pylist() for c in columns), strict=True)


def _decoded(content: bytes | str, schemas: Schemas) -> Iterator[tuple[str, float, str]]:
    """Yield field, number and text; nothing for a truncated or unknown payload."""
    try:
        raw = bytes.fromhex(content) if isinstance(content, str) else content
    except ValueError:
        return
    if len(raw) < _HEADER.size:
        return
    domain, schema, size, offset = _HEADER.unpack_from(raw)
    room = min(size, len(raw) - offset)
    for entry in schemas.get((domain, schema), ()):
        if entry.offset + entry.value.size <= room:
            (number,) = entry.value.unpack_from(raw, offset + entry.offset)
            yield entry.name, float(number), entry.labels.get(number, str(number))
