"""Unit strings of Nsight Compute: scale prefixes to base units, and format sizes and names.

ncu's prefixes are decimal (233.472 Kbyte = 233,472 byte).  Prefixes before and after the slash are
undone, except that ncu *multiplies* for `%/Kbyte`: it prints 3350 %/byte as 3.35 %/Kbyte, so the
inverse follows the tool, not the arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

DECIMAL_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}

_TIME_NS = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
}
_PREFIXED = re.compile(r"^([KMGTPE])(byte|hz|bit)$", re.IGNORECASE)


class BaseUnit(NamedTuple):
    """`value_in_file * scale` is the value in `unit`."""

    scale: float
    unit: str


@cache
def base_unit(unit: str) -> BaseUnit:
    """Return the scale and the base unit of a unit string printed by ncu.

    >>> base_unit("Mbyte/block")
    BaseUnit(scale=1000000.0, unit='byte/block')
    >>> base_unit("sector/us")
    BaseUnit(scale=1000000.0, unit='sector/s')
    """
    numerator, slash, denominator = unit.partition("/")
    scale, numerator = _scale_of(numerator)
    if not slash:
        return BaseUnit(scale, numerator)
    if denominator in _TIME_NS:
        per_second = 1e9 / _TIME_NS[denominator]
        return BaseUnit(scale * per_second, f"{numerator}/s")
    below, denominator = _scale_of(denominator)
    return BaseUnit(scale * below, f"{numerator}/{denominator}")


def _scale_of(word: str) -> tuple[float, str]:
    if word in _TIME_NS:
        return _TIME_NS[word], "ns"
    if match := _PREFIXED.match(word):
        return DECIMAL_PREFIXES[match[1].upper()], match[2].lower()
    return 1.0, word


def format_bytes(size: float) -> str:
    """Return a size in decimal units: 1500 -> '1.5 kB'."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(size) < 1000 or prefix == "T":
            return f"{size:.0f} B" if not prefix else f"{size:.1f} {prefix}B"
        size /= 1000
    raise AssertionError("unreachable")


def format_rate(rate: float, unit: str) -> str:
    """Return a rate with three significant digits: 7.622e14 -> '762 TFLOP/s'."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        # Peaks of tensor cores are quoted in TFLOP/s.
        if abs(rate) >= scale and not (prefix == "P" and unit == "FLOP/s"):
            return f"{_three_digits(rate / scale)} {prefix}{unit}"
    return f"{_three_digits(rate)} {unit}"


def format_joules(joules: float) -> str:
    """Return an energy with three significant digits: 0.0123 -> '12.3 mJ'."""
    return format_rate(1e3 * joules, "mJ") if 0 < joules < 0.9995 else format_rate(joules, "J")


#: Columns with positions in time, of which every digit counts.
_POSITION = re.compile(r"(.*_)?(start|started|end|at|from|to|until|timestamp|offset)_ns")

#: How values are shown, by the unit that the name of a column states.
_BY_UNIT: dict[str, Callable[[float], str]] = {
    "ns": lambda value: format_ns(value),
    "us": lambda value: format_ns(1e3 * value),
    "ms": lambda value: format_ns(1e6 * value),
    "pct": lambda value: f"{value:.1f} %",
    "bytes": lambda value: format_bytes(value),
    "flop_per_s": lambda value: format_rate(value, "FLOP/s"),
    "bytes_per_s": lambda value: format_rate(value, "B/s"),
    "hz": lambda value: format_rate(value, "Hz"),
    "mhz": lambda value: f"{value:,.0f} MHz",
}
_UNIT = re.compile(rf"(?:.*_)?({'|'.join(sorted(_BY_UNIT, key=len, reverse=True))})(?:_of_\w+)?")


def in_unit(column: str, value: float) -> str | None:
    """Return a value of a column with the unit that its name states; None if it states none.

    >>> in_unit("idle_ns", 24786815), in_unit("pct_of_peak", 75.2129), in_unit("launches", 12)
    ('24.8 ms', '75.2 %', None)
    """
    if _POSITION.fullmatch(column):
        return f"{value:,} ns"
    match = _UNIT.fullmatch(column)
    return _BY_UNIT[match[1]](value) if match else None


def words(name: str) -> str:
    """Return an identifier as words: partial_wave becomes partial wave."""
    return _WORDS.get(name) or name.replace("_", " ")


#: Identifiers that mean little on their own.
_WORDS = {
    "gather_scatter": "gather/scatter",
    "host": "host-bound idle time",
    "launch_api": "launch API calls",
    "device_wait": "wait on the device",
    "building": "kernel or graph building",
    "no_work": "waiting for work",
    "loading": "module loading",
    "queued": "queued work",
    "sync": "host synchronization",
}


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: 1 launch, 12 launches, 3 copies."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2:-1] not in set("aeiou"):
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def request_rate(rate: float) -> str:
    """Return a rate of requests with its unit: 1 request/s, 2.5 requests/s."""
    return f"{rate:g} {'request' if rate == 1 else 'requests'}/s"


def with_article(noun: str) -> str:
    """Return a noun with its article: a step, an iteration."""
    return f"{'an' if noun.startswith(('a', 'e', 'i', 'o')) else 'a'} {noun}"


def ago(seconds: float) -> str:
    """Return how long ago something was, in its largest unit.

    >>> ago(20), ago(100), ago(7300)
    ('just now', '1 minute ago', '2 hours ago')
    """
    for noun, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return f"{counted(int(seconds // size), noun)} ago"
    return "just now"


def gpu_name(device: int | None) -> str:
    """Return the name of a GPU: GPU 0, or that its number is unknown."""
    return "an unknown GPU" if device is None else f"GPU {device}"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def format_ns(ns: float) -> str:
    """Return a duration with three significant digits: 1234567 -> '1.23 ms'."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}" if abs(ns) < 1000 * scale else f"{ns / scale:,.0f} s"
    return f"{ns:.0f} ns"
