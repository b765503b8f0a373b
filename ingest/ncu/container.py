r"""Walks the container of an .ncu-rep, which NVIDIA documents in its Customization Guide.

A report is `NVR\0`, a header, then blocks: a length-prefixed protobuf BlockHeader and a payload.
The vendor's reader accepts a truncated file and silently gives fewer launches, and it
does not tell the process; both are read here from the block headers alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from ingest.ncu.wire import VARINT, fields_at, varint
from perfpipe.errors import InputError

_LARGEST_HEADER = 1 << 30

# Field numbers of BlockHeader.
_RESULTS, _SESSION, PAYLOAD_SIZE, _PROCESS = 2, 3, 5, 6


@dataclass
class Container:
    """The content of the block headers: the process of each result, in order, and the session."""

    process_ids: list[int | None] = field(default_factory=list)
    host: str | None = None
    executable: str | None = None
    created_at: str | None = None
    versions: dict[str, str] = field(default_factory=dict)


def read_container(path: Path) -> Container:
    """Read the block headers; raises InputError if a block is truncated."""
    container = Container()
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(4)
        _length_prefixed(file, path)
        while file.tell() < size:
            header = _fields(_length_prefixed(file, path))
            _add_block(container, header)
            end = file.tell() + _number(header.get(PAYLOAD_SIZE))
            if end > size:
                raise InputError(
                    f"{path}: the report is truncated (a block ends {end - size:,} bytes "
                    "past the end of the file); copy it again"
                )
            file.seek(end)
    return container


def _add_block(container: Container, header: dict[int, list[int | bytes]]) -> None:
    process = _fields(_bytes(header.get(_PROCESS)))
    pid = _number(process.get(1)) or None
    container.process_ids += [pid] * _number(header.get(_RESULTS))
    container.host = container.host or _text(process.get(2))
    container.executable = container.executable or _text(process.get(3))
    session = _fields(_bytes(header.get(_SESSION)))
    if created := _number(session.get(2)):
        stamp = datetime.fromtimestamp(created, UTC)
        container.created_at = container.created_at or stamp.strftime("%Y-%m-%dT%H:%M:%SZ")
    for entry in session.get(8, []):
        pair = _fields(entry if isinstance(entry, bytes) else b"")
        name, value = _text(pair.get(1)), _text(pair.get(2))
        if name and value:
            container.versions[name] = value


def _length_prefixed(file: IO[bytes], path: Path) -> bytes:
    head = file.read(4)
    length = struct.unpack("<I", head)[0] if len(head) == 4 else _LARGEST_HEADER + 1
    body = file.read(length) if length <= _LARGEST_HEADER else b""
    if length > _LARGEST_HEADER or len(body) < length:
        raise InputError(f"{path}: the report is truncated or damaged")
    return body


def _fields(message: bytes) -> dict[int, list[int | bytes]]:
    """Decode one level of a protobuf message: field number -> values."""
    found: dict[int, list[int | bytes]] = {}
    try:
        for number, kind, start, end in fields_at(message, 0, len(message)):
            value = varint(message, start)[0] if kind == VARINT else message[start:end]
            found.setdefault(number, []).append(value)
    except (IndexError, ValueError):
        return {}
    return found


def _number(values: list[int | bytes] | None) -> int:
    return next((v for v in values or [] if isinstance(v, int)), 0)


def _bytes(values: list[int | bytes] | None) -> bytes:
    return next((v for v in values or [] if isinstance(v, bytes)), b"")


def _text(values: list[int | bytes] | None) -> str | None:
    return _bytes(values).decode("utf-8", "replace") or None
