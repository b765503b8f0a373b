"""The door of nsys exports: every value of a table passes here, and has the type that it must have.

What is behind it need not expect anything else.  Values and rows that do not pass are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from perfpipe.errors import InputError
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.nsys import columns as known
from perfpipe.ingest.nsys.export import Export, Part

_WHOLE = pa.types.is_integer
_NULLED = "it was read as NULL"
_ENDLESS = "their end was read as NULL"
_LEFT_OUT = "they were left out"

_MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"

#: Tables of events: what is lost of these changes what a report says.
_EVENTS = frozenset((*known.TIMED, "NVTX_EVENTS", "GPU_METRICS", _MEMORY_USAGE))

_LIMITS = {known.COUNT: (0, known.MOST), known.TIME: (-known.LATEST_NS, known.LATEST_NS)}


class Door(Export):
    """An export whose columns have the types of `columns.py`, and values in range.

    Scanning raises InputError where a table lacks a column that each of its rows needs.
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
        # A scan that was given up counts nothing.
        self._rows.setdefault(table, {})[part] = tally.rows
        for name, rows in self._export.mismatches.get((table, part), {}).items():
            tally.mistyped(name, rows)
        for reason, rows in tally.lost.items():
            self.note(table, reason, rows, part)

    def note(self, table: str, reason: str, rows: int, part: Part | None = None) -> None:
        """State that so many rows of a table, or of a part of it, are lost or lack something.

        `reason` continues "3 of 80 rows of TABLE"; what was stated of the same before is replaced.
        """
        self._lost.setdefault((table, reason), {})[part] = rows

    def report(self, builder: ReportBuilder) -> None:
        """State in the report what did not pass."""
        for (table, reason), parts in sorted(self._lost.items()):
            if lost := sum(parts.values()):
                rows = sum(self._rows.get(table, {}).values())
                builder.lose(table, reason, lost, rows, counts=table in _EVENTS)


class _Tally:
    """What one scan of a table meets."""

    def __init__(self, table: str, rules: known.Rules) -> None:
        self._table = table
        self._rules = rules
        self.rows = 0
        self.lost: dict[str, int] = {}

    def _add(self, reason: str, rows: int) -> None:
        if rows:
            self.lost[reason] = self.lost.get(reason, 0) + rows

    def mistyped(self, name: str, rows: int) -> None:
        """Count values of a column that it does not take."""
        if name in self._rules.needed:
            # Which leaves the row out.
            return
        kind = known.kind_of(self._table, name)
        self._add(f"have a {name} that is {known.NOT[kind]}; {_NULLED}", rows)

    def admit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that are of use, with values of the right types."""
        self.rows += batch.num_rows
        columns = {}
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            columns[name] = _typed(values, known.kind_of(self._table, name))
            self.mistyped(name, columns[name].null_count - values.null_count)
        if "start" in columns and "end" in columns:
            columns["end"] = self._ends(columns["start"], columns["end"])
        rows = pa.RecordBatch.from_pydict(columns)
        for name in self._rules.needed:
            if missing := rows[name].null_count:
                self._add(f"have no usable {name}; {_LEFT_OUT}", missing)
                rows = rows.filter(rows[name].is_valid())
        return rows

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
    """Return values of a kind, NULL for others."""
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
    """Return texts; bytes that are no UTF-8 are replaced."""
    text = values.cast(pa.large_string()).cast(pa.string(), safe=False)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = [item.as_py() for item in values.cast(pa.large_binary())]
        text = pa.array([item and item.decode("utf-8", "replace") for item in raw], pa.string())
    return text
