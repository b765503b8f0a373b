"""Finds the parts of a sequence that repeat at a given distance."""

from __future__ import annotations

import math

import numpy as np

from perfpipe.ingest.arrays import Codes
from perfpipe.ingest.columns import slices

#: Share of equal symbols, within about one period, that continues a stretch.
ALIKE = 0.7

#: Share of equal symbols that extends a stretch to its ends.
NEARLY_ALL = 0.9

#: Minimum iterations of a loop.
REPEATS = 3

#: Periods for which a shorter pattern must repeat to be a separate loop, not layers of a step.
_FOR_LONG = 1.5


def own_stretches(
    symbols: Codes, period: int
) -> tuple[list[tuple[int, int, int]], tuple[int, int] | None]:
    """Return the stretches that repeat at a period, without long parts of a shorter period.

    If all of it repeats at shorter periods that differ, returns the longest such part: the period
    is then a common multiple of several loops.
    """
    divisors = {period // prime for prime in range(2, period + 1) if _divides(prime, period)}
    shorter = [
        run
        for lag in divisors
        for run in repeating(symbols, lag, least=1)
        if run[1] - run[0] >= _FOR_LONG * period
    ]
    whole = _stretches(symbols, period)
    if shorter and len(whole) == 1 and _hold(shorter, whole[0]):
        return [], max(shorter, key=lambda run: run[1] - run[0])
    inner = [run for run in shorter if run[1] - run[0] >= REPEATS * period]
    if not inner:
        return whole, None
    borders = [0, *(edge for run in _union(inner) for edge in run), len(symbols)]
    found = [
        (first + a, first + b, first + clean)
        for first, last in zip(borders[::2], borders[1::2], strict=True)
        if last - first >= REPEATS * period
        for a, b, clean in _stretches(symbols[first:last], period)
    ]
    # Nothing else repeats at this period: it belongs to the shorter period.
    return found or whole, None


def _union(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what runs cover together, in order and without overlap."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def _hold(runs: list[tuple[int, int]], stretch: tuple[int, int, int]) -> bool:
    """Return whether runs cover a stretch together, but none covers it alone."""
    first, last, _ = stretch
    held = sum(max(min(b, last) - max(a, first), 0) for a, b in _union(runs))
    longest = max(b - a for a, b in runs)
    return held >= NEARLY_ALL * (last - first) and longest < NEARLY_ALL * (last - first)


def _divides(prime: int, number: int) -> bool:
    """Return whether a number is divisible by a prime; False for other divisors."""
    return number % prime == 0 and all(prime % small for small in range(2, math.isqrt(prime) + 1))


def _stretches(symbols: Codes, lag: int) -> list[tuple[int, int, int]]:
    """Return first, last and a regular place of a repeating part, across irregular iterations."""
    joined: list[tuple[int, int, int, int]] = []
    for first, last in repeating(symbols, lag, least=1):
        regular = (last - first, (first + last) // 2)
        if joined and first <= joined[-1][1] + lag:
            begin, _, *longest = joined.pop()
            joined.append((begin, last, *max(regular, (longest[0], longest[1]))))
        else:
            joined.append((first, last, *regular))
    return [
        (first, last, clean) for first, last, _, clean in joined if last - first >= REPEATS * lag
    ]


def repeating(symbols: Codes, lag: int, least: int) -> list[tuple[int, int]]:
    """Return first and last symbol of parts that repeat at a lag `least` times after the first."""
    size = len(symbols) - lag
    window = min(max(lag, 16), size)
    firsts, lasts = _good(symbols, lag, window)
    found = []
    until = 0
    for first, last in zip(firsts, lasts, strict=True):
        # If an end of the repeating part cuts the window, fewer of its symbols are equal.
        behind = np.arange(max(first - window, until), first)
        alike = symbols[behind] == symbols[behind + lag]
        equal = np.cumsum(alike[::-1])[::-1]
        begin = int(behind[(equal >= NEARLY_ALL * (first - behind)) & alike].min(initial=first))
        ahead = np.arange(last + 1, min(last + window, size) + 1)
        alike = symbols[ahead - 1] == symbols[ahead - 1 + lag]
        equal = np.cumsum(alike)
        until = int(ahead[(equal >= NEARLY_ALL * (ahead - last)) & alike].max(initial=last))
        if until - begin >= least * lag:
            found.append((begin, until + lag))
    return found


def _good(symbols: Codes, lag: int, window: int) -> tuple[list[int], list[int]]:
    """Return the parts of positions in windows that mostly equal the window one lag later.

    Positions belong together unless a window of other positions separates them.
    """
    size = len(symbols) - lag
    firsts, lasts = list[int](), list[int]()
    for some in slices(size):
        # Windows are centered, and cut near the ends.
        begin, end = max(some.start - window, 0), min(some.stop + window, size)
        alike = symbols[begin:end] == symbols[begin + lag : end + lag]
        before = np.append(np.int32(0), np.cumsum(alike, dtype=np.int32))
        place = np.arange(some.start, some.stop)
        low = np.maximum(place - window // 2, 0)
        high = np.minimum(low + window, size)
        good = before[high - begin] - before[low - begin] >= ALIKE * (high - low)
        places = place[good & alike[some.start - begin : some.stop - begin]]
        if not len(places):
            continue
        breaks = np.flatnonzero(np.diff(places) > window // 2 + 1)
        own_firsts = places[np.append(0, breaks + 1)].tolist()
        own_lasts = (places[np.append(breaks, len(places) - 1)] + 1).tolist()
        if lasts and own_firsts[0] - (lasts[-1] - 1) <= window // 2 + 1:
            lasts.pop()
            own_firsts.pop(0)
        firsts += own_firsts
        lasts += own_lasts
    return firsts, lasts
