"""Key figures: what the heading of a folded table or section says of its content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfpipe.templates.formats import format_value, shorten
from perfpipe.units import counted, format_ns, gpu_name, request_rate, words
from perfpipe.viewmodel import Column, Section, Table, Value, columns_in
from perfpipe.visible import visible_line

#: Longest name in a key figure.
_LONGEST = 60

#: Columns of identifiers, which are shown as words.
_IDENTIFIERS = ("category", "cause", "reason", "problem", "bound")

#: Columns of the configuration, the GPU and the load of a row, each with its form in a sentence.
_NAMES: dict[str, Callable[[Any], str]] = {
    "label": visible_line,
    "device": gpu_name,
    "rate": request_rate,
}


def key_of(table: Table) -> str:
    """Return the key figure of a table, from its first row; empty if it has none.

    A table of several configurations, GPUs or loads names those of the row.
    """
    if not table.key or not table.rows:
        return ""
    cells = {
        column.name: (value, column)
        for value, column in zip(table.rows[0], table.columns, strict=True)
    }
    named = columns_in(table.key)
    if any(cells[name][0] is None for name in named):
        return ""
    # A sentence alone is not shortened: headings wrap.
    longest = None if table.key == f"{{{named[0]}}}" else _LONGEST
    text = table.key.format_map({name: _said(*cells[name], longest) for name in named})
    return text + _whose(table, {name: cell for name, cell in cells.items() if name not in named})


def section_key(section: Section) -> str:
    """Return the key figure of a section: of its first table that has one, else its size."""
    for table in section.tables:
        if key := key_of(table):
            return key
    if section.cards:
        return counted(len(section.cards), "kernel")
    return counted(len(section.tables[0].rows), "row") if section.tables else ""


def _whose(table: Table, cells: dict[str, tuple[Value, Column]]) -> str:
    """Return the configuration, GPU and load of the first row, if other rows have another."""
    names = []
    for name, said in _NAMES.items():
        if name in cells:
            value, column = cells[name]
            at = table.columns.index(column)
            if value not in (None, "-") and len({row[at] for row in table.rows}) > 1:
                names.append(said(value))
    return f" ({', '.join(names)})" if names else ""


def _said(value: Value, column: Column, longest: int | None) -> str:
    """Return a value with its unit, or a text of this length at most."""
    if column.kind == "ms" and isinstance(value, (int, float)):
        return format_ns(1e6 * value)
    text = format_value(value, column.kind)
    if column.kind == "pct":
        return f"{text} %"
    if text == "unknown":
        return "not profiled"
    text = words(text) if column.name in _IDENTIFIERS else text
    return text if longest is None else shorten(text, longest)
