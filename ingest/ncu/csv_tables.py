"""Finds ncu's CSV tables in text that may contain output of the profiler and the program."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perfpipe.errors import InputError, brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.ncu.names import unit_of
from perfpipe.units import base_unit

#: Separator of cells, and the number of them in a line that rules out program output.
_BETWEEN, _MANY = '","', 8

#: Bytes from the end of a file that are checked at a time.
_BLOCK = 1 << 20

#: Kernel names may have any length, but Python refuses fields of 128 kB by default.
csv.field_size_limit(sys.maxsize)

_PROFILED = re.compile(r'^==PROF== Profiling "')
_ERROR = re.compile(r"^==ERROR== (.*)")


@dataclass
class CsvText:
    """The CSV lines of a file, and facts from the other lines."""

    lines: list[str] = field(default_factory=list)
    profiled: int = 0
    errors: list[str] = field(default_factory=list)
    nuls: int = 0

    def warn(self, builder: ReportBuilder) -> None:
        """Add the facts of the other lines to the warnings of a report."""
        for error in self.errors:
            builder.warn(f"ncu: {error}")
        if self.nuls:
            builder.warn(
                f"{self.nuls:,} NUL bytes between the rows of the CSV, as after a crash or a full "
                "disk: rows may be lost"
            )


def read_csv_text(content: Path, path: Path) -> CsvText:
    """Split a file into CSV lines (they begin with a quote, or continue a quoted field) and noise.

    The file is at `content`; `path` is the user's name for it.  The encoding is UTF-8 with or
    without a byte-order mark; damaged bytes are replaced.  Raises InputError for a line that is a
    fragment of a row, and for NUL bytes at the end or within a row, which mean lost rows.
    """
    _check_end(content, path)
    found = CsvText()
    inside = False
    with content.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        for line in file:
            if inside or line.startswith('"'):
                if "\0" in line:
                    raise InputError(
                        f"{path}: damaged CSV ({line.count(chr(0)):,} NUL bytes within a row)"
                    )
                found.lines.append(line)
                inside ^= line.count('"') % 2 == 1
            elif "\0" in line:
                found.nuls += line.count("\0")
            elif _PROFILED.match(line):
                found.profiled += 1
            elif match := _ERROR.match(line):
                found.errors.append(match[1].strip())
            elif _is_part_of_row(line):
                raise InputError(f"{path}: damaged CSV (a row does not start with a quote)")
    if inside:
        raise InputError(f"{path}: the CSV is truncated in the middle of a field")
    return found


def _check_end(content: Path, path: Path) -> None:
    """Raise InputError if a file ends in NUL bytes, as it may after a crash."""
    nuls, at = 0, content.stat().st_size
    with content.open("rb") as file:
        while at:
            size = min(at, _BLOCK)
            file.seek(at - size)
            block = file.read(size)
            kept = len(block.rstrip(b"\0"))
            nuls += len(block) - kept
            if kept:
                break
            at -= size
    if nuls:
        raise InputError(
            f"{path}: truncated (the last {nuls:,} of {content.stat().st_size:,} bytes are NUL, as "
            "after a crash or a full disk; the rows at the end are lost)"
        )


def _is_part_of_row(line: str) -> bool:
    """Return whether a line that does not begin with a quote is a fragment of a row."""
    between, end = line.count(_BETWEEN), line.rstrip()
    if between:
        return between >= _MANY or end.endswith(('"', ","))
    # The last cell; a line of JSON may end the same way, but has two quotes.
    return end.endswith('",') and line.count('"') % 2 == 1


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


def parse_cell(metric: str, cell: str, unit: str) -> Cell | None:
    """Parse a value cell; None if it is empty, which means not collected.

    Thousands are separated by commas, and units are decimal multiples of base units.
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
            number = float(cell.removeprefix("(!) ").replace(",", ""))
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
