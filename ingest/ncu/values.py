"""Decodes the metrics of a result of an .ncu-rep: values, and instances of some metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfpipe.ingest.ncu.columns import Data, Floats, Places, data_of, numbers, whole_numbers
from perfpipe.ingest.ncu.instances import TAG_INSTANCE, Instances, read_instances, scalar
from perfpipe.ingest.ncu.lean import Extents
from perfpipe.ingest.ncu.names import keeps_instances
from perfpipe.ingest.ncu.wire import DELIMITED, VARINT

#: Tags of ProfileMetricResult: number of the name, and value.
_TAG_NAME, _TAG_VALUE = 1 << 3 | VARINT, 2 << 3 | DELIMITED

_FUNCTION_PCS = "launch__function_pcs"

#: A number, a text, or no data.
Value = float | str | None


@dataclass(frozen=True)
class Metrics:
    """The metrics of a result in report order, and the instances of some metrics by name.

    A number is NaN if the value is text or there is no data.
    """

    names: list[str]
    numbers: Floats
    texts: dict[str, str]
    instances: dict[str, Instances]

    @cached_property
    def values(self) -> dict[str, Value]:
        """The values by name."""
        found: dict[str, Value] = dict(zip(self.names, self.numbers.tolist(), strict=True))
        for index in np.flatnonzero(np.isnan(self.numbers)).tolist():
            found[self.names[index]] = self.texts.get(self.names[index])
        return found

    @property
    def function_start(self) -> int | None:
        """The address of the function's first instruction."""
        start = self.instances.get(_FUNCTION_PCS)
        return int(start.values[0]) if start and len(start.values) else None


class MetricReader:
    """Reads the metrics of results, whose names are indices into the strings of the report."""

    def __init__(self, strings: list[str]) -> None:
        self._strings = np.array(strings, object)
        kept = [keeps_instances(name) or name == _FUNCTION_PCS for name in strings]
        self._kept = np.array(kept, bool)
        self._are_groups = np.array([name.startswith("group:") for name in strings], bool)

    def read(self, message: bytes, metrics: Extents) -> Metrics:
        """Read the metrics of a result.

        Raises ValueError or IndexError if the bytes are damaged.
        """
        starts, ends = metrics.T
        data = data_of(message, metrics.max(initial=0))
        if (data[starts] != _TAG_NAME).any():
            raise ValueError("a metric without a name")
        strings, after = whole_numbers(data, starts + 1)
        told = self._strings[strings]
        values, texts, after = _values(message, data, after, ends)
        listed = (after < ends) & (data[after] == TAG_INSTANCE)
        empty = np.array([index for index, text in texts.items() if not text], np.int64)
        there = ~self._are_groups[strings]
        there[empty] = False
        kept = np.flatnonzero(there & listed & self._kept[strings]).tolist()
        lists = {told[index]: (int(after[index]), int(ends[index])) for index in kept}
        # If there are only instances, the value would be 'no data'.
        valued = ~np.isnan(values)
        valued[list(texts)] = True
        there &= valued | ~listed
        # A report has some metrics twice: the last one counts.
        once = dict(zip(told[there].tolist(), np.flatnonzero(there).tolist(), strict=True))
        return Metrics(
            list(once),
            values[np.array([*once.values()], np.int64)],
            {told[index]: text for index, text in texts.items() if there[index]},
            read_instances(message, data, lists),
        )


def _values(
    message: bytes, data: Data, places: Places, ends: Places
) -> tuple[Floats, dict[int, str], Places]:
    """Return the values of metrics, text values by index, and where each metric ends."""
    found, texts, after = np.full(len(places), np.nan), dict[int, str](), places.copy()
    valued = np.flatnonzero((places < ends) & (data[places] == _TAG_VALUE))
    lengths, at = whole_numbers(data, places[valued] + 1)
    after[valued] = at + lengths.view(np.int64)
    if (after < places).any() or (after > np.maximum(ends, places)).any():
        raise ValueError("a value is longer than its metric")
    found[valued] = numbers(data, at)
    for index in np.flatnonzero(~np.isfinite(found[valued])).tolist():
        metric = int(valued[index])
        value = scalar(message, int(at[index]), int(after[metric]))
        # A value that is not a finite number is stored as text.
        plain = not isinstance(value, str) and math.isfinite(value)
        found[metric] = value if plain else math.nan
        if not plain:
            texts[metric] = str(value)
    return found, texts, after
