"""Finds what repeats in a sequence: the steps of a loop, from what a program launches alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes

#: Symbols that the spectrum is taken of; lags are then checked on the whole sequence.
_SAMPLE = 1 << 17

#: Random phases: the noise of the spectrum falls with the root of their number.
_DRAWS = 6

#: Lags that are checked exactly, of those with the highest scores.
_CHECKED = 48

#: A lag within this of the best, plus half of what the best misses, is as good: noise and drift
#: favour one multiple of the period or another.
_AS_GOOD = 0.008

#: The same for a lag of which the best is a multiple: a step, whose like comes every few steps.
_AS_GOOD_PART = 0.02

#: Share of symbols that must be alike, within about a period, for a stretch to go on.
ALIKE = 0.7

#: Share of symbols that must be alike where a stretch is continued to its very ends.
_NEARLY_ALL = 0.9

#: Repeats without which nothing is called a loop.
_REPEATS = 3

#: Share of a sequence that repeats at the distance of marks, and marks that a step may have.
_MOSTLY = 0.4
_APART = 12

#: Parts of a sequence that are searched, the longest first, and loops that are kept of all found.
_SEARCHES, _LOOPS = 12, 200

#: A part of the sequence below this share is not searched for loops of its own.
_WORTHWHILE = 0.02

#: Periods for which something has to repeat more often not to be layers of a step.
_FOR_LONG = 1.5

#: Stretches below this share of the longest one at a period are not told: a step has such too.
_FRAGMENT = 0.1


@dataclass(frozen=True)
class Loop:
    """A part of a sequence that repeats itself: symbols first <= i < last, `period` at a time.

    `clean` lies in the middle of its longest part without irregular repeats.
    """

    first: int
    last: int
    period: int
    clean: int


#: Marks of symbols, the most telling kind first.
Marks = Sequence[npt.NDArray[np.bool_]]


def loops(symbols: Codes, marks: Marks = ()) -> list[Loop]:
    """Return the loops of a sequence of non-negative codes, in order; they do not overlap.

    The period is the smallest lag at which the sequence equals itself about as well as at any
    other, so layers in a step lose to the step.  `marks` are symbols that occur in each step but
    not in each layer, such as the optimizer: they tell steps from epochs, which repeat better.
    Where those of one kind tell nothing, as in an evaluation, the next are asked.
    Parts that are left over, such as an evaluation, are searched in turn, and so are those that
    repeat more often for several periods: auto-tuning, which launches a few kernels over and over.
    Costs n log n.
    """
    found: list[Loop] = []
    least = max(2 * _REPEATS, int(_WORTHWHILE * len(symbols)))
    regions = [(0, len(symbols))]
    for _ in range(_SEARCHES):
        regions.sort(key=lambda region: region[1] - region[0])
        first, last = regions.pop() if regions else (0, 0)
        if last - first < least:
            break
        part = symbols[first:last]
        period = _period(part, [own[first:last] for own in marks])
        if period is None:
            continue
        parts, apart = _own_stretches(part, period)
        if apart is not None:
            a, b = apart
            regions += [(first, first + a), (first + a, first + b), (first + b, last)]
        if not parts:
            continue
        longest = max(b - a for a, b, _ in parts)
        parts = [own for own in parts if own[1] - own[0] >= _FRAGMENT * longest]
        found += [Loop(first + a, first + b, period, first + clean) for a, b, clean in parts]
        edges = [0, *(edge for a, b, _ in parts for edge in (a, b)), last - first]
        regions += [(first + a, first + b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    found.sort(key=lambda loop: loop.first - loop.last)
    return sorted(found[:_LOOPS], key=lambda loop: loop.first)


def parts_of(symbols: Codes, loop: Loop) -> tuple[int, int] | None:
    """Return how many symbols repeat within a period, and how often, if nearly all of it does so.

    They are layers of a step, or iterations where the period is that of what a program does
    every so many of them; their order does not tell which.
    """
    start = min(loop.clean, loop.last - loop.period)
    step = symbols[start : start + loop.period]
    for lag in _promising(step):
        alike = step[:-lag] == step[lag:]
        repeats = np.append(alike, np.zeros(lag, bool)) | np.append(np.zeros(lag, bool), alike)
        often = int(np.count_nonzero(repeats))
        # Of two loops in turn with a common multiple, one does not continue the other.
        inside = np.trim_zeros(alike)
        if often >= _NEARLY_ALL * len(step) and inside.mean() >= _NEARLY_ALL:
            return lag, round(often / lag)
    return None


def _period(symbols: Codes, marks: Marks) -> int | None:
    """Return the lag at which most of a sequence repeats itself; None if nothing does."""
    sample = symbols
    if len(symbols) > _SAMPLE:
        # Programs start slowly and end abruptly: what is typical lies behind the middle.
        start = (len(symbols) - _SAMPLE) * 3 // 4
        sample = symbols[start : start + _SAMPLE]
        marks = [own[start : start + _SAMPLE] for own in marks]
    longest = len(sample) // _REPEATS
    if longest < 1:
        return None
    lags = _promising(sample)
    shares = _shares(sample, lags)
    if not len(shares) or shares.max() <= 0:
        return None
    top = lags[int(shares.argmax())]
    first, last = _longest(sample, top)
    if last - first < len(sample):
        # What else is launched says nothing about which lag is the period.
        sample = sample[first:last]
        marks = [own[first:last] for own in marks]
        lags = [lag for lag in lags if lag <= top]
        shares = _shares(sample, lags)
    best, top = float(shares.max()), lags[int(shares.argmax())]

    found = next(
        lag
        for lag, share in zip(lags, shares.tolist(), strict=True)
        if share >= _as_good(best, _AS_GOOD if top % lag else _AS_GOOD_PART)
    )
    return next((lag for own in marks if (lag := _marked(sample, own, found))), found)


def _as_good(best: float, slack: float) -> float:
    """Return the share that is as good as the best."""
    return best - slack - (1 - best) / 2 if best > 0.5 else best * 0.98


def _shares(symbols: Codes, lags: list[int]) -> npt.NDArray[np.float64]:
    """Return the share that repeats at each lag; 0 where it is less than as good as the best."""
    # What is alike bounds what repeats, and costs less to count.
    most = np.array([np.mean(symbols[:-lag] == symbols[lag:]) for lag in lags])
    shares, best = np.zeros(len(lags)), 0.0
    for at in np.argsort(-most, kind="stable").tolist():
        if most[at] < _as_good(best, _AS_GOOD_PART):
            break
        shares[at] = _repeating_share(symbols, lags[at])
        best = max(best, float(shares[at]))
    return shares


def _promising(symbols: Codes) -> list[int]:
    """Return the lags at which a sequence may equal itself, the smallest first."""
    longest = len(symbols) // _REPEATS
    scores = _scores(symbols)[: longest + 1]
    scores[1:] /= len(symbols) - np.arange(1, longest + 1)
    scores[0] = -1
    by_score = np.argsort(-scores, kind="stable")[:_CHECKED]
    near = np.flatnonzero(scores >= scores[by_score[0]] - 0.05)[:_CHECKED]
    return [int(lag) for lag in np.unique(np.concatenate([by_score, near])) if lag > 0]


def _longest(symbols: Codes, lag: int) -> tuple[int, int]:
    """Return the longest part that repeats at a lag, three times at least; else the whole."""
    runs = _runs(symbols[:-lag] == symbols[lag:], lag, least=_REPEATS - 1)
    return max(runs, key=lambda run: run[1] - run[0], default=(0, len(symbols)))


def _marked(symbols: Codes, marks: npt.NDArray[np.bool_], period: int) -> int | None:
    """Return the distance of marks, if most of the sequence repeats at it; None if none does.

    It is the period, unless that holds several of it.
    """
    runs = np.flatnonzero(marks & ~np.append(False, marks[:-1]))
    for apart in range(1, min(_APART, len(runs) - 1) + 1):
        distances = np.bincount(runs[apart:] - runs[:-apart])
        lag = int(distances.argmax())
        # Distances of marks that lie several apart overlap.
        often = distances[lag] * lag >= apart * _MOSTLY * len(symbols)
        if often and _repeating_share(symbols, lag) >= _MOSTLY:
            return lag if _REPEATS * lag < period else period
    return None


def _scores(symbols: Codes) -> npt.NDArray[np.float64]:
    """Return how many symbols equal those some lag later, estimated, by lag.

    Each distinct symbol is given a random unit phase: in the autocorrelation equal symbols add up
    and others cancel.  It is one transform for any number of symbols.
    """
    random = np.random.default_rng(0)
    kinds, codes = np.unique(symbols, return_inverse=True)
    size = 1 << (2 * len(symbols) - 1).bit_length()
    power = np.zeros(size)
    for _ in range(_DRAWS):
        phases = np.exp(2j * np.pi * random.random(len(kinds)))
        power += np.abs(np.fft.fft(phases[codes], size)) ** 2
    scores: npt.NDArray[np.float64] = np.fft.ifft(power).real[: len(symbols)] / _DRAWS
    return scores


def _repeating_share(symbols: Codes, lag: int) -> float:
    """Return the share of symbols that equal those a lag later, within stretches that repeat."""
    alike = symbols[:-lag] == symbols[lag:]
    return sum(
        int(np.count_nonzero(alike[a : b - lag])) for a, b in _runs(alike, lag, least=1)
    ) / len(alike)


def _own_stretches(
    symbols: Codes, period: int
) -> tuple[list[tuple[int, int, int]], tuple[int, int] | None]:
    """Return what repeats at a period, as _stretches does, and not more often for long.

    Where all of it repeats more often, but not all alike, the longest part that does is told: the
    period is a multiple of those of several loops.
    """
    divisors = {period // prime for prime in range(2, period + 1) if _divides(prime, period)}
    shorter = [
        run
        for lag in divisors
        for run in _runs(symbols[:-lag] == symbols[lag:], lag, least=1)
        if run[1] - run[0] >= _FOR_LONG * period
    ]
    whole = _stretches(symbols, period)
    if shorter and len(whole) == 1 and _hold(shorter, whole[0]):
        return [], max(shorter, key=lambda run: run[1] - run[0])
    inner = [run for run in shorter if run[1] - run[0] >= _REPEATS * period]
    if not inner:
        return whole, None
    own = np.ones(len(symbols) + 2, bool)
    own[[0, -1]] = False
    for first, last in inner:
        own[first + 1 : last + 1] = False
    edges = np.flatnonzero(own[1:] != own[:-1]).reshape(-1, 2)
    found = [
        (first + a, first + b, first + clean)
        for first, last in edges.tolist()
        if last - first >= _REPEATS * period
        for a, b, clean in _stretches(symbols[first:last], period)
    ]
    # Nothing else repeats at the period: it is the shorter one's.
    return found or whole, None


def _hold(runs: list[tuple[int, int]], stretch: tuple[int, int, int]) -> bool:
    """Return whether runs together hold a stretch, and none does alone."""
    first, last, _ = stretch
    held = np.zeros(last - first, bool)
    for a, b in runs:
        held[max(a - first, 0) : max(b - first, 0)] = True
    longest = max(b - a for a, b in runs)
    return bool(held.mean() >= _NEARLY_ALL and longest < _NEARLY_ALL * len(held))


def _divides(prime: int, number: int) -> bool:
    """Return whether a number is divisible by a prime; False for other divisors."""
    return number % prime == 0 and all(prime % small for small in range(2, math.isqrt(prime) + 1))


def _stretches(symbols: Codes, lag: int) -> list[tuple[int, int, int]]:
    """Return first, last and a regular place of what repeats, over irregular repeats."""
    joined: list[tuple[int, int, int, int]] = []
    for first, last in _runs(symbols[:-lag] == symbols[lag:], lag, least=1):
        regular = (last - first, (first + last) // 2)
        if joined and first <= joined[-1][1] + lag:
            begin, _, *longest = joined.pop()
            joined.append((begin, last, *max(regular, (longest[0], longest[1]))))
        else:
            joined.append((first, last, *regular))
    return [
        (first, last, clean) for first, last, _, clean in joined if last - first >= _REPEATS * lag
    ]


def _runs(alike: npt.NDArray[np.bool_], lag: int, least: int) -> list[tuple[int, int]]:
    """Return first and last symbol of what repeats at a lag: `least` times, besides the first."""
    window = min(max(lag, 16), len(alike))
    before = np.concatenate([[0], np.cumsum(alike, dtype=np.int32)])
    # Positions whose window of symbols, centred, is mostly alike; near the ends it is cut.
    place = np.arange(len(alike))
    low = np.maximum(place - window // 2, 0)
    high = np.minimum(low + window, len(alike))
    good = alike & (before[high] - before[low] >= ALIKE * (high - low))
    # Good positions belong together unless a window of others lies between.
    places = np.flatnonzero(good)
    if not len(places):
        return []
    breaks = np.flatnonzero(np.diff(places) > window // 2 + 1)
    firsts = places[np.append(0, breaks + 1)]
    lasts = places[np.append(breaks, len(places) - 1)] + 1
    found = []
    until = 0
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        # Where the window is cut by an end of what repeats, fewer of its symbols are alike.
        behind = np.arange(max(first - window, until), first)
        fits = before[first] - before[behind] >= _NEARLY_ALL * (first - behind)
        begin = int(behind[fits & alike[behind]].min(initial=first))
        ahead = np.arange(last + 1, min(last + window, len(alike)) + 1)
        fits = before[ahead] - before[last] >= _NEARLY_ALL * (ahead - last)
        until = int(ahead[fits & alike[ahead - 1]].max(initial=last))
        if until - begin >= least * lag:
            found.append((begin, until + lag))
    return found
