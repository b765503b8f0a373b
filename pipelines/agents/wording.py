"""Makes texts of captures safe for agents: marked, escaped, bounded, without paths.

Anybody can name a kernel or range, so a name is data and never an instruction.  It stands between
MARKS, and characters that could be invisible or end the marks are escaped.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from perfpipe.pipelines.agents.cutting import first

#: Marks around text of a capture.
MARKS = ("\u27e6", "\u27e7")

#: Longest name, sentence and cell of a query, characters.
NAME, SENTENCE, CELL = 160, 600, 300

#: Invisible characters, and those that affect others: control, format, private, separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

#: Absolute paths of two parts or more, of a drive or home directory, and file addresses.
_PATH = re.compile(
    r"file:/+\S+|(?<![\w./])(?:[A-Za-z]:)?(?:[/\\][\w.+@%=~-]+){2,}|(?<!\w)~[\w-]*(?:/[\w.+@%=~-]+)+"
)

#: Digits of a number that an agent can use.
_DIGITS = 6


def captured(text: object, most: int = NAME) -> str | None:
    """Return text of a capture between marks; None for None."""
    return None if text is None else f"{MARKS[0]}{plain(str(text), most)}{MARKS[1]}"


def sentence(text: object) -> str | None:
    """Return a sentence that a program or a capture wrote, between marks."""
    return captured(text, SENTENCE)


def plain(text: str, most: int = SENTENCE) -> str:
    """Return text without paths and hidden characters, cut to a length."""
    # Cut first, generously: the next steps process every character.
    shown = seen(without_paths(text[: 4 * most]))
    return shown if len(shown) <= most and len(text) <= 4 * most else f"{shown[: most - 1]}\u2026"


def seen(text: str) -> str:
    """Return text with marks and hidden characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_seen(letter) for letter in text)


def without_paths(text: str) -> str:
    """Return text with absolute paths cut to their last part."""
    return _PATH.sub(lambda found: "\u2026/" + re.split(r"[/\\]", found[0])[-1], text)


def unmarked(text: str) -> str:
    """Return a name as an agent passes it, without the marks."""
    return text.strip().removeprefix(MARKS[0]).removesuffix(MARKS[1])


def without_marks(text: str) -> str:
    """Return a sentence without the marks around its names."""
    return text.replace(MARKS[0], "").replace(MARKS[1], "")


def names(asked: str, known: str | None) -> bool:
    """Return whether an agent's text is this name, which may have been cut in an answer."""
    return known is not None and unmarked(asked) in (known, plain(known, NAME))


def value(found: Any) -> Any:
    """Return a value of a query as JSON data: texts come from the capture, numbers are rounded."""
    if found is None or isinstance(found, (bool, int)):
        return found
    if isinstance(found, float):
        return float(f"{found:.{_DIGITS}g}") if math.isfinite(found) else None
    if isinstance(found, (list, tuple)):
        return first([value(one) for one in found[:_ITEMS]], _ITEMS, len(found))
    if isinstance(found, dict) and len(found) > _ITEMS:
        return value([{"key": key, "value": one} for key, one in found.items()])
    if isinstance(found, dict):
        return {plain(str(key), NAME): value(one) for key, one in found.items()}
    return captured(found, CELL)


def values(row: Mapping[str, Any], ours: Collection[str] = ()) -> dict[str, Any]:
    """Return a row of a query as JSON data; perfpipe wrote the texts in the columns `ours`."""
    return {key: one if key in ours else value(one) for key, one in row.items()}


#: Most items of a list in a cell.
_ITEMS = 20


def _seen(letter: str) -> str:
    if letter in MARKS or unicodedata.category(letter) in _HIDDEN:
        return letter.encode("unicode_escape").decode("ascii")
    return letter
