"""Tables, records and cells of ncu's CSV."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfpipe.errors import InputError, brief
from perfpipe.ingest.ncu.csv_text import CsvText
from perfpipe.ingest.ncu.names import unit_of
from perfpipe.ingest.ncu.number_style import ENGLISH, NumberStyle
from perfpipe.units import base_unit

#: Kernel names may have any length, but Python refuses fields of 128 kB by default.
csv.field_size_limit(sys.maxsize)


def tables(
    path: Path, text: CsvText, first_cell: str
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield (header, rows) of each table whose header begins with `first_cell`.

    Raises InputError for CSV that ncu does not write: duplicate columns, rows before the header.
    """
    header: list[str] | None = None
    rows: list[list[str]] = []
    before: set[int] = set()
    try:
        for row in csv.reader(text.lines, strict=True):
            if row and row[0] == first_cell:
                if header is not None:
                    yield header, rows
                header, rows = row, []
                _check_header(path, header, before)
            elif row and header is not None:
                rows.append(row)
            else:
                # The program may also have printed quotes.
                before.add(len(row))
    except csv.Error as error:
        raise InputError(f"{path}: damaged CSV ({brief(error)})") from error
    if header is not None:
        yield header, rows


def _check_header(path: Path, header: list[str], before: set[int]) -> None:
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError(f"{path}: damaged CSV (duplicate column: {brief(twice)})")
    if len(header) in before and len(header) > 1:
        raise InputError(f"{path}: damaged CSV (rows before the header)")


def records(
    path: Path, header: list[str], rows: list[list[str]], cells: int = 0
) -> list[dict[str, str]]:
    """Return rows by column; raises InputError if a row has more or fewer cells than the header.

    Rows may also have `cells` cells, the last one empty.  Text that a program prints after a table
    may also be quoted, but is not a number.
    """
    own = [row for row in rows if len(row) > 1 or not row[0] or row[0].isdigit()]
    for number, row in enumerate(own, 1):
        if len(row) != len(header) and (len(row) != cells or row[-1]):
            last = " (the last row is truncated)" if number == len(own) else ""
            raise InputError(
                f"{path}: damaged CSV: row {number:,} of {len(own):,} has {len(row)} of "
                f"{len(header)} cells{last}"
            )
    return [dict(zip(header, row, strict=False)) for row in own]


#: Metrics whose values are text even if they look like a number.
TEXT_METRICS = frozenset(
    {
        "device__attribute_confidential_computing_mode",
        "device__attribute_display_name",
        "launch__cluster_scheduling_policy",
        "launch__func_cache_config",
        "launch__kernel_name",
        "launch__tpc_enabled",
    }
)

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_LARGEST = (1 << 63) - 1
_EXTENT = re.compile(r"\(?\s*([0-9]{1,18}),\s*([0-9]{1,18}),\s*([0-9]{1,18})\s*\)?")

_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]")

#: Cells that mean that a value was not collected.
NOTHING = frozenset({"no data", "n/a", "N/A", "(!) n/a"})


@dataclass(frozen=True)
class Cell:
    """A parsed cell, in base units: a number, a text, or neither ('no data')."""

    value: float | None
    text: str | None
    unit: str | None


def parse_cell(metric: str, cell: str, unit: str, style: NumberStyle = ENGLISH) -> Cell | None:
    """Parse a value cell; None if it is empty, which means not collected.

    Units are decimal multiples of base units.
    """
    cell = cell.strip()
    if not cell:
        return None
    base = base_unit(unit)
    named = unit_of(metric, base.unit or None)
    if cell in NOTHING:
        return Cell(None, None, named)
    if metric not in TEXT_METRICS:
        try:
            number = style.number(cell)
        except ValueError:
            return Cell(None, cell, named)
        if number - number == 0:
            return Cell(number * base.scale, None, named)
    return Cell(None, cell, named)


def whole(cell: str | None) -> int | None:
    """Return a cell as an integer of 64 bits, or None if it is not one."""
    digits = (cell or "").replace(",", "").strip()
    number = int(digits) if _WHOLE.fullmatch(digits) else None
    return number if number is not None and -_LARGEST <= number <= _LARGEST else None


def extent(cell: str) -> tuple[int, int, int] | None:
    """Return the numbers of a cell such as "(384, 1, 1)"; None if CUDA allows no such grid."""
    match = _EXTENT.fullmatch(cell)
    if match is None:
        return None
    x, y, z = int(match[1]), int(match[2]), int(match[3])
    return (x, y, z) if x < 1 << 31 and y < 1 << 16 and z < 1 << 16 else None


def capability(cell: str) -> str | None:
    """Return a compute capability such as "9.0"; None for any other text."""
    return cell if _CAPABILITY.fullmatch(cell) else None
