"""Corrects the ends of GPU operations that later operations of their stream contradict."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups, ints, nullable
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.consistency import LONG_NS, overruns

#: What identifies a stream, and an operation in its table.
_STREAM = ("pid", "device", "context", "stream")
_KEY = ("device", "stream", "correlation_id", "start_ns", "end_ns")


def correct_ends(
    builder: ReportBuilder, column: Mapping[str, pa.Array], table: Mapping[int, str]
) -> pa.Array:
    """Return the ends of operations, and correct them in their tables; operations are in order.

    An impossible end becomes what the usual duration of the kernel makes it, and at most the start
    of the next operation of the stream.  `table` has the table of each kind of operation.
    """
    start, end = (ints(column[name], missing=NONE) for name in ("start_ns", "end_ns"))
    # Few captures have operations that are long enough.
    if not (end - start >= LONG_NS).any():
        return column["end_ns"]
    rows, limits = overruns(_streams(column), ints(column["correlation_id"]), start, end)
    if not len(rows):
        return column["end_ns"]
    right = end.copy()
    right[rows] = np.minimum(limits, start[rows] + _usual(column["demangled"], rows, end - start))
    key = zip(*(ints(column[name], missing=NONE)[rows].tolist() for name in _KEY), strict=True)
    changes = dict(zip(key, right[rows].tolist(), strict=True))
    for name in sorted({table[kind] for kind in ints(column["kind"])[rows].tolist()}):
        builder.rewrite(name, _change(changes))
    builder.miss(
        f"{len(rows):,} of {len(start):,} GPU operations end after later operations of their "
        "stream, which is impossible; each was shortened to the usual duration of its kernel, or "
        "to the start of the next operation",
        len(rows),
        len(start),
    )
    return nullable(right)


def _streams(column: Mapping[str, pa.Array]) -> Codes:
    """Return the number of the stream of each operation, NONE without a launching call.

    Migrations of unified memory are not in the order of a stream.
    """
    codes = np.zeros(len(column["kind"]), np.int64)
    for name in _STREAM:
        values = column[name].dictionary_encode("encode")
        codes = codes * len(values.dictionary) + ints(values.indices)
    codes = pa.array(codes).dictionary_encode().indices
    launched = ints(column["correlation_id"]) > 0
    return np.where(launched, np.asarray(codes), NONE).astype(np.int32)


def _usual(kernel: pa.DictionaryArray, rows: Ints, lasting: Ints) -> Ints:
    """Return the median duration of the kernel of each of some rows in the other rows, ns.

    It is the largest integer that can be added to a time if there is none.
    """
    codes = ints(kernel.indices, missing=NONE)
    usual = np.full(len(rows), np.iinfo(np.int64).max // 2)
    others = np.isin(codes, codes[rows]) & (codes != NONE) & (lasting >= 0)
    others[rows] = False
    peers = np.flatnonzero(others)
    for code, own in groups(codes[peers]):
        usual[codes[rows] == code] = int(np.median(lasting[peers[own]]))
    return usual


def _change(changes: Mapping[tuple[int, ...], int]) -> Callable[[pa.Table], pa.Table]:
    """Return what corrects the ends of some operations, by their keys, in rows of a table."""
    starts = [key[_KEY.index("start_ns")] for key in changes]

    def change(rows: pa.Table) -> pa.Table:
        key = {name: ints(rows[name], missing=NONE) for name in _KEY}
        start, end = key["start_ns"], key["end_ns"].copy()
        for row in np.flatnonzero(np.isin(start, starts)):
            one = tuple(int(values[row]) for values in key.values())
            end[row] = changes.get(one, end[row])
        lasting = pa.array(end - start, mask=end == NONE)
        for name, values in (("end_ns", nullable(end)), ("dur_ns", lasting)):
            rows = rows.set_column(rows.column_names.index(name), name, values)
        return rows

    return change
