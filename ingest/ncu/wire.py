"""Protobuf wire encoding, as far as it can be decoded without message definitions."""

from __future__ import annotations

from collections.abc import Iterator

#: Wire types: a number of varying length, and bytes whose length stands before them.
VARINT, DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}


def fields_at(message: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, wire type, start, end) of each value between two places.

    Raises ValueError or IndexError where the bytes are no message.
    """
    at = start
    while at < end:
        key, at = varint(message, at)
        kind = key & 7
        if kind == VARINT:
            _, after = varint(message, at)
        elif kind == DELIMITED:
            length, at = varint(message, at)
            after = at + length
        elif kind in _FIXED:
            after = at + _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if after > end or not key >> 3:
            raise IndexError
        yield key >> 3, kind, at, after
        at = after


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of varying length, and where it ends; IndexError where it does not."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
