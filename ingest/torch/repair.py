r"""Repairs events that Kineto wrote as invalid JSON.

Kineto writes names and paths without escaping quotes, backslashes and control characters, and it
writes numbers as `inf` and `nan`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

#: A number that JSON does not have, as C and C++ print it.
_NO_NUMBER = re.compile(r"([:,\[]\s*)[-+]?(?:inf(?:inity)?|nan(?:\([^)]*\))?)(?=\s*[,}\]])", re.I)

#: A backslash, with the character that makes it an escape.
_BACKSLASH = re.compile(r'\\(u[0-9a-fA-F]{4}|["\\/bfnrt])?')

#: The next bracket or text.
_TOKEN = re.compile(r'[{}\[\]"]')

#: Members of an event.
_MEMBER = r"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"

#: End of a text by its place: key, value in an event, value in its arguments, element of a list.
_KEY_END = re.compile(r'"(?=\s*:)')
_EVENT_VALUE_END = re.compile(rf'"(?=\s*(?:\}}\s*\Z|,\s*"{_MEMBER}"\s*:))')
_VALUE_END = re.compile(r'"(?=\s*(?:\}\s*(?:[,}\]]|\Z)|,\s*"[^"\n]{1,80}"\s*:))')
_ELEMENT_END = re.compile(r'"(?=\s*(?:\]|,\s*(?:["\[{]|-?\d|null|true|false)))')


#: The arguments of an event, if they are its last member, and a whole number among them.
_ARGUMENTS = re.compile(r'"args"\s*:\s*\{(.*)\}\s*\}\s*\Z', re.DOTALL)
_WHOLE_NUMBER = re.compile(r'"[^"\\\n]{1,80}"\s*:\s*-?\d+(?=\s*(?:[,}]|\Z))')


def repaired(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any] | None:
    """Return the event that a damaged text stands for; None if this is not clear.

    Numbers that JSON cannot express become None.  If the arguments are not clear, only their whole
    numbers are kept.
    """
    text = _NO_NUMBER.sub(r"\1null", text)
    for repair in (str, _requoted, _with_numbers_only):
        try:
            # Not strict: control characters are allowed.
            event = json.loads(repair(text), strict=False, parse_float=parse_float)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            return event
    return None


def _requoted(text: str) -> str:
    """Escape everything within the texts, whose ends are found by what follows them."""
    parts, at, open_brackets = list[str](), 0, list[str]()
    while (token := _TOKEN.search(text, at)) is not None:
        parts.append(text[at : token.end()])
        at = token.end()
        if token[0] in "{[":
            open_brackets.append(token[0])
        elif token[0] in "}]":
            open_brackets = open_brackets[:-1]
        elif (end := _text_end(text, token.start(), open_brackets)) is not None:
            parts.append(_quoted(text[at : end.start()]) + '"')
            at = end.end()
    return "".join([*parts, text[at:]])


def _with_numbers_only(text: str) -> str:
    """Keep the whole numbers of the arguments alone."""
    arguments = _ARGUMENTS.search(text)
    if arguments is None:
        return text
    numbers = ",".join(_WHOLE_NUMBER.findall(arguments[1]))
    return _requoted(text[: arguments.start()] + f'"args":{{{numbers}}}}}')


def _text_end(text: str, start: int, open_brackets: list[str]) -> re.Match[str] | None:
    """Return the quote that ends the text which starts at a quote."""
    if open_brackets[-1:] == ["["]:
        ending = _ELEMENT_END
    elif not text[:start].rstrip().endswith(":"):
        ending = _KEY_END
    else:
        ending = _EVENT_VALUE_END if len(open_brackets) == 1 else _VALUE_END
    return ending.search(text, start + 1)


def _quoted(inner: str) -> str:
    """Return a text between its quotes as JSON; its escapes are kept if all of them are valid."""
    if not all(match[1] for match in _BACKSLASH.finditer(inner)):
        inner = inner.replace("\\", r"\\")
    return re.sub(r'(\\.)|"', lambda match: match[1] or '\\"', inner, flags=re.DOTALL)
