"""Decodes the metrics of a result of an .ncu-rep: values, and instances of some."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ingest.ncu.columns import data_of, numbers, whole_numbers
from ingest.ncu.instances import TAG_INSTANCE, Instances, read_instances, scalar
from ingest.ncu.names import keeps_instances
from ingest.ncu.wire import DELIMITED, VARINT, Extent, parted

#: Tags of ProfileMetricResult: the number of its name, and its value.
_TAG_NAME, _TAG_VALUE = 1 << 3 | VARINT, 2 << 3 | DELIMITED

_FUNCTION_PCS = "launch__function_pcs"

#: A number, a text, or that the metric has no data.
Value = float | str | None


@dataclass
class Metrics:
    """The metrics of a result by name, in the order of the report, and instances of some."""

    values: dict[str, Value] = field(default_factory=dict)
    instances: dict[str, Instances] = field(default_factory=dict)

    @property
    def function_start(self) -> int | None:
        """The address of the function's first instruction."""
        start = self.instances.get(_FUNCTION_PCS)
        return int(start.values[0]) if start and len(start.values) else None


class MetricReader:
    """Reads the metrics of results, whose names are numbers of strings of the report."""

    def __init__(self, strings: list[str]) -> None:
        self._strings = strings
        self._kept = [keeps_instances(name) or name == _FUNCTION_PCS for name in strings]

    def read(self, message: bytes, metrics: int) -> Metrics:
        """Read the metrics of a result: those in its field `metrics`.

        Raises ValueError or IndexError where the bytes are damaged.
        """
        extents = parted(message, frozenset({metrics}))[1][metrics]
        found = Metrics()
        lists: dict[str, Extent] = {}
        for (_, end), number, value, after in zip(extents, *_heads(message, extents), strict=True):
            name = self._strings[number]
            if name.startswith("group:") or value == "":
                continue
            listed = after < end and message[after] == TAG_INSTANCE
            if listed and self._kept[number]:
                lists[name] = after, end
            if value is not None or not listed:
                found.values[name] = value
        found.instances = read_instances(message, lists)
        return found


def _heads(message: bytes, extents: list[Extent]) -> tuple[list[int], list[Value], list[int]]:
    """Return what metrics begin with: number of the name, value; and where their instances are."""
    data = data_of(message)
    starts = np.array([start for start, _ in extents], np.int64)
    ends = np.array([end for _, end in extents], np.int64)
    if (data[starts] != _TAG_NAME).any():
        raise ValueError("a metric without a name")
    names, after = whole_numbers(data, starts + 1)
    valued = (after < ends) & (data[after] == _TAG_VALUE)
    lengths, at = whole_numbers(data, after[valued] + 1)
    read = numbers(data, at)
    values: list[Value] = [None] * len(extents)
    for index, place, length, value in zip(
        np.flatnonzero(valued).tolist(), at.tolist(), lengths.tolist(), read.tolist(), strict=True
    ):
        values[index] = value if math.isfinite(value) else _text(message, place, place + length)
    after[valued] = at + lengths.view(np.int64)
    return names.tolist(), values, after.tolist()


def _text(message: bytes, start: int, end: int) -> Value:
    """Return a value that is a text, or that is no finite number."""
    value = scalar(message, start, end)
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else str(value)
