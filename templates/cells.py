"""The rows of tables in HTML: most of a page, so they are made without the template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

from markupsafe import Markup, escape

from perfpipe.templates.formats import format_value, is_number, shorten
from perfpipe.viewmodel import Column, Kind, Table, Value
from perfpipe.visible import visible

#: Longest cell; longer texts are truncated and shown in full on hover.
_BRIEF = 64

#: Longest word that a column makes room for.
_LONG_WORD = 16

#: Longest text for which no room is made, so that the table is no wider than it must be.
_SHORT = 12

#: Makes the cell of a row.
_Cell = Callable[[tuple[Value, ...]], str]


def rows_of(
    table: Table,
    columns: Sequence[Column],
    *,
    named: bool = True,
    folds: bool = True,
    most: int | None = None,
) -> Markup:
    """Return the rows of a table, or `most` of them, with some of its columns.

    Rows are `named` by their first cell; where the script `folds` and filters, they say by what.
    """
    last = len(columns) - 1
    cells = [
        _cell(table, column, first=named and not at, edge=at in (0, last))
        for at, column in enumerate(columns)
    ]
    bound, depth = place_of(table, "bound"), place_of(table, table.tree)
    lines = []
    for row in table.rows[:most]:
        said = ""
        if folds and bound is not None and row[bound]:
            said = f' data-bound="{_text(row[bound])}"'
        if folds and depth is not None:
            said += f' data-depth="{int(row[depth] or 0)}"'
        lines.append(f"<tr{said}>{''.join([cell(row) for cell in cells])}</tr>\n")
    return Markup("".join(lines))  # noqa: S704


def local_url(path: str) -> str | None:
    """Return a relative path as URL; None for an absolute one, which could lead to another host.

    >>> local_url("runs/gemm 1/report.html")
    'runs/gemm%201/report.html'
    >>> local_url("javascript:alert(1)")
    'javascript%3Aalert%281%29'
    """
    return None if not path or path.startswith("/") else quote(path, errors="replace")


def _cell(table: Table, column: Column, *, first: bool, edge: bool) -> _Cell:
    """Return what makes the cells of a column: the `first` names the row, an `edge` ends it."""
    at, kind = table.columns.index(column), column.kind
    if is_number(kind):
        return lambda row: _number(row[at], kind)
    hover = next((n for n, c in enumerate(table.columns) if c.hover_of == column.name), None)
    link = next((n for n, c in enumerate(table.columns) if c.link_of == column.name), None)

    def made(row: tuple[Value, ...]) -> str:
        value = row[at]
        if kind == "lines" and value is not None:
            return f'<td class="lines"><pre>{_text(value)}</pre></td>'
        path = None if link is None else row[link]
        url = local_url(path) if isinstance(path, str) else None
        return _words(
            format_value(value, kind), None if hover is None else row[hover], url, first, edge
        )

    return made


def _number(value: Value, kind: Kind) -> str:
    said = ""
    if kind == "pct" and isinstance(value, (int, float)):
        said = f' pct" style="--w:{round(min(max(value, 0), 100), 1)}%'
    raw = _raw(value, kind)
    data = "" if raw is None else f' data-v="{_text(raw)}"'
    return f'<td class="n{said}"{data}>{_text(format_value(value, kind))}</td>'


def _words(text: str, hover: Value, url: str | None, first: bool, edge: bool) -> str:
    brief = shorten(text, _BRIEF)
    # A word that is wider than most columns may be broken anywhere.
    long = max(map(len, brief.split()), default=0) > _LONG_WORD
    # The first and the last column of text have room for long ones.
    classes = ["name"] if first else ["long"] if long else []
    classes += ["short"] if edge and len(brief) <= _SHORT else []
    said = f' class="{" ".join(classes)}"' if classes else ""
    if hover or brief != text:
        said += f' title="{_text(hover or text)}"'
    if brief != text:
        said += f' data-v="{_text(text)}"'
    shown = _text(brief)
    linked = f'<a href="{_text(url)}">{shown}</a>' if url else shown
    return f"<td{said}>{linked}</td>"


def _text(value: object) -> str:
    """Return a value as the template shows it."""
    return escape(visible(value) if type(value) is str else value)


def _raw(value: Value, kind: Kind) -> str | None:
    """Return a number for the script; None if the displayed text is enough."""
    if value is None or kind in ("int", "pct", "number", "ms"):
        return None
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def place_of(table: Table, name: str) -> int | None:
    """Return the place of a column; None if the table has none of that name."""
    return next((at for at, column in enumerate(table.columns) if column.name == name), None)
