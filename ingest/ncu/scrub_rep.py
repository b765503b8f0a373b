"""Writes an anonymized copy of an .ncu-rep.

The parts of a report state their lengths, so texts are replaced by texts of the same length.  They
are found by walking the protobuf structure, since a byte before a text may be a length or a tag
that looks like a letter.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.ingest.masking import mask_bytes, names_in, telling_bytes
from perfpipe.ingest.ncu.container import PAYLOAD_SIZE, read_container
from perfpipe.ingest.ncu.wire import DELIMITED, fields_at, varint

#: How much is read after a sign that a name follows.
_LONGEST_PATH = 200

#: Maximum nesting of messages; anything deeper is text or machine code.
_DEEPEST = 24


def scrub_ncu_rep(source: Path, target: Path, *known: str) -> None:
    """Write a scrubbed copy of a report to `target`.

    Raises InputError if `source` is truncated, or a revealing name would remain.
    """
    container = read_container(source)
    content = bytearray(source.read_bytes())
    names = names_in(_homes(bytes(content)), container.host, *known)
    places = sorted(telling_bytes(bytes(content), names))
    for start, end in _messages(bytes(content)):
        _mask(content, start, end, places, names, 0)
    for name in sorted(names):
        if name.encode() in content:
            raise InputError(f"{source}: '{name}' would remain in the copy; nothing was written")
    target.write_bytes(content)


def _messages(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the places of the messages of a container: header, block headers, payloads."""
    at = 4
    start, at = _prefixed(content, at)
    yield start, at
    while at < len(content):
        start, at = _prefixed(content, at)
        yield start, at
        sizes = [first for f, _, first, _ in fields_at(content, start, at) if f == PAYLOAD_SIZE]
        end = at + (varint(content, sizes[0])[0] if sizes else 0)
        while at < end:
            start, at = _prefixed(content, at)
            yield start, at


def _prefixed(content: bytes, at: int) -> tuple[int, int]:
    (length,) = struct.unpack_from("<I", content, at)
    return at + 4, at + 4 + length


def _mask(
    content: bytearray,
    start: int,
    end: int,
    places: list[int],
    names: frozenset[str],
    depth: int,
) -> None:
    """Mask the texts of a message in place; a field that is not a message is text or code."""
    index = bisect_left(places, start)
    if index == len(places) or places[index] >= end:
        return
    try:
        fields = list(fields_at(bytes(content[start:end]), 0, end - start))
    except (IndexError, ValueError):
        fields = []
    if not fields or depth > _DEEPEST:
        content[start:end] = mask_bytes(bytes(content[start:end]), names)
        return
    for _, kind, first, last in fields:
        if kind == DELIMITED:
            _mask(content, start + first, start + last, places, names, depth + 1)


def _homes(content: bytes) -> list[str]:
    found = []
    for sign in (b"/home/", b"/Users/", b"USER=", b"LOGNAME=", b"HOSTNAME="):
        at = content.find(sign)
        while at >= 0:
            found.append(content[at : at + _LONGEST_PATH].decode("ascii", "replace"))
            at = content.find(sign, at + 1)
    return found
