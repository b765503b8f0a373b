"""Prints rows on a terminal: as a table if it fits, else each row as a list of its values."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

#: Longest value that is not broken into lines, and the space between columns.
_WHOLE, _SPACE = 16, 2


def grid(
    names: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int
) -> list[str]:
    """Return lines of at most `width` characters that show some rows.

    Columns whose values are all `numeric` are aligned right.  Names are broken at underscores, and
    long texts anywhere, before a table becomes a list.
    """
    from rich.cells import cell_len

    lengths = [max((cell_len(row[at]) for row in rows), default=0) for at in range(len(names))]
    space = _SPACE * (len(names) - 1)
    if sum(map(max, lengths, map(cell_len, names))) + space > width:
        parts = [re.findall(r"[^_]*_|[^_]+$", name) or [name] for name in names]
        least = [
            max(min(length, _WHOLE), *map(cell_len, own))
            for length, own in zip(lengths, parts, strict=True)
        ]
        if sum(least) + space > width:
            return _listed(names, rows)
        names = [_broken(own, room) for own, room in zip(parts, least, strict=True)]
    return _table(names, rows, numeric, lengths, width)


def _table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    lengths: Sequence[int],
    width: int,
) -> list[str]:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name, right, length in zip(names, numeric, lengths, strict=True):
        table.add_column(
            escape(name),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=length <= _WHOLE,
            min_width=min(length, _WHOLE),
        )
    for row in rows:
        table.add_row(*map(escape, row))
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None).print(table)
    return [line.rstrip() for line in buffer.getvalue().splitlines()]


def _listed(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each value on a line of its own, with an empty line between rows."""
    from rich.cells import cell_len

    room = max(map(cell_len, names), default=0) + _SPACE
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        lines += [
            f"{name}{' ' * (room - cell_len(name))}{value}"
            for name, value in zip(names, row, strict=True)
        ]
    return lines


def _broken(parts: Sequence[str], room: int) -> str:
    """Return the parts of a name in lines of at most this length."""
    from rich.cells import cell_len

    lines = [""]
    for part in parts:
        if lines[-1] and cell_len(lines[-1] + part) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
