"""Finds where the iterations of a loop begin and end, including irregular iterations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes, Ints
from perfpipe.ingest.columns import Columns, joined, rows_where, slices
from perfpipe.ingest.periods import Loop
from perfpipe.ingest.stretches import ALIKE

#: Share of equal symbols around a boundary that identifies other boundaries.
_SAME_PLACE = 0.8

#: Symbols on each side of a boundary that identify it.
_CONTEXT = 24


def boundaries(symbols: Codes, loop: Loop, start: int, columns: Columns) -> Ints:
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
    beside = columns.beside()
    places, marks = _occurrences(symbols[low : loop.last + period + after], context, beside)
    for some in slices(len(places)):
        places[some] += low + before
    kept = slice(*np.searchsorted(places, (loop.first - period // 8, loop.last + period // 8 + 1)))
    spaced = _spaced(places[kept], marks[kept], start, period, beside)
    return _completed(spaced, loop, len(symbols), columns)


def _occurrences(
    symbols: Codes, context: Codes, columns: Columns
) -> tuple[Ints, npt.NDArray[np.int16]]:
    """Return where a sequence nearly equals a context, and the number of equal symbols."""
    count = len(symbols) - len(context) + 1
    places, marks = columns.new(count, np.int64), columns.new(count, np.int16)
    first = 0
    for some in slices(count):
        alike = np.zeros(some.stop - some.start, np.int16)
        for offset, symbol in enumerate(context):
            alike += symbols[some.start + offset : some.stop + offset] == symbol
        found = np.flatnonzero(alike >= _SAME_PLACE * len(context))
        last = first + len(found)
        places[first:last], marks[first:last] = some.start + found, alike[found]
        first = last
    return places[:first], marks[:first]


def _spaced(
    places: Ints, marks: npt.NDArray[np.int16], start: int, period: int, columns: Columns
) -> Ints:
    """Choose places about one period apart, forward and backward from a known place."""
    reach = period // 4
    breaks = _breaks(places, marks, period, columns)
    found = []
    for direction in (-1, 1):
        chosen, count = columns.new(len(places) + 1, np.int64), 0
        at, index = start, int(np.searchsorted(places, start))
        while True:
            if index < len(places) and places[index] == at:
                for part in _regular(index, direction, breaks, len(places)):
                    chosen[count : count + len(part)] = places[part]
                    count += len(part)
                    index = int(part[-1])
                    at = int(places[index])
            target = at + direction * period
            low, high = np.searchsorted(places, (target - reach, target + reach + 1)).tolist()
            if high > low:
                score = marks[low:high] * period - np.abs(places[low:high] - target)
                index = low + int(np.argmax(score))
            else:
                # The next place that fits: the iteration before it is irregular.
                index = high if direction > 0 else low - 1
                if not 0 <= index < len(places):
                    break
            at = int(places[index])
            chosen[count] = at
            count += 1
        found.append(chosen[:count])
    return joined(columns, [found[0][::-1], np.array([start]), found[1]])


def _breaks(places: Ints, marks: npt.NDArray[np.int16], period: int, columns: Columns) -> Ints:
    """Return which places are not one period before the next; both must have the most marks."""
    most = max((int(marks[some].max()) for some in slices(len(marks))), default=0)

    def breaks(some: slice) -> npt.NDArray[np.bool_]:
        both = slice(some.start, some.stop + 1)
        full = marks[both] == most
        apart: npt.NDArray[np.bool_] = np.diff(places[both]) != period
        apart |= ~(full[:-1] & full[1:])
        return apart

    return rows_where(columns, max(len(places) - 1, 0), breaks)


def _regular(index: int, direction: int, breaks: Ints, count: int) -> Iterator[Ints]:
    """Yield the places that certainly are the next after one, a few at a time."""
    after = int(np.searchsorted(breaks, index))
    if direction > 0:
        last = int(breaks[after]) if after < len(breaks) else count - 1
        reached = last - index
    else:
        reached = index - (int(breaks[after - 1]) + 1 if after else 0)
    for some in slices(reached):
        yield index + direction * np.arange(some.start + 1, some.stop + 1)


def _completed(chosen: Ints, loop: Loop, size: int, columns: Columns) -> Ints:
    """Add boundaries hidden by noise, if an iteration spans a multiple of the period."""
    period = loop.period
    slack = period // 8
    head = (int(chosen[0]) - loop.first + slack) // period
    tail = (loop.last + slack - int(chosen[-1])) // period
    before = chosen[0] - period * np.arange(max(head, 0), 0, -1)
    behind = chosen[-1] + period * np.arange(1, max(tail, 0) + 1)
    ends = joined(columns.beside(), [before, chosen, behind])

    def times(some: slice) -> Ints:
        """Return how many iterations follow some boundaries before the next."""
        apart = np.diff(ends[some.start : some.stop + 1])
        times = np.rint(apart / period).astype(np.int64)
        return np.where((times > 1) & (np.abs(apart - times * period) <= slack), times, 1)

    count = sum(int(times(some).sum()) for some in slices(len(ends) - 1))
    whole, first = columns.new(count + 1, np.int64), 0
    for some in slices(len(ends) - 1):
        often = times(some)
        last = first + int(often.sum())
        within = np.arange(last - first) - np.repeat(np.cumsum(often) - often, often)
        whole[first:last] = np.repeat(ends[some], often) + period * within
        first = last
    whole[-1] = ends[-1]
    # Those beyond either end of the sequence become one at the end.
    low, high = int(np.searchsorted(whole, 0, side="right")), int(np.searchsorted(whole, size))
    whole[low - 1 : low] = np.maximum(whole[low - 1 : low], 0)
    whole[high : high + 1] = size
    return whole[max(low - 1, 0) : high + 1]


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
    places = low + _occurrences(symbols[low : high + len(context) - 1], context, Columns())[0]
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
