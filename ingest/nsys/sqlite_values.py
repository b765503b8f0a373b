"""Values of a column of an SQLite table, decoded at once.

https://www.sqlite.org/fileformat2.html#record_format
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import Ints
from perfpipe.ingest.nsys.sqlite_tree import Bytes, UnusualError

#: Types that a column is read as; a value of another one is NULL, and counted.
INT, FLOAT, TEXT, BLOB = "int", "float", "text", "blob"
TYPES = {INT: pa.int64(), FLOAT: pa.float64(), TEXT: pa.string(), BLOB: pa.binary()}

#: Serial types, which say what a value is and how long: NULL; integers of 1, 2, 3, 4, 6 and 8
#: bytes; a float; the numbers 0 and 1; from _BLOBS on even ones are blobs and odd ones texts.
Kinds = npt.NDArray[np.integer]
_INT64, _FLOAT, _ZERO, _ONE, _BLOBS = 6, 7, 8, 9, 12

_WIDTH = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], np.int64)
_SHORTS = np.concatenate([_WIDTH, (np.arange(_BLOBS, 0x80) - _BLOBS) // 2])

#: How far to shift eight bytes to keep those of an integer.
_SHIFT = np.minimum(64 - 8 * _WIDTH, 63)

#: Texts longer than this on average are copied one by one.
_LONG = 200

_MOST = np.iinfo(np.int32).max


def widths(kind: Kinds) -> Ints | np.int64:
    """Return how many bytes values take; one number where all take as many.

    Raises UnusualError for kinds that no file has.
    """
    least, most = int(kind.min()), int(kind.max())
    if least < 0 or (most > _ONE and ((kind > _ONE) & (kind < _BLOBS)).any()):
        raise UnusualError("a value of a kind that files do not have")
    if most >= len(_SHORTS):
        return np.where(kind < _BLOBS, _WIDTH.take(kind, mode="clip"), (kind - _BLOBS) // 2)
    return np.int64(_SHORTS[least]) if least == most else _SHORTS.take(kind)


class Values:
    """The values in some bytes, which have PADDING behind them."""

    def __init__(self, content: Bytes) -> None:
        self._content = content
        self._words = np.ndarray((len(content) - 7,), ">i8", content, 0, (1,))

    def read(self, type_: str, kind: Kinds, at: Ints) -> tuple[pa.Array, int]:
        """Return the values at some places as a type, and how many are of another one."""
        if not kind.any():
            return pa.nulls(len(kind), TYPES[type_]), 0
        if type_ == INT:
            return self._whole(kind, at)
        if type_ == FLOAT:
            return self._real(kind, at)
        right = (kind >= _BLOBS) & ((kind % 2 == 1) | (type_ == BLOB))
        return self._bytes(TYPES[type_], right, kind, at)

    def _whole(self, kind: Kinds, at: Ints) -> tuple[pa.Array, int]:
        least, most = int(kind.min()), int(kind.max())
        if 0 < least == most <= _INT64:
            return pa.array(self._signed(at, _SHIFT[least])), 0
        values = self._signed(at, _SHIFT.take(kind, mode="clip"))
        if most <= _INT64:
            return pa.array(values, mask=kind == 0), 0
        small = (kind == _ZERO) | (kind == _ONE)
        values = np.where(small, kind - _ZERO, values)
        other = (kind == _FLOAT) | (kind >= _BLOBS)
        return pa.array(values, mask=other | (kind == 0)), int(np.count_nonzero(other))

    def _real(self, kind: Kinds, at: Ints) -> tuple[pa.Array, int]:
        whole, mistyped = self._whole(np.where(kind == _FLOAT, 0, kind), at)
        values = np.asarray(whole.cast(pa.float64(), safe=False).fill_null(0))
        real = kind == _FLOAT
        values = np.where(real, self._words[at].view(">f8"), values)
        missing = np.asarray(whole.is_null()) & ~real
        return pa.array(values, mask=missing | np.isnan(values)), mistyped

    def _signed(self, at: Ints, shift: Ints | np.int64) -> Ints:
        return self._words[at].astype(np.int64) >> shift

    def _bytes(
        self, type_: pa.DataType, right: npt.NDArray[np.bool_], kind: Kinds, at: Ints
    ) -> tuple[pa.Array, int]:
        length = np.where(right, (kind.astype(np.int64) - _BLOBS) // 2, 0)
        ends = np.cumsum(length)
        if ends[-1] > _MOST:
            raise UnusualError("texts of more than 2 GB")
        if ends[-1] > _LONG * len(kind):
            spans = zip(at.tolist(), length.tolist(), strict=True)
            content = np.concatenate([self._content[first : first + size] for first, size in spans])
        else:
            place = np.repeat(at - (ends - length), length) + np.arange(ends[-1])
            content = self._content.take(place)
        offsets = np.append(0, ends).astype(np.int32)
        buffers = [pa.array(right).buffers()[1], *map(pa.py_buffer, (offsets, content))]
        found = pa.Array.from_buffers(type_, len(kind), buffers)
        return found, int(np.count_nonzero(~right & (kind != 0)))
