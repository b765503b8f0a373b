"""Decodes many fields of a message at once, as columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.ncu.wire import FIXED64, VARINT

#: Tags of the fixed-length number fields of ProfileMetricValue.
DOUBLE, UINT32, UINT64 = 3 << 3 | FIXED64, 4 << 3 | VARINT, 5 << 3 | VARINT

#: Maximum bytes of a varint, and bytes of a word.
_LONGEST, _WORD = 10, 8

#: For each byte of a word, the highest bit (another byte follows), and the other bits.
_MORE, _BITS = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)

#: Distances of the parts of a number in a word, and the bits of their lower neighbors.
_GAPS = ((1, 0x007F007F007F007F), (2, 0x00003FFF00003FFF), (4, 0x000000000FFFFFFF))

Data = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def data_of(message: bytes, end: int) -> Data:
    """Return the bytes of a message up to a place, with padding to read a value that ends there.

    A message is large, so it is copied only if it is too short for the padding.
    """
    after = end + 2 * _LONGEST
    whole = message if after <= len(message) else message + bytes(after - len(message))
    return np.frombuffer(whole, np.uint8, after)


def is_whole(tags: Data) -> Mask:
    """Return which tags precede an integer."""
    whole: Mask = (tags == UINT32) | (tags == UINT64)
    return whole


def whole_numbers(data: Data, places: Places) -> tuple[Words, Places]:
    """Return the varints that begin at places, and where they end.

    Each byte has seven bits, lowest first.
    """
    values = _words(data, places)
    # The lowest bit that marks the last byte; 0 if the word has none.
    last = ~values & _MORE
    last &= -last
    values &= (last - np.uint64(1)) & _BITS
    for gap, lower in _GAPS:
        values = (values & np.uint64(lower)) | (
            values & np.uint64(~lower & 2**64 - 1)
        ) >> np.uint64(gap)
    # The exponent of a power of two is exact.
    lengths = np.frexp(last.astype(np.float64))[1].astype(np.int64) // _WORD
    if len(long := np.flatnonzero(lengths == 0)):
        ninth, tenth = (data[places[long] + _WORD + i].astype(np.uint64) for i in (0, 1))
        more = ninth > np.uint64(0x7F)
        values[long] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        values[long] |= np.where(more, tenth, np.uint64(0)) << np.uint64(63)
        lengths[long] = _WORD + 1 + more
    return values, places + lengths


def numbers(data: Data, places: Places) -> Floats:
    """Return the values of numbers whose tags are at places; NaN for other tags."""
    tags = data[places]
    values = np.full(len(places), np.nan)
    double, whole = tags == DOUBLE, is_whole(tags)
    values[double] = _words(data, places[double] + 1).view("<f8")
    values[whole] = whole_numbers(data, places[whole] + 1)[0]
    return values


def _words(data: Data, places: Places) -> Words:
    """Return the eight bytes from each place as one number."""
    every: Words = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))
    return every[places]
