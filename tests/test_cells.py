"""Cells of tables in HTML."""

from __future__ import annotations

from perfpipe.templates.cells import rows_of
from perfpipe.viewmodel import Column, Source, Table


def test_short_texts_at_the_edge_of_a_table_take_no_room() -> None:
    """Else the last column of loads lies outside of a window of 1300 pixels."""
    columns = tuple(Column(name, name, "text") for name in ("phase", "saturated"))
    rows = (("-", "no"), ("a longer text", "a longer text"))
    cells = str(rows_of(Table("t", "", columns, rows, 2, Source("v", ())), columns))
    assert cells.splitlines() == [
        '<tr><td class="name short">-</td><td class="short">no</td></tr>',
        '<tr><td class="name">a longer text</td><td>a longer text</td></tr>',
    ]
