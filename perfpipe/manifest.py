"""The manifest of a report: its kind, provenance, gaps and warnings."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.decoding import decode
from perfpipe.errors import OtherVersion, StoreError
from perfpipe.jsonfile import read_json, write_json
from perfpipe.model import SCHEMA_VERSION

#: Valid table names, which are also file names.
_TABLE = re.compile(r"[A-Za-z_]\w{0,99}")


@dataclass(frozen=True)
class Missing:
    """A table or column that the input lacks; `column` is empty for a whole table."""

    table: str
    column: str
    reason: str


@dataclass(frozen=True)
class StoredTable:
    """A Parquet file of a report; `schema` is empty in manifests of older versions."""

    rows: int
    bytes: int
    sha256: str
    schema: str = ""

    @classmethod
    def of(cls, path: Path, rows: int, schema: str = "") -> StoredTable:
        """Measure a finished file."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(rows, path.stat().st_size, digest, schema)


@dataclass
class Facts:
    """Facts about the capture; None if the input lacks them.

    `started_ns` is time zero of the report, in ns since 1970 (UTC).
    """

    tool_version: str | None = None
    export_schema: str | None = None
    captured_at: str | None = None
    started_ns: int | None = None
    host: str | None = None
    command: str | None = None
    gpu: str | None = None
    sm_count: int | None = None


@dataclass(frozen=True)
class Manifest:
    """One report: `kind` is ncu, nsys, torch, modules, attached, serving, hang or memory.

    `sha256` is of the decompressed input, `lost_pct` the largest share of lost or damaged rows in
    one of its tables, %.
    `missed_pct` is the share of GPU work that the profiler recorded incorrectly or not at all, %,
    and `missed` says which.
    """

    report_id: str
    kind: str
    format: str
    source_name: str
    source_path: str
    source_bytes: int
    sha256: str
    facts: Facts = field(default_factory=Facts)
    warnings: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    tables: dict[str, StoredTable] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    lost_pct: float = 0.0
    missed_pct: float = 0.0
    missed: str = ""
    schema_version: int = SCHEMA_VERSION

    @property
    def rows(self) -> int:
        """Total rows of all tables."""
        return sum(table.rows for table in self.tables.values())

    def write(self, path: Path) -> None:
        """Write the manifest."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest; StoreError if it is unreadable or has an unknown schema version."""
        return cls.of_record(read_json(path, "report manifest"), path)

    @classmethod
    def of_record(cls, record: dict[str, Any], path: Path) -> Manifest:
        """Return the manifest in a JSON object; errors name `path`."""
        version = record.get("schema_version")
        if version != SCHEMA_VERSION:
            raise OtherVersion(
                f"{path}: schema version {version!r}, but this perfpipe reads {SCHEMA_VERSION}; "
                "ingest the input again with --force, or use the perfpipe version that wrote it"
            )
        try:
            found: Manifest = decode(cls, record)
            if odd := [name for name in found.tables if not _TABLE.fullmatch(name)]:
                raise ValueError(f"{odd[0]!r} is not a table name")
        except ValueError as error:
            raise StoreError(f"{path}: not a complete report manifest ({error})") from error
        return found
