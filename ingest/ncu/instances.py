"""Decodes instances of metrics of an .ncu-rep.

NVIDIA's reader returns one number per call.  A report has millions of instances, nearly all of the
same form: a key and a value, each a number after its tag.  These are decoded as columns.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from perfpipe.ingest.ncu.columns import (
    DOUBLE,
    Data,
    Floats,
    Mask,
    Places,
    is_whole,
    numbers,
    whole_numbers,
)
from perfpipe.ingest.ncu.wire import DELIMITED, FIXED32, FIXED64, VARINT, Extent, fields_at, varint

# Fields of ProfileMetricListElement.
_KEY, _ITEM = 1, 2

#: A field of ProfileMetricResult.
_INSTANCE = 3

#: Tags of the fields: an instance, its key and its value.
TAG_INSTANCE, _TAG_KEY, _TAG_ITEM = (n << 3 | DELIMITED for n in (_INSTANCE, _KEY, _ITEM))

#: The largest key.
_MOST = (1 << 64) - 1

_FLOATING = {FIXED32: "<f", FIXED64: "<d"}


@dataclass(frozen=True)
class Instances:
    """The instances of a metric: their keys, which are texts or numbers, and their values."""

    values: Floats
    keys: Places
    texts: list[str] | None = None


def read_instances(message: bytes, data: Data, lists: dict[str, Extent]) -> dict[str, Instances]:
    """Read the instances of metrics, each a list of fields between two places of a message.

    Raises ValueError or IndexError if the bytes are damaged.
    """
    chains = _Chains(data)
    places = {
        name: chains.between(*at) if chains.tell(*at) else _places(message, *at)
        for name, at in lists.items()
    }
    plain = {name: at[_are_plain(data, at)] for name, at in places.items()}
    plain = {name: at for name, at in plain.items() if len(at) == len(places[name])}
    every = np.concatenate(list(plain.values())) if plain else np.zeros(0, np.int64)
    keys = whole_numbers(data, every + 3)[0].view(np.int64)
    values = numbers(data, _items(data, every) + 2)
    found: dict[str, Instances] = {}
    done = 0
    for name, extent in lists.items():
        if name in plain:
            rows = slice(done, done + len(plain[name]))
            done = rows.stop
            found[name] = Instances(values[rows], keys[rows])
        else:
            found[name] = _one_by_one(message, *extent)
    return found


def rows(launch_id: int, metrics: dict[str, Instances]) -> dict[str, pa.Array]:
    """Return the columns of ncu_instances for instances of a launch."""
    every = metrics.values()
    lengths = [len(found.values) for found in every]
    return {
        "launch_id": pa.array(np.full(sum(lengths), launch_id)),
        "metric": pa.DictionaryArray.from_arrays(
            np.repeat(np.arange(len(metrics), dtype=np.int32), lengths), list(metrics)
        ),
        "instance": pa.array(np.concatenate([np.arange(length) for length in lengths])),
        "key_int": pa.concat_arrays(
            pa.nulls(len(found.texts), pa.int64()) if found.texts else pa.array(found.keys)
            for found in every
        ),
        "key_text": pa.concat_arrays(
            pa.array(found.texts or pa.nulls(len(found.keys)), pa.string()) for found in every
        ),
        "value": pa.array(np.concatenate([found.values for found in every])),
    }


class _Chains:
    """Finds instances at all places whose bytes look like the beginning of an instance.

    Other bytes may look the same.  But if each match between two places ends at the next match,
    these are the instances there.
    """

    def __init__(self, data: Data) -> None:
        self._data = data
        at: Places = np.flatnonzero(data[:-2] == TAG_INSTANCE)
        at = at[(data[at + 1] <= 0x7F) & (data[at + 2] == _TAG_KEY)]
        # Not within an instance that was found before.
        at = at[at >= np.r_[0, np.maximum.accumulate(at + 2 + data[at + 1])[:-1]][: len(at)]]
        self._at, self._next = at, at + 2 + data[at + 1]
        #: How many matches before each do not end at the next match.
        self._breaks = np.cumsum(np.r_[0, self._next[:-1] != at[1:]])

    def tell(self, start: int, end: int) -> bool:
        """Return whether the matches between two places are exactly the instances there."""
        first, after = np.searchsorted(self._at, (start, end)).tolist()
        if first == after or self._at[first] != start:
            return False
        behind = self._next[after - 1]
        ends = behind == end or (behind < end and self._data[behind] != TAG_INSTANCE)
        return bool(ends and self._breaks[first] == self._breaks[after - 1])

    def between(self, start: int, end: int) -> Places:
        """Return where the content of instances begins."""
        return self._at[slice(*np.searchsorted(self._at, (start, end)))] + 2


def _places(message: bytes, at: int, end: int) -> Places:
    """Return where the content of instances begins, after their lengths."""
    places = []
    while at < end and message[at] == TAG_INSTANCE:
        length, at = varint(message, at + 1)
        places.append(at)
        at += length
    return np.array(places, np.int64)


def _are_plain(data: Data, places: Places) -> Mask:
    """Return which instances have a number as key and a number as value."""
    items = _items(data, places)
    tags = data[items + 2]
    told = (data[places] == _TAG_KEY) & (data[items] == _TAG_ITEM)
    plain: Mask = told & is_whole(data[places + 2]) & (is_whole(tags) | (tags == DOUBLE))
    return plain


def _items(data: Data, places: Places) -> Places:
    return places + 2 + data[places + 1]


def _one_by_one(message: bytes, start: int, end: int) -> Instances:
    """Read instances of any kind: keys may be texts, or only the order of instances."""
    keys: list[int | float | str] = []
    values: list[float] = []
    for field, _, first, last in fields_at(message, start, end):
        if field == _INSTANCE:
            parts = {
                part: scalar(message, at, after)
                for part, _, at, after in fields_at(message, first, last)
            }
            keys.append(parts.get(_KEY, len(keys)))
            value = parts.get(_ITEM)
            values.append(math.nan if value is None or isinstance(value, str) else value)
    # With 64 bits, like plain instances.
    numbers_told = [key & _MOST for key in keys if isinstance(key, int)]
    if len(numbers_told) < len(keys):
        texts = [str(key) for key in keys]
        return Instances(np.array(values, np.float64), np.zeros(0, np.int64), texts)
    whole = np.array(numbers_told, np.uint64).view(np.int64)
    return Instances(np.array(values, np.float64), whole)


def scalar(message: bytes, start: int, end: int) -> int | float | str:
    """Read a ProfileMetricValue."""
    for _, kind, first, last in fields_at(message, start, end):
        if kind == VARINT:
            return varint(message, first)[0]
        if kind in _FLOATING:
            value: float = struct.unpack_from(_FLOATING[kind], message, first)[0]
            return value
        return message[first:last].decode("utf-8", "replace")
    return ""
