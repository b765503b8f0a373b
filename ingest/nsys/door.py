"""Validates every value of an nsys export, so that later code can rely on types and ranges.

Values and rows that are not valid are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfpipe.errors import InputError
from perfpipe.ingest.arrays import NONE, ints
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.consistency import unstamped
from perfpipe.ingest.nsys import columns as known
from perfpipe.ingest.nsys.export import Export, Part

_WHOLE = pa.types.is_integer
_NULLED = "read as NULL"
_ENDLESS = "their end was read as NULL"
_LEFT_OUT = "they were skipped"

_MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"

#: Tables of events: lost rows change the results of a report.
_EVENTS = frozenset((*known.TIMED, "NVTX_EVENTS", "GPU_METRICS", _MEMORY_USAGE))

_LIMITS = {known.COUNT: (0, known.MOST), known.TIME: (-known.LATEST_NS, known.LATEST_NS)}


class Door(Export):
    """An export whose columns have the types of `columns.py`, and values in range.

    Scanning raises InputError if a table lacks a required column.
    """

    def __init__(self, export: Export) -> None:
        super().__init__(export.path)
        self._export = export
        self._rows: dict[str, dict[Part | None, int]] = {}
        self._lost: dict[tuple[str, str], dict[Part | None, int]] = {}

    def tables(self) -> frozenset[str]:
        return self._export.tables()

    def columns(self, table: str) -> frozenset[str]:
        return self._export.columns(table)

    def has_rows(self, table: str) -> bool:
        return self._export.has_rows(table)

    def check(self) -> None:
        self._export.check()

    def parts(self, table: str) -> list[Part | None]:
        return self._export.parts(table)

    def scan(
        self,
        table: str,
        columns: Sequence[str],
        order: Sequence[str] = (),
        part: Part | None = None,
    ) -> Iterator[pa.RecordBatch]:
        rules = known.rules_of(table)
        there = self.columns(table)
        if absent := [column for column in rules.columns if column not in there]:
            raise InputError(f"{self.path}: {table} has no column {absent[0]}; export it again")
        wanted = list(dict.fromkeys([*columns, *rules.columns]))
        tally = _Tally(table, rules)
        for batch in self._export.scan(table, wanted, order, part):
            admitted = tally.admit(batch)
            if admitted.num_rows:
                yield admitted.select(list(columns))
        # An abandoned scan does not count.
        self._rows.setdefault(table, {})[part] = tally.rows
        for name, rows in self._export.mismatches.get((table, part), {}).items():
            tally.mistyped(name, rows)
        for reason, rows in tally.lost.items():
            self.note(table, reason, rows, part)

    def note(self, table: str, reason: str, rows: int, part: Part | None = None) -> None:
        """Record that this many rows of a table, or of a part, are lost or incomplete.

        `reason` continues "3 of 80 rows of TABLE"; it replaces an earlier count.
        """
        self._lost.setdefault((table, reason), {})[part] = rows

    def report(self, builder: ReportBuilder) -> None:
        """Add the invalid values and rows to the report."""
        for (table, reason), parts in sorted(self._lost.items()):
            if lost := sum(parts.values()):
                rows = sum(self._rows.get(table, {}).values())
                builder.lose(table, reason, lost, rows, counts=table in _EVENTS)


class _Tally:
    """The invalid values and rows of one scan of a table."""

    def __init__(self, table: str, rules: known.Rules) -> None:
        self._table = table
        self._rules = rules
        self.rows = 0
        self.lost: dict[str, int] = {}

    def _add(self, reason: str, rows: int) -> None:
        if rows:
            self.lost[reason] = self.lost.get(reason, 0) + rows

    def mistyped(self, name: str, rows: int) -> None:
        """Count invalid values of a column."""
        if name in self._rules.needed:
            # In this case the row is skipped.
            return
        kind = known.kind_of(self._table, name)
        self._add(f"have an invalid {name} ({known.NOT[kind]}), {_NULLED}", rows)

    def admit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the usable rows of a batch, with values of the right types."""
        self.rows += batch.num_rows
        columns = {}
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            columns[name] = _typed(values, known.kind_of(self._table, name))
            self.mistyped(name, columns[name].null_count - values.null_count)
        if "start" in columns and "end" in columns:
            columns["end"] = self._ends(columns["start"], columns["end"])
        rows = self._stamped(pa.RecordBatch.from_pydict(columns))
        for name in self._rules.needed:
            if missing := rows[name].null_count:
                self._add(f"have no valid {name}; {_LEFT_OUT}", missing)
                rows = rows.filter(rows[name].is_valid())
        return rows

    def _stamped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out GPU operations without timestamps."""
        if not self._rules.runs or not {"start", "end"} <= set(rows.schema.names):
            return rows
        missing = unstamped(*(ints(rows[name], missing=NONE) for name in ("start", "end")))
        self._add(f"have no timestamps; {_LEFT_OUT}", int(np.count_nonzero(missing)))
        return rows.filter(pa.array(~missing)) if missing.any() else rows

    def _ends(self, start: pa.Array, end: pa.Array) -> pa.Array:
        if self._rules.ends:
            self._add("have no end", end.null_count)
        lasts = pc.subtract(end, start)
        extremes = pc.min_max(lasts).as_py()
        if (extremes["min"] or 0) < 0:
            early = pc.less(lasts, 0)
            self._add(f"end before they begin; {_ENDLESS}", pc.sum(early).as_py())
            end = pc.if_else(early, pa.scalar(None, pa.int64()), end)
        if (extremes["max"] or 0) > known.LONGEST_NS:
            late = pc.greater(lasts, known.LONGEST_NS)
            self._add(f"last more than a year; {_ENDLESS}", pc.sum(late).as_py())
            end = pc.if_else(late, pa.scalar(None, pa.int64()), end)
        return end


def _typed(values: pa.Array, kind: str) -> pa.Array:
    """Return values of a kind, and NULL for other values."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind == known.BLOB:
        return values if _is_text(values.type) or _is_bytes(values.type) else _nulls(values, kind)
    if kind == known.TEXT:
        return _text(values) if _is_text(values.type) else _nulls(values, kind)
    if kind == known.NUMBER:
        plain = _WHOLE(values.type) or pa.types.is_floating(values.type)
        return values.cast(pa.float64(), safe=False) if plain else _nulls(values, kind)
    if not _WHOLE(values.type):
        return _nulls(values, kind)
    # Ids are 64 bits, whatever their sign.
    whole = values.view(pa.int64()) if values.type == pa.uint64() else values.cast(pa.int64())
    if kind not in _LIMITS:
        return whole
    least, most = _LIMITS[kind]
    extremes = pc.min_max(whole).as_py()
    if extremes["min"] is None or (extremes["min"] >= least and extremes["max"] <= most):
        return whole
    inside = pc.and_(pc.greater_equal(whole, least), pc.less_equal(whole, most))
    return pc.if_else(inside, whole, pa.scalar(None, pa.int64()))


def _nulls(values: pa.Array, kind: str) -> pa.Array:
    return pa.nulls(len(values), known.TYPES.get(kind, pa.binary()))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _text(values: pa.Array) -> pa.Array:
    """Return texts; bytes that are not UTF-8 are replaced."""
    text = values.cast(pa.large_string()).cast(pa.string(), safe=False)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = [item.as_py() for item in values.cast(pa.large_binary())]
        text = pa.array([item and item.decode("utf-8", "replace") for item in raw], pa.string())
    return text
