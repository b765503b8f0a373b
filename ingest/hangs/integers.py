"""Checks the integers in what is recorded of a job that hangs."""

from __future__ import annotations

from perfpipe.errors import brief

#: Integers of the store.
_LARGEST = 1 << 63


def whole(value: object) -> int:
    """Return an integer that the store holds; raises TypeError for other values."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _LARGEST:
        raise TypeError(f"{brief(value)} is not a whole number")
    return value
