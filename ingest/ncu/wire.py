"""Protobuf wire encoding, as far as it can be decoded without message definitions."""

from __future__ import annotations

from collections.abc import Iterator

#: Wire types: varint, bytes with a length prefix, 8 bytes and 4 bytes.
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}

Value = int | bytes

#: Start and end of a value.
Extent = tuple[int, int]

#: One level of a message: the values of each field by field number.
Fields = dict[int, list[Value]]


def fields_at(message: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, wire type, start, end) of each value between two places.

    Raises ValueError or IndexError if the bytes are not a message.
    """
    at = start
    while at < end:
        # Most keys and lengths have one byte.
        key = message[at]
        key, at = (key, at + 1) if key < 0x80 else varint(message, at)
        kind = key & 7
        if kind == DELIMITED:
            length = message[at]
            length, at = (length, at + 1) if length < 0x80 else varint(message, at)
            after = at + length
        elif kind == VARINT:
            _, after = varint(message, at)
        elif kind in _FIXED:
            after = at + _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if after > end or key < 8:
            raise IndexError("a field is longer than its message")
        yield key >> 3, kind, at, after
        at = after


#: Bits of a varint: ten bytes of seven bits.
_BITS = 70


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a varint, and where it ends.

    Raises IndexError if the message ends before it, ValueError if it is too long.
    """
    value = message[at]
    at += 1
    if value < 0x80:
        return value, at
    value, shift = value & 0x7F, 7
    while shift < _BITS:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than ten bytes")


def fields(message: bytes) -> Fields:
    """Decode one level of a message; empty if the bytes are not a message."""
    found: Fields = {}
    try:
        for number, kind, start, end in fields_at(message, 0, len(message)):
            value = varint(message, start)[0] if kind == VARINT else message[start:end]
            found.setdefault(number, []).append(value)
    except (IndexError, ValueError):
        return {}
    return found


def number(values: list[Value] | None) -> int:
    """Return the first number among the values of a field, else 0."""
    return next((v for v in values or [] if isinstance(v, int)), 0)


def content(values: list[Value] | None) -> bytes:
    """Return the first bytes among the values of a field, else none."""
    return next((v for v in values or [] if isinstance(v, bytes)), b"")


def text(values: list[Value] | None) -> str | None:
    """Return the first text among the values of a field."""
    return content(values).decode("utf-8", "replace") or None


def parted(message: bytes, numbers: frozenset[int]) -> tuple[bytes, dict[int, list[Extent]]]:
    """Return a message without the fields of these numbers, and the places of those fields."""
    kept: list[bytes] = []
    left: dict[int, list[Extent]] = {number: [] for number in numbers}
    at = since = 0
    size = len(message)
    # Thousands of such fields can be consecutive: those with a one-byte key are read here.
    runs = {number << 3 | DELIMITED: left[number].append for number in numbers if number < 16}
    while at < size:
        take = runs.get(message[at])
        if take is None:
            number, _, start, end = next(fields_at(message, at, size))
            if number in left:
                left[number].append((start, end))
                kept.append(message[since:at])
                since = end
            at = end
            continue
        if since < at:
            kept.append(message[since:at])
        length, start = message[at + 1], at + 2
        if length > 0x7F:
            length, start = varint(message, at + 1)
        at = since = start + length
        if at > size:
            raise IndexError("a field is longer than its message")
        take((start, at))
    return b"".join(kept) + message[since:], left


def encoded(value: int) -> bytes:
    """Return an encoded varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(field: int, value: bytes) -> bytes:
    """Return an encoded field with its length."""
    return encoded(field << 3 | DELIMITED) + encoded(len(value)) + value


def counted(field: int, value: int) -> bytes:
    """Return an encoded number field."""
    return encoded(field << 3 | VARINT) + encoded(value)
