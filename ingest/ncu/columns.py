"""Decodes many fields of a message at once, as columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingest.ncu.wire import FIXED64, VARINT

#: Tags of the fields of ProfileMetricValue that are numbers of full length.
DOUBLE, UINT32, UINT64 = 3 << 3 | FIXED64, 4 << 3 | VARINT, 5 << 3 | VARINT

#: A number of varying length has this many bytes at most.
_LONGEST = 10

Data = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def data_of(message: bytes) -> Data:
    """Return the bytes of a message, with some behind it so that its last field can be read."""
    return np.frombuffer(message + bytes(2 * _LONGEST), np.uint8)


def is_whole(tags: Data) -> Mask:
    """Return which tags stand before a whole number."""
    whole: Mask = (tags == UINT32) | (tags == UINT64)
    return whole


def whole_numbers(data: Data, places: Places) -> tuple[npt.NDArray[np.uint64], Places]:
    """Return the numbers of varying length that begin at places, and where they end."""
    values = np.zeros(len(places), np.uint64)
    ends = places + 1
    going = np.arange(len(places))
    for byte in range(_LONGEST):
        part = data[places[going] + byte]
        values[going] |= (part & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
        ends[going] = places[going] + byte + 1
        going = going[part > 0x7F]
        if not len(going):
            break
    return values, ends


def numbers(data: Data, places: Places) -> Floats:
    """Return the values of numbers, whose tags are at places; NaN where there is another tag."""
    tags = data[places]
    values = np.full(len(places), np.nan)
    double, whole = tags == DOUBLE, is_whole(tags)
    raw = data[(places[double] + 1)[:, None] + np.arange(8)]
    values[double] = np.ascontiguousarray(raw).view("<f8")[:, 0]
    values[whole] = whole_numbers(data, places[whole] + 1)[0]
    return values
