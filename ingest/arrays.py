"""Small numpy helpers for columns: whole numbers, orders and groups."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

#: End of an interval that was still open when the capture ended, ns; half the largest integer, so
#: that it can be doubled.
STILL_OPEN = np.iinfo(np.int64).max // 2

#: Codes up to this many times the number of values are counted.
_SPARSE = 8

#: Up to this many groups, each group is searched for separately.
_FEW = 64

#: Code of a missing value.
NONE = -1


def whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; combine_chunks would copy a single chunk."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def ints(values: pa.Array | pa.ChunkedArray, missing: int = 0) -> Ints:
    """Return whole numbers, with `missing` for NULL."""
    filled = whole(values).cast(pa.int64())
    if filled.null_count:
        filled = filled.fill_null(missing)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def give_back() -> None:
    """Return freed memory to the system, which the Arrow and C allocators would keep."""
    pa.default_memory_pool().release_unused()
    # Only glibc has malloc_trim.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def nullable(values: npt.NDArray[Any], missing: int = NONE) -> pa.Array:
    """Return an Arrow array with NULL where a value is `missing`."""
    return pa.array(values, mask=values == missing)


def time_order(start: Ints, *ties: npt.NDArray[Any]) -> Ints:
    """Return the indices that sort by `start`, and for equal starts by each of `ties`.

    Much faster than sorting by all keys if starts are mostly in order and rarely equal.
    """
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(equal) and ties:
        places = np.union1d(equal, equal + 1)
        rows = order[places]
        keys = [key[rows] for key in reversed(ties)]
        order[places] = rows[np.lexsort([*keys, start[rows]])]
    return order


def placed(begins: Ints, ends: Ints, values: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the interval begins[i] <= value < ends[i] of each value, and whether there is one.

    The intervals are in order and do not overlap.
    """
    place = np.maximum(np.searchsorted(begins, values, side="right") - 1, 0)
    return place, (values >= begins[place]) & (values < ends[place])


def groups(codes: npt.NDArray[np.integer]) -> Iterator[tuple[int, Ints]]:
    """Yield each occurring code (0 or more) and its indices, in order."""
    there = present(codes)
    if len(there) <= _FEW:
        # Comparing is faster than sorting, and uses less memory.
        for code in there:
            yield int(code), np.flatnonzero(codes == code)
        return
    order = np.argsort(codes, kind="stable")
    borders = np.flatnonzero(np.diff(codes[order])) + 1
    for members in np.split(order, borders):
        yield int(codes[members[0]]), members


def numbered(codes: npt.NDArray[np.integer]) -> tuple[Ints, Codes]:
    """Return the occurring codes (0 or more) in order, and the index of each of `codes` in them."""
    there = present(codes)
    if int(codes.max(initial=0)) > _SPARSE * max(len(codes), _FEW):
        return there, np.searchsorted(there, codes).astype(np.int32)
    place = np.zeros(int(codes.max(initial=0)) + 1, np.int32)
    place[there] = np.arange(len(there), dtype=np.int32)
    return there, place[codes]


def present(codes: npt.NDArray[np.integer]) -> Ints:
    """Return the occurring codes in order; counting is faster, but takes memory per code."""
    if int(codes.max(initial=0)) > _SPARSE * max(len(codes), _FEW):
        return np.unique(codes).astype(np.int64)
    return np.flatnonzero(np.bincount(codes))


def none(count: int) -> Codes:
    """Return an array of NONE that takes no memory and must not be written to."""
    return np.broadcast_to(np.int32(NONE), (count,))


class Vocabulary:
    """Numbers values in order of appearance, to store text as a column of small integers."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    @property
    def values(self) -> list[Any]:
        """The values by number."""
        return list(self._numbers)

    def number(self, value: Any) -> int | None:
        """Return the number of a value; None if it does not occur."""
        return self._numbers.get(value)

    def codes(self, values: pa.Array) -> Codes:
        """Return the number of each value, NONE for NULL."""
        if values.null_count == len(values):
            return none(len(values))
        encoded = values.dictionary_encode()
        numbers = [
            self._numbers.setdefault(value, len(self._numbers))
            for value in encoded.dictionary.to_pylist()
        ]
        found = pa.array(numbers, pa.int32()).take(encoded.indices).fill_null(NONE)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.int32)

    def adopt(self, other: Vocabulary) -> Codes:
        """Add the values of another numbering; return our number for each of its numbers."""
        numbers = [self._numbers.setdefault(v, len(self._numbers)) for v in other._numbers]
        # The index NONE (-1) finds the last element.
        return np.array([*numbers, NONE], np.int32)
