"""Formats values: units, digits, and a dash for what was not collected."""

from __future__ import annotations

from perfpipe.units import format_bytes, format_ns, format_rate
from perfpipe.viewmodel import Column, Kind, Value
from perfpipe.visible import visible_line

#: Shown for NULL: not collected, which is not zero.
NOT_COLLECTED = "-"

#: Units of values as data, by the kind of their column; shown values state theirs.
RAW_UNITS = {"ns": "ns", "bytes": "B", "flops": "FLOP/s", "bandwidth": "B/s", "hz": "Hz"}


def format_value(value: Value, kind: Kind) -> str:
    """Return a value as displayed text on one line."""
    if value is None:
        return NOT_COLLECTED
    if kind == "lines":
        return next((line for line in reversed(str(value).splitlines()) if line.strip()), "")
    if kind == "text" or isinstance(value, str):
        return visible_line(str(value))
    if kind == "ns":
        return format_ns(value)
    if kind == "bytes":
        return format_bytes(value)
    if kind in ("flops", "bandwidth", "hz"):
        unit = {"flops": "FLOP/s", "bandwidth": "B/s", "hz": "Hz"}[kind]
        return format_rate(value, unit)
    if kind == "pct":
        return f"{value:.1f}"
    if kind == "change":
        # Not -0.0.
        return f"{round(value, 1) + 0.0:+.1f}"
    if kind == "int":
        return f"{value:,.0f}"
    if kind == "ms":
        return f"{value:.4f}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def header(column: Column) -> str:
    """Return a column's title with its unit."""
    return f"{column.title} ({column.unit})" if column.unit else column.title


def is_number(kind: Kind) -> bool:
    """Return whether a column is right-aligned."""
    return kind not in ("text", "lines")


def shorten(text: str, limit: int) -> str:
    """Truncate text in the middle, where kernel names differ least."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - limit :]}"
