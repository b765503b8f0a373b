"""Finds where the repeats of a loop begin and end, irregular ones included."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes, Ints
from perfpipe.ingest.periods import ALIKE, Loop

#: Share of the symbols around a boundary by which it is recognized elsewhere.
_SAME_PLACE = 0.8

#: Symbols on either side of a boundary that identify it.
_CONTEXT = 24


def boundaries(symbols: Codes, loop: Loop, start: int) -> Ints:
    """Return where each repeat of a loop begins, and where the last whole one ends.

    `start` is the beginning of a regular repeat.  Repeats with some symbols more or fewer are
    found by what surrounds a boundary; one that noise hides is put a period further on.
    """
    period = loop.period
    # Of short repeats less, so that one irregular repeat hides none of its two boundaries.
    after = min(_CONTEXT, -(-period // 3))
    before = min(after, start)
    context = symbols[start - before : start + after]
    # Only around the loop: a sequence may have many.
    low = max(loop.first - period - before, 0)
    places, marks = _occurrences(symbols[low : loop.last + period + after], context)
    places += low + before
    kept = (places >= loop.first - period // 8) & (places <= loop.last + period // 8)
    return _completed(_spaced(places[kept], marks[kept], start, period), loop, len(symbols))


def _occurrences(symbols: Codes, context: Codes) -> tuple[Ints, npt.NDArray[np.int16]]:
    """Return where a sequence nearly equals a context, and in how many symbols."""
    alike = np.zeros(len(symbols) - len(context) + 1, np.int16)
    for offset, symbol in enumerate(context):
        alike += symbols[offset : offset + len(alike)] == symbol
    places = np.flatnonzero(alike >= _SAME_PLACE * len(context))
    return places, alike[places]


def _spaced(places: Ints, marks: npt.NDArray[np.int16], start: int, period: int) -> list[int]:
    """Choose places about a period apart, forwards and backwards from a known one."""
    reach = period // 4
    chosen = [start]
    for direction in (1, -1):
        at = start
        while True:
            target = at + direction * period
            low, high = np.searchsorted(places, (target - reach, target + reach + 1))
            if high > low:
                score = marks[low:high] * period - np.abs(places[low:high] - target)
                at = int(places[low + int(np.argmax(score))])
            else:
                # The next that fits: the repeat between is irregular.
                beyond = high if direction > 0 else low - 1
                if not 0 <= beyond < len(places):
                    break
                at = int(places[beyond])
            chosen.append(at)
    return sorted(chosen)


def _completed(chosen: list[int], loop: Loop, size: int) -> Ints:
    """Add boundaries that noise hid: where a repeat is a multiple of the period long."""
    period, whole = loop.period, list[int]()
    slack = period // 8
    head = (chosen[0] - loop.first + slack) // period
    tail = (loop.last + slack - chosen[-1]) // period
    ends = [chosen[0] - k * period for k in range(head, 0, -1)]
    ends += [*chosen, *(chosen[-1] + k * period for k in range(1, tail + 1))]
    for at, following in pairwise(ends):
        times = round((following - at) / period)
        fits = times > 1 and abs(following - at - times * period) <= slack
        whole += [at + k * period for k in range(times)] if fits else [at]
    whole.append(ends[-1])
    return np.unique(np.clip(whole, 0, size))


def irregular_first(symbols: Codes, loop: Loop, first: int) -> int | None:
    """Return where an irregular repeat before the first begins; None if there is none.

    It begins as the first does, and holds most of what a repeat holds: first repeats also set
    things up, so they are longer.
    """
    period = loop.period
    context = symbols[first : first + min(_CONTEXT, -(-period // 3))]
    low = max(0, first - 2 * period)
    high = first - period // 2
    if high <= low:
        return None
    places = low + _occurrences(symbols[low : high + len(context) - 1], context)[0]
    usual = np.bincount(symbols[first : first + period])
    for place in places[np.argsort(np.abs(first - period - places), kind="stable")][:8]:
        held = np.bincount(symbols[place:first], minlength=len(usual))[: len(usual)]
        if np.minimum(held, usual).sum() >= ALIKE * period:
            return int(place)
    return None


def irregular_last(symbols: Codes, loop: Loop, last: int) -> int | None:
    """Return where an irregular repeat behind the last ends; None if there is none.

    It is a first one read backwards: it ends as the last does, and holds most of what that holds.
    """
    found = irregular_first(symbols[::-1], loop, len(symbols) - last)
    return None if found is None else len(symbols) - found
