"""Finds how ncu printed the numbers of a file: it uses the locale of the machine that it ran on.

ncu prints whole numbers, or numbers with 1, 2 or 6 decimals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.units import base_unit

#: What ncu writes before a value that it doubts.
DOUBTED = "(!) "

#: Separators of thousands that are not decimal separators in any locale: spaces and apostrophes.
_GROUPS = " \u00a0\u2009\u202f'\u2019"

_NUMBER = re.compile(rf"[-+]?([0-9][0-9{_GROUPS}]*)(?:([.,])([0-9{_GROUPS}.,]*))?")
_OTHER = {".": ",", ",": "."}


@dataclass(frozen=True)
class NumberStyle:
    """The decimal separator of a file; thousands may be separated by any other sign."""

    decimal: str = "."

    def number(self, cell: str) -> float:
        """Return the number in a cell; ValueError if there is none."""
        if self.decimal == ".":
            try:
                # Nearly every number is one after this, which is much faster than to translate.
                return float(cell.replace(",", ""))
            except ValueError:
                pass
        return float(cell.removeprefix(DOUBTED).translate(_ONLY[self.decimal]))


_ONLY = {
    decimal: str.maketrans({_OTHER[decimal]: None, decimal: ".", **dict.fromkeys(_GROUPS)})
    for decimal in _OTHER
}

#: The style of English locales, and of C.
ENGLISH = NumberStyle()


def number_style(path: Path, cells: Iterable[tuple[str, str]]) -> NumberStyle:
    """Return the style of a file's numbers, given as (cell, unit).

    Raises InputError if the numbers have several styles, or if none of them shows the style: then
    117.344 could be a little more than 117, or 117,344.
    """
    shown: dict[str, str] = {}
    unclear: dict[str, tuple[str, str]] = {}
    for cell, unit in cells:
        decimal, sign = _decimal(cell)
        if decimal:
            shown.setdefault(decimal, cell)
        elif sign and (sign not in unclear or not _is_whole(unit)):
            unclear[sign] = cell, unit
    if len(shown) == 2:
        raise InputError(
            f"{path}: numbers of two locales ({shown['.']!r} and {shown[',']!r}); export the CSV "
            "again with LC_ALL=C"
        )
    if shown:
        return NumberStyle(*shown)
    if "." not in unclear:
        return ENGLISH
    cell, unit = unclear["."]
    if "," in unclear or not _is_whole(unit):
        raise InputError(
            f"{path}: it is unclear whether {cell!r} has decimals or separated thousands; export "
            "the CSV again with LC_ALL=C"
        )
    return NumberStyle(",")


@lru_cache(maxsize=1 << 16)
def _decimal(cell: str) -> tuple[str, str]:
    """Return the decimal separator that a number shows, or else the sign that may be one."""
    match = _NUMBER.fullmatch(cell.strip().removeprefix(DOUBTED))
    if match is None or match[2] is None:
        return "", ""
    before, sign, after = match.groups()
    if "." in after or "," in after:
        return _OTHER[sign], ""
    # Thousands are three digits, after one to three digits that are not 0.
    if len(after) != 3 or len(before) > 3 or before == "0":
        return sign, ""
    return "", sign


def _is_whole(unit: str) -> bool:
    """Return whether ncu prints values of a unit as whole numbers if they have no decimals.

    Scaled values and percentages with thousands do not exist.
    """
    base = base_unit(unit)
    return base.scale == 1 and base.unit not in ("", "%")
