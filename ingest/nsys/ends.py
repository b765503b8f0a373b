"""Corrects the ends of GPU operations that later operations of their stream contradict."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Codes, Ints, Vocabulary, groups, ints, nullable
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import Columns, slices
from perfpipe.ingest.consistency import LONG_NS, overruns
from perfpipe.ingest.nsys.operations import TABLES, Operations

#: What identifies a stream, and an operation in its table.
_STREAM = ("pid", "device", "context", "stream")
_KEY = ("device", "stream", "correlation_id", "start_ns", "end_ns")


def correct_ends(builder: ReportBuilder, operations: Operations, columns: Columns) -> None:
    """Correct ends of operations, also in their tables.

    An impossible end becomes what the usual duration of the kernel makes it, and at most the start
    of the next operation of the stream.
    """
    # Few captures have operations that are long enough.
    if not any((_lasting(operations, some) >= LONG_NS).any() for some in slices(len(operations))):
        return
    start, end = (columns.new(len(operations), np.int64) for _ in range(2))
    for some in slices(len(operations)):
        start[some], end[some] = (operations.known(c, some) for c in ("start_ns", "end_ns"))
    numbers = operations.numbers
    rows, limits = overruns(_streams(operations, columns), numbers["correlation_id"], start, end)
    if not len(rows):
        return
    key = zip(*(operations.known(name, rows).tolist() for name in _KEY), strict=True)
    right = np.minimum(limits, start[rows] + _usual(operations, rows))
    changes = dict(zip(key, right.tolist(), strict=True))
    for name in sorted({TABLES[kind] for kind in operations.kind[rows].tolist()}):
        builder.rewrite(name, _change(changes))
    numbers["end_ns"][rows] = right
    builder.miss(
        f"{len(rows):,} of {len(operations):,} GPU operations end after later operations of their "
        "stream, which is impossible; each was shortened to the usual duration of its kernel, or "
        "to the start of the next operation",
        len(rows),
        len(operations),
    )


def _lasting(operations: Operations, rows: slice) -> Ints:
    """Return the durations of some operations, negative if unknown, ns."""
    return operations.known("end_ns", rows) - operations.known("start_ns", rows)


def _streams(operations: Operations, columns: Columns) -> Codes:
    """Return the number of the stream of each operation, NONE without a launching call.

    Migrations of unified memory are not in the order of a stream.
    """
    found = columns.new(len(operations), np.int32)
    numbering = {name: (Vocabulary(), Vocabulary()) for name in _STREAM}
    for some in slices(len(operations)):
        codes = np.zeros(some.stop - some.start, np.int64)
        for name, (values, pairs) in numbering.items():
            own = values.codes(pa.array(operations.numbers[name][some]))
            codes = pairs.codes(pa.array(codes << 32 | own)).astype(np.int64)
        launched = operations.numbers["correlation_id"][some] > 0
        found[some] = np.where(launched, codes, NONE)
    return found


def _usual(operations: Operations, rows: Ints) -> Ints:
    """Return the median duration of the kernel of each of some rows in the other rows, ns.

    It is the largest integer that can be added to a time if there is none.
    """
    kernels = operations.demangled[rows]
    lasting: dict[int, list[Ints]] = {}
    for some in slices(len(operations)):
        codes, own = operations.demangled[some], _lasting(operations, some)
        others = np.isin(codes, kernels) & (codes != NONE) & (own >= 0)
        others[rows[(rows >= some.start) & (rows < some.stop)] - some.start] = False
        for code, members in groups(codes[others]):
            lasting.setdefault(code, []).append(own[others][members])
    usual = np.full(len(rows), np.iinfo(np.int64).max // 2)
    for code, parts in lasting.items():
        usual[kernels == code] = int(np.median(np.concatenate(parts)))
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
