"""The numbers that a program prints, as series that can be compared between launches.

A number is identified by its line with all numbers removed, and its place in the line.  Times,
rates, settings and counters are no results: the words next to a number tell (printed.toml).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from perfpipe.files import packaged

#: Most characters that are read, half of them from the end, and most numbers of a series.
_MOST_TEXT, _MOST_NUMBERS = 2_000_000, 4096

#: Message in which a program says whether its result is right; also the line of its numbers.
VALIDATION = "validation"

#: Words before a number that are looked at, and the longest line.
_WORDS, _LONGEST = 4, 1000

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?"
    r"|nan\b|inf(?:inity)?\b)",
    re.IGNORECASE,
)
_SKIPPED = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]"  # colors
    r"|[\u2580-\u259f]+"  # bars of progress
    r"|\d{4}-\d\d-\d\d[T ]?|\d\d/\d\d/\d{2,4}"  # dates
    r"|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"  # clocks
)
#: Numbers that are part of the name: they tell which process printed a line.
_NAMED = re.compile(r"(?:rank|gpu|cuda|device|worker|node)[ _:=#]{0,2}\d+", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-zµ]+|[A-Z]+(?![a-z])")
_RATE = re.compile(r"\s?[A-Za-zµ]+\s?/\s?[A-Za-z]+")
_UNIT = re.compile(r"\s?°?([A-Za-zµ]+)\b")
_NEXT = re.compile(r"\s?%?\s?([A-Za-z]+)")

#: Stands for a digit that is part of the name.
_DIGITS = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")


class Number(NamedTuple):
    """A number in the output: its line without numbers, its place, its name, and what it is.

    `result` says that its name is that of a result; others may be something else.
    """

    line: str
    place: int
    name: str
    result: bool


@dataclass(frozen=True)
class Printed:
    """What a launch printed: series of numbers, and texts that it declared as `about`."""

    numbers: dict[Number, tuple[float, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


@cache
def _meanings() -> dict[str, frozenset[str]]:
    known = tomllib.loads(packaged("perfpipe.analysis.trying", "printed.toml"))
    return {name: frozenset(words.split()) for name, words in known.items()}


def printed(text: str) -> Printed:
    """Return the numbers in the output of a program that may be results."""
    if len(text) > _MOST_TEXT:
        text = f"{text[: _MOST_TEXT // 2]}\n{text[-_MOST_TEXT // 2 :]}"
    found: dict[Number, list[float]] = {}
    texts: dict[str, str] = {}
    for line in re.split(r"[\r\n]+", text):
        message = _message(line)
        if message is not None:
            numbers, more = _declared(message)
            texts |= more
        else:
            numbers = dict(_numbers(line[:_LONGEST]))
        for number, value in numbers.items():
            own = found.setdefault(number, [])
            if len(own) < _MOST_NUMBERS:
                own.append(value)
            else:
                own[-1] = value
    return Printed({number: tuple(own) for number, own in found.items()}, texts)


def _message(line: str) -> dict[str, object] | None:
    """Return a message of the protocol between programs and perfpipe."""
    if not line.startswith("{") or '"perfpipe"' not in line:
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and "perfpipe" in message else None


def _declared(message: dict[str, object]) -> tuple[dict[Number, float], dict[str, str]]:
    """Return the results in a message: those of a validation, and what is no version."""
    kind = str(message["perfpipe"])
    own = {name: value for name, value in message.items() if name != "perfpipe"}
    if kind == VALIDATION:
        return {
            Number(kind, at, f"validation {name.replace('_', ' ')}", True): float(value)
            for at, (name, value) in enumerate(sorted(own.items()))
            if isinstance(value, (int, float)) and name != "rank"
        }, {}
    if kind != "about":
        return {}, {}
    numbers, texts = {}, {}
    for name, value in own.items():
        if _kind_of(_words(name)) != "results" and not isinstance(value, float):
            continue
        if isinstance(value, (int, float)):
            numbers[Number(kind, 0, name, True)] = float(value)
        elif value is not None:
            texts[name] = str(value)
    return numbers, texts


def _numbers(line: str) -> Iterator[tuple[Number, float]]:
    """Yield the numbers in a line that may be results."""
    kept = _NAMED.sub(lambda found: found[0].translate(_DIGITS), _SKIPPED.sub(" ", line))
    places = [*_NUMBER.finditer(kept)]
    template = " ".join(_NUMBER.sub("#", kept).split())
    end = 0
    earlier: tuple[str | None, str] = (None, "a number")
    for place, match in enumerate(places):
        following = places[place + 1].start() if place + 1 < len(places) else len(kept)
        before, after = kept[end : match.start()], kept[match.end() : following]
        kind, name = earlier = _meaning(before, after, earlier)
        end = match.end()
        text = match[0].lower().replace(",", "")
        decimal = "." in text or "e" in text or "n" in text
        if kind == "results" or (kind is None and decimal):
            yield Number(template, place, name, kind == "results"), float(text)


def _meaning(before: str, after: str, earlier: tuple[str | None, str]) -> tuple[str | None, str]:
    """Return what a number is by the words around it, and its name.

    Without a word in front it is what the number in front of it is: 2.31 (2.42), 9912/10000.
    """
    words = _words(before)
    unit, behind = _UNIT.match(after), _NEXT.match(after)
    timed = _RATE.match(after) or (unit and unit[1].lower() in _meanings()["units"])
    if not words and not timed and earlier[0] is not None:
        return earlier
    name = " ".join(words[-3:]) or earlier[1]
    if timed:
        return "times", name
    return _kind_of(words[-_WORDS:]) or _kind_of(_words(behind[1] if behind else "")[:1]), name


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _kind_of(words: list[str]) -> str | None:
    """Return the list that has the last of the words that any list has."""
    for word in reversed(words):
        for kind in ("results", "times", "settings"):
            if word in _meanings()[kind]:
                return kind
    return None
