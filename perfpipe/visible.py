"""Makes foreign text safe to show and to store.

Control characters for terminals and browsers are escaped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

#: Longest text that a page shows in full; kernel names can have tens of thousands of characters.
_LONGEST = 50_000

_NUMBERS = frozenset({int, float, bool, type(None)})


def visible(text: str, keep: str = "\n\t") -> str:
    r"""Return a text with its control and direction characters escaped.

    >>> print(visible("\x1b]8;;http://x\x07link \u202eabc\n"), end="")
    \x1b]8;;http://x\x07link \u202eabc
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _spelled(c) for c in text)


def visible_line(text: str) -> str:
    r"""Return a text on one line.

    >>> visible_line("a\nb")
    'a\\nb'
    """
    return visible(text, "")


def encodable(text: str) -> str:
    r"""Return a text with "?" for lone surrogates, which UTF-8 cannot express.

    >>> encodable("a\ud800b")
    'a?b'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _bounded(text: str) -> str:
    """Return a text cut to what a page can hold; a digest keeps it unique."""
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
    return f"{text[:_LONGEST]}… ({len(text):,} characters, sha256 {digest})"


def _spelled(character: str) -> str:
    if character.isspace() and character not in "\n\r\t\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029":
        return " "  # no-break spaces and such
    return character.encode("unicode_escape").decode("ascii")


def shown(value: Any) -> Any:
    """Return a value with every text in it visible, within tuples and dataclasses too."""
    if isinstance(value, str):
        return visible(_bounded(value))
    if isinstance(value, tuple):
        # Drawings have tens of thousands of numbers and tuples of numbers.
        if _NUMBERS.issuperset(map(type, value)) or (
            all(isinstance(item, tuple) for item in value)
            and _NUMBERS.issuperset(map(type, chain.from_iterable(value)))
        ):
            return value
        made = tuple(map(shown, value))
        if all(a is b for a, b in zip(made, value, strict=True)):
            return value
        return type(value)(*made) if hasattr(value, "_fields") else made
    if isinstance(value, Mapping):
        return {name: shown(item) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        show_fields(value)
    return value


def show_fields(record: Any) -> None:
    """Make every text of a frozen dataclass visible in place."""
    for item in fields(record):
        old = getattr(record, item.name)
        new = shown(old)
        if new is not old:
            object.__setattr__(record, item.name, new)
