"""Resolves string ids, enum values and global thread ids of an export."""

from __future__ import annotations

import re
import tomllib
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfpipe.files import packaged
from perfpipe.ingest.nsys.export import Export

_TEXT = pa.dictionary(pa.int32(), pa.string())
_API_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")


class Resolver:
    """Lookups of one export; enums come from its ENUM_* tables, or from labels.toml."""

    def __init__(self, export: Export) -> None:
        self._export = export
        strings = export.read("StringIds", ["id", "value"], ["id"])
        self._ids = strings["id"].combine_chunks().cast(pa.int64())
        self._values = strings["value"].combine_chunks().cast(pa.string())
        self._enums: dict[str, tuple[pa.Array, pa.Array]] = {}

    def strings(self, ids: pa.Array) -> pa.DictionaryArray:
        """Return the strings of ids; NULL for unknown ids."""
        return _look_up(ids, self._ids, self._values)

    def texts(self) -> dict[int, str]:
        """Return all strings by id."""
        return dict(zip(self._ids.to_pylist(), self._values.to_pylist(), strict=True))

    @staticmethod
    def unknown(texts: pa.DictionaryArray) -> int:
        """Return how many ids have no string."""
        if not texts.dictionary.null_count:
            return 0
        codes = texts.indices.drop_null().to_numpy()
        return int(np.count_nonzero(texts.dictionary.is_null().to_numpy(False)[codes]))

    def api_names(self, ids: pa.Array) -> pa.DictionaryArray:
        """Return API function names without version suffix: cudaLaunchKernel_v7000."""
        names = self.strings(ids)
        stripped = [n and _API_SUFFIX.sub("", n) for n in names.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(names.indices, pa.array(stripped, pa.string()))

    def enum(self, values: pa.Array, table: str) -> pa.DictionaryArray:
        """Return the labels of an enum; a number without a label becomes 'kind N'."""
        if table not in self._enums:
            known = self.labels(table)
            self._enums[table] = (
                pa.array(list(known), pa.int64()),
                pa.array(list(known.values()), pa.string()),
            )
        ids, labels = self._enums[table]
        return _look_up(values, ids, labels, unknown="kind {}")

    def labels(self, table: str) -> dict[int, str | None]:
        """Return the labels of an enum by value."""
        rows = self._export.read(table, ["id", "label", "name"])
        found = zip(*(rows[c].to_pylist() for c in ("id", "label", "name")), strict=True)
        return _labels().get(table, {}) | {value: label or name for value, label, name in found}


@cache
def _labels() -> dict[str, dict[int, str | None]]:
    """Return the labels of labels.toml by enum and value."""
    found = tomllib.loads(packaged("perfpipe.ingest.nsys", "labels.toml"))
    return {table: {int(key): label for key, label in of.items()} for table, of in found.items()}


def _look_up(
    ids: pa.Array, keys: pa.Array, values: pa.Array, unknown: str | None = None
) -> pa.DictionaryArray:
    """Map ids to text through a dictionary of the ids in use; `unknown` spells other ids."""
    encoded = ids.cast(pa.int64()).dictionary_encode()
    texts = values.take(pc.index_in(encoded.dictionary, value_set=keys))
    if unknown is not None and texts.null_count:
        pairs = zip(texts.to_pylist(), encoded.dictionary.to_pylist(), strict=True)
        texts = pa.array([t if t is not None else unknown.format(i) for t, i in pairs])
    return pa.DictionaryArray.from_arrays(encoded.indices, texts).cast(_TEXT)


def signed(values: pa.Array) -> pa.Array:
    """Return 64-bit ids as signed integers, for any integer type of the export."""
    if values.type == pa.uint64():
        return values.view(pa.int64())
    return values.cast(pa.int64())


def pid_of(global_id: pa.Array) -> pa.Array:
    """Return the process id: bits 24-47 of a global id (negative ones have the top bit set)."""
    return pc.bit_wise_and(pc.shift_right(signed(global_id), 24), 0xFFFFFF)


def tid_of(global_id: pa.Array) -> pa.Array:
    """Return the thread id: bits 0-23 of a global id."""
    return pc.bit_wise_and(signed(global_id), 0xFFFFFF)


def ascending(values: pa.Array, last: int | None) -> bool:
    """Return whether times ascend, also from the `last` time of the previous batch."""
    times = values.to_numpy(zero_copy_only=False)
    return bool((last is None or times[0] >= last) and (np.diff(times) >= 0).all())
