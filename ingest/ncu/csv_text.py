"""Finds the CSV lines of ncu in text with output of the profiler, the program and launchers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.formats import is_utf_16
from perfpipe.ingest.ncu.faults import errors_of
from perfpipe.ingest.ncu.wrapped import unwrapped

#: Separator of cells, and the number of them in a line that rules out program output.
_BETWEEN, _MANY = '","', 8

#: Bytes from the end of a file that are checked at a time.
_BLOCK = 1 << 20

_PROFILED = '==PROF== Profiling "'

#: How rows begin: on pages with launches, and on the source page.
OF_LAUNCHES = re.compile(r'"(?:ID|[0-9]*)","')
OF_SOURCE = re.compile('"')

#: The first cell of a row, or a part of it.
_BEGUN = re.compile(r'"[0-9]*(?:",?)?')


@dataclass
class CsvText:
    """The CSV lines of a file, and facts from the other lines."""

    lines: list[str] = field(default_factory=list)
    profiled: int = 0
    #: Lines that may have errors of ncu.
    log: list[str] = field(default_factory=list)
    nuls: int = 0

    def warn(self, builder: ReportBuilder) -> None:
        """Add the facts of the other lines to the warnings of a report."""
        for error in errors_of("".join(self.log)):
            builder.warn(f"ncu: {error}")
        if self.nuls:
            builder.warn(
                f"{self.nuls:,} NUL bytes between the rows of the CSV, as after a crash or a full "
                "disk: rows may be lost"
            )


def read_csv_text(content: Path, path: Path, row: re.Pattern[str] = OF_LAUNCHES) -> CsvText:
    """Split a file into CSV lines (they begin as a row, or continue a quoted field) and noise.

    The file is at `content`; `path` is the user's name for it.  The encoding is UTF-8, or UTF-16
    with a byte-order mark; damaged bytes are replaced.  Raises InputError for a line that is a
    fragment of a row, and for NUL bytes at the end or within a row, which mean lost rows.
    """
    with content.open("rb") as binary:
        wide = is_utf_16(binary.read(2))
    _check_end(content, path, wide)
    encoding = "utf-16" if wide else "utf-8-sig"
    with content.open(encoding=encoding, errors="replace", newline="") as file:
        return _split(unwrapped(file), row, path)


def _split(lines: Iterable[str], row: re.Pattern[str], path: Path) -> CsvText:
    found = CsvText()
    inside = False
    for line in lines:
        if inside or row.match(line):
            if "\0" in line:
                raise InputError(
                    f"{path}: damaged CSV ({line.count(chr(0)):,} NUL bytes within a row)"
                )
            found.lines.append(line)
            inside ^= line.count('"') % 2 == 1
        elif found.lines and _is_part_of_row(line):
            raise InputError(f"{path}: damaged CSV (a line has only a part of a row)")
        elif "\0" in line:
            found.nuls += line.count("\0")
        elif _PROFILED in line:
            found.profiled += 1
        elif "==" in line:
            found.log.append(line)
    if inside:
        raise InputError(f"{path}: the CSV is truncated in the middle of a field")
    return found


def _check_end(content: Path, path: Path, wide: bool) -> None:
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
    # The last character of UTF-16 may end in one.
    if nuls > wide:
        raise InputError(
            f"{path}: truncated (the last {nuls:,} of {content.stat().st_size:,} bytes are NUL, as "
            "after a crash or a full disk; the rows at the end are lost)"
        )


def _is_part_of_row(line: str) -> bool:
    """Return whether a line that does not begin as a row is a fragment of one."""
    between, end = line.count(_BETWEEN), line.rstrip()
    if between and _is_json(end):
        return False
    if line.startswith('"'):
        return between > 0 or "\0" in line or _BEGUN.fullmatch(end) is not None
    if between:
        return between >= _MANY or end.endswith(('"', ","))
    # The last cell; a line of JSON may end the same way, but has two quotes.
    return end.endswith('",') and line.count('"') % 2 == 1


def _is_json(line: str) -> bool:
    if not line.startswith(("{", "[")):
        return False
    try:
        json.loads(line.rstrip(","))
    except (ValueError, RecursionError):
        return False
    return True
