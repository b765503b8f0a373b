"""Finds loops in a sequence of launches, without annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes
from perfpipe.ingest.stretches import REPEATS, own_stretches, repeating

#: Maximum symbols for the spectrum; lags are then checked on the whole sequence.
_SAMPLE = 1 << 17

#: Number of random phases: the noise of the spectrum falls with its square root.
_DRAWS = 6

#: Number of lags with the highest scores that are checked exactly.
_CHECKED = 48

#: A lag is as good as the best if its score is within this plus half of what the best misses: noise
#: and drift favor one or another multiple of the period.
_AS_GOOD = 0.008

#: The same if the best lag is a multiple of it: a step that matches better every few steps.
_AS_GOOD_PART = 0.02

#: Share of a sequence that must repeat at the distance of marks, and maximum marks per step.
_MOSTLY = 0.4
_APART = 12

#: Maximum parts of a sequence to search, longest first, and maximum loops to keep.
_SEARCHES, _LOOPS = 12, 200

#: A part below this share of the sequence is not searched for loops.
_WORTHWHILE = 0.02

#: Stretches below this share of the longest stretch at a period are ignored.
_FRAGMENT = 0.1


@dataclass(frozen=True)
class Loop:
    """A repeating part of a sequence: symbols first <= i < last with this period.

    `clean` is in the middle of its longest part without irregular iterations.
    """

    first: int
    last: int
    period: int
    clean: int


#: Marks of symbols, the most reliable kind first.
Marks = Sequence[npt.NDArray[np.bool_]]


def loops(symbols: Codes, marks: Marks = ()) -> list[Loop]:
    """Return the loops of a sequence of non-negative codes, in order and without overlap.

    The period is the smallest lag at which the sequence equals itself about as well as at any
    other lag, so a step wins over its layers.  `marks` are symbols that occur in each step but not
    in each layer, such as the optimizer: they separate steps from epochs, which repeat better.  If
    marks of one kind do not help, as in an evaluation, the next kind is used.  Remaining parts,
    such as an evaluation, are searched too, and so are parts with a shorter pattern for several
    periods: autotuning, which launches a few kernels repeatedly.  Costs n log n.
    """
    found: list[Loop] = []
    least = max(2 * REPEATS, int(_WORTHWHILE * len(symbols)))
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
        parts, apart = own_stretches(part, period)
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


def _period(symbols: Codes, marks: Marks) -> int | None:
    """Return the lag at which most of a sequence repeats; None if nothing repeats."""
    sample = symbols
    if len(symbols) > _SAMPLE:
        # Programs start slowly and end abruptly: the typical part is after the middle.
        start = (len(symbols) - _SAMPLE) * 3 // 4
        sample = symbols[start : start + _SAMPLE]
        marks = [own[start : start + _SAMPLE] for own in marks]
    longest = len(sample) // REPEATS
    if longest < 1:
        return None
    lags = _promising(sample)
    shares = _shares(sample, lags)
    if not len(shares) or shares.max() <= 0:
        return None
    top = lags[int(shares.argmax())]
    first, last = _longest(sample, top)
    if last - first < len(sample):
        # Other launches do not show which lag is the period.
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
    """Return the share that repeats at each lag; 0 if it is not as good as the best."""
    # The number of equal symbols bounds the repeating part, and is cheaper to count.
    most = np.array([np.mean(symbols[:-lag] == symbols[lag:]) for lag in lags])
    shares, best = np.zeros(len(lags)), 0.0
    for at in np.argsort(-most, kind="stable").tolist():
        if most[at] < _as_good(best, _AS_GOOD_PART):
            break
        shares[at] = _repeating_share(symbols, lags[at])
        best = max(best, float(shares[at]))
    return shares


def _promising(symbols: Codes) -> list[int]:
    """Return the lags at which a sequence may equal itself, smallest first."""
    longest = len(symbols) // REPEATS
    scores = _scores(symbols)[: longest + 1]
    scores[1:] /= len(symbols) - np.arange(1, longest + 1)
    scores[0] = -1
    by_score = np.argsort(-scores, kind="stable")[:_CHECKED]
    near = np.flatnonzero(scores >= scores[by_score[0]] - 0.05)[:_CHECKED]
    return [int(lag) for lag in np.unique(np.concatenate([by_score, near])) if lag > 0]


def _longest(symbols: Codes, lag: int) -> tuple[int, int]:
    """Return the longest part that repeats at a lag at least three times; else the whole."""
    runs = repeating(symbols, lag, least=REPEATS - 1)
    return max(runs, key=lambda run: run[1] - run[0], default=(0, len(symbols)))


def _marked(symbols: Codes, marks: npt.NDArray[np.bool_], period: int) -> int | None:
    """Return the distance of marks at which most of the sequence repeats; None if there is none.

    It is the period, unless a period contains several marks.
    """
    runs = np.flatnonzero(marks & ~np.append(False, marks[:-1]))
    for apart in range(1, min(_APART, len(runs) - 1) + 1):
        distances = np.bincount(runs[apart:] - runs[:-apart])
        lag = int(distances.argmax())
        # Distances between non-adjacent marks overlap.
        often = distances[lag] * lag >= apart * _MOSTLY * len(symbols)
        if often and _repeating_share(symbols, lag) >= _MOSTLY:
            return lag if REPEATS * lag < period else period
    return None


def _scores(symbols: Codes) -> npt.NDArray[np.float64]:
    """Return the estimated number of symbols that equal the symbol one lag later, by lag.

    Each distinct symbol gets a random unit phase: in the autocorrelation, equal symbols add up and
    others cancel.  This needs one transform for any number of distinct symbols.
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
    """Return the share of symbols that equal those one lag later, in repeating stretches."""
    alike = symbols[:-lag] == symbols[lag:]
    return sum(
        int(np.count_nonzero(alike[a : b - lag])) for a, b in repeating(symbols, lag, least=1)
    ) / len(alike)
