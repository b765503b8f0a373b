"""Finds where the iterations of a loop begin and end, including irregular iterations."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes, Ints
from perfpipe.ingest.periods import ALIKE, Loop

#: Share of equal symbols around a boundary that identifies other boundaries.
_SAME_PLACE = 0.8

#: Symbols on each side of a boundary that identify it.
_CONTEXT = 24


def boundaries(symbols: Codes, loop: Loop, start: int) -> Ints:
    """Return where each iteration of a loop begins, and where the last complete iteration ends.

    `start` is the beginning of a regular iteration.  Iterations with a few more or fewer symbols
    are found by the context of their boundary; a boundary hidden by noise is placed one period
    later.
    """
    period = loop.period
    # Less context for short periods: one irregular iteration must not hide both of its boundaries.
    after = min(_CONTEXT, -(-period // 3))
    before = min(after, start)
    context = symbols[start - before : start + after]
    # Search only around the loop: a sequence may have many loops.
    low = max(loop.first - period - before, 0)
    places, marks = _occurrences(symbols[low : loop.last + period + after], context)
    places += low + before
    kept = (places >= loop.first - period // 8) & (places <= loop.last + period // 8)
    return _completed(_spaced(places[kept], marks[kept], start, period), loop, len(symbols))


def _occurrences(symbols: Codes, context: Codes) -> tuple[Ints, npt.NDArray[np.int16]]:
    """Return where a sequence nearly equals a context, and the number of equal symbols."""
    alike = np.zeros(len(symbols) - len(context) + 1, np.int16)
    for offset, symbol in enumerate(context):
        alike += symbols[offset : offset + len(alike)] == symbol
    places = np.flatnonzero(alike >= _SAME_PLACE * len(context))
    return places, alike[places]


def _spaced(places: Ints, marks: npt.NDArray[np.int16], start: int, period: int) -> list[int]:
    """Choose places about one period apart, forward and backward from a known place."""
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
                # The next place that fits: the iteration before it is irregular.
                beyond = high if direction > 0 else low - 1
                if not 0 <= beyond < len(places):
                    break
                at = int(places[beyond])
            chosen.append(at)
    return sorted(chosen)


def _completed(chosen: list[int], loop: Loop, size: int) -> Ints:
    """Add boundaries hidden by noise, if an iteration spans a multiple of the period."""
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
    """Return where an irregular iteration before the first begins; None if there is none.

    It begins like the first iteration and contains most of its symbols.  Such an iteration is
    longer, because it includes initialization.
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
    """Return where an irregular iteration after the last ends; None if there is none.

    This is the mirrored case: it ends like the last iteration and contains most of its symbols.
    """
    found = irregular_first(symbols[::-1], loop, len(symbols) - last)
    return None if found is None else len(symbols) - found
