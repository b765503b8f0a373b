r"""Walks the container of an .ncu-rep, which NVIDIA documents in its Customization Guide.

A report is `NVR\0`, a header, then blocks: a length-prefixed protobuf BlockHeader and a payload of
length-prefixed messages, code before results.  The vendor's reader accepts a truncated file and
silently returns fewer launches, and it does not return the process; here, both are read from the
block headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from perfpipe.errors import InputError
from perfpipe.ingest.ncu.wire import Fields, content, fields, number, text

MAGIC = b"NVR\0"

_LARGEST = 1 << 30

#: Minimum bytes of a piece of code and of a result, including the length: a result has the name of
#: its function, its grid and its metrics.
_LEAST_CODE, _LEAST_RESULT = 4, 20

#: The end of the year 9999, s since 1970.
_LAST_SECOND = 253_402_300_800

# Field numbers of BlockHeader.
SOURCES, _RESULTS, _SESSION, STRINGS, PAYLOAD_SIZE, PROCESS = 1, 2, 3, 4, 5, 6
_RANGES, _CMDLISTS, _GRAPHS = 7, 8, 9

#: Field of the session with the command line of ncu itself.
_COMMAND = 11


@dataclass(frozen=True)
class Kind:
    """A kind of result: the field of a header that counts it, and field numbers of its message."""

    count: int
    metrics: int
    sections: int
    code: int


KERNELS = Kind(_RESULTS, metrics=13, sections=17, code=15)

#: In the order in which a payload has them.
KINDS = (
    KERNELS,
    Kind(_RANGES, metrics=4, sections=7, code=15),
    Kind(_CMDLISTS, metrics=4, sections=7, code=17),
    Kind(_GRAPHS, metrics=4, sections=7, code=17),
)


@dataclass(frozen=True)
class Block:
    """A block: its header, the place of its payload, and the kinds of its messages, in order.

    A kind is a kind of result, or None for code.
    """

    header: bytes
    start: int
    end: int
    contents: tuple[Kind | None, ...]


@dataclass
class Container:
    """The blocks, and the content of their headers: texts, process of each result, session.

    `name` is the user's name of the file at `path`.
    """

    path: Path
    name: Path
    header: bytes = b""
    blocks: list[Block] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    process_ids: list[int | None] = field(default_factory=list)
    host: str | None = None
    executable: str | None = None
    command: str | None = None
    created_at: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def messages(self, file: IO[bytes], block: Block) -> Iterator[tuple[Kind | None, int, bytes]]:
        """Yield the messages of a block: kind (None is code), place, content."""
        at = block.start
        for kind in block.contents:
            message = self.message(file, at)
            yield kind, at, message
            at += 4 + len(message)
            if at > block.end:
                raise InputError(f"{self.name}: the report is damaged (a block is too short)")

    def message(self, file: IO[bytes], place: int) -> bytes:
        """Return the message at a place of the report."""
        file.seek(place)
        return _length_prefixed(file, self.name)


def read_container(path: Path, name: Path | None = None) -> Container:
    """Read the block headers; raises InputError if a block is truncated."""
    name = name or path
    container = Container(path, name)
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(len(MAGIC))
        container.header = _length_prefixed(file, name)
        while file.tell() < size:
            message = _length_prefixed(file, name)
            header = fields(message)
            start = file.tell()
            end = start + number(header.get(PAYLOAD_SIZE))
            if end > size:
                raise InputError(
                    f"{name}: the report is truncated (a block ends {end - size:,} bytes "
                    "past the end of the file); copy it again"
                )
            least = number(header.get(SOURCES)) * _LEAST_CODE
            least += sum(number(header.get(kind.count)) for kind in KINDS) * _LEAST_RESULT
            if least > end - start:
                raise InputError(f"{name}: the report is damaged (a block is too short)")
            container.blocks.append(Block(message, start, end, _contents(header)))
            _add_block(container, header)
            file.seek(end)
    return container


def _contents(header: Fields) -> tuple[Kind | None, ...]:
    found: list[Kind | None] = [None] * number(header.get(SOURCES))
    for kind in KINDS:
        found += [kind] * number(header.get(kind.count))
    return tuple(found)


def _add_block(container: Container, header: Fields) -> None:
    process = fields(content(header.get(PROCESS)))
    pid = number(process.get(1)) or None
    container.process_ids += [pid] * sum(number(header.get(kind.count)) for kind in KINDS)
    container.host = container.host or text(process.get(2))
    container.executable = container.executable or text(process.get(3))
    for string in fields(content(header.get(STRINGS))).get(1, []):
        container.strings.append(text([string]) or "")
    session = fields(content(header.get(_SESSION)))
    container.command = container.command or text(session.get(_COMMAND))
    container.created_at = container.created_at or _stamp(number(session.get(2)))
    for entry in session.get(8, []):
        pair = fields(content([entry]))
        name, value = text(pair.get(1)), text(pair.get(2))
        if name and value:
            container.versions[name] = value


def _stamp(seconds: int) -> str | None:
    """Return a time as text; None if it is missing or impossible."""
    if not 0 < seconds < _LAST_SECOND:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _length_prefixed(file: IO[bytes], name: Path) -> bytes:
    head = file.read(4)
    length = struct.unpack("<I", head)[0] if len(head) == 4 else _LARGEST + 1
    body = file.read(length) if length <= _LARGEST else b""
    if length > _LARGEST or len(body) < length:
        raise InputError(f"{name}: the report is truncated or damaged")
    return body
