"""The data model: stored tables and their columns, read from tables_*.toml."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: Version of the tables and of the manifest; readers reject any other version.
SCHEMA_VERSION = 1

_PARTS = ("ncu", "nsys", "mpi", "torch", "host", "modules", "serving", "hangs", "snapshot")


@dataclass(frozen=True)
class Column:
    """A column: `type` is string, int64 or double; `doc` is its meaning, with the unit."""

    name: str
    type: str
    doc: str


@dataclass(frozen=True)
class Table:
    """A stored table; the first column is always `report_id`."""

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @cached_property
    def signature(self) -> str:
        """Signature that files with exactly these columns store as their schema."""
        return schema_signature([(column.name, column.type) for column in self.columns])

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema with the schema version in its metadata."""
        import pyarrow as pa

        types = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64()}
        fields = [pa.field(column.name, types[column.type]) for column in self.columns]
        return pa.schema(fields, metadata={b"perfpipe.schema_version": b"%d" % SCHEMA_VERSION})


def schema_signature(columns: Sequence[tuple[str, str]]) -> str:
    """Return a signature of the names, types and order of columns."""
    text = ",".join(f"{name} {kind}" for name, kind in columns)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def tables() -> MappingProxyType[str, Table]:
    """Return the stored tables by name, in the order of tables_*.toml."""
    folder = resources.files("perfpipe")
    texts = [folder.joinpath(f"tables_{part}.toml").read_text("utf-8") for part in _PARTS]
    report = Column("report_id", "string", "report that the row comes from")
    return MappingProxyType(
        {
            name: Table(
                name,
                spec["doc"],
                ("report_id", *spec["key"]),
                (report, *(Column(*column) for column in spec["columns"])),
            )
            for text in texts
            for name, spec in tomllib.loads(text).items()
        }
    )


def public_name(table: str) -> str:
    """Return what users call a stored table: those of timelines name no tool (kernels).

    Files of a store, and SQL of older versions, have the name with nsys_.
    """
    return table.removeprefix("nsys_")


@cache
def aliases() -> MappingProxyType[str, str]:
    """Return the stored tables whose public name is another one, by that name."""
    return MappingProxyType(
        {public_name(name): name for name in tables() if public_name(name) != name}
    )
