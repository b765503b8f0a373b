"""Finds loops in a sequence of launches from symbols that alternate.

Symbols that occur once per iteration of the same loop alternate strictly: x y x y.  Each loop is
therefore a group of alternating symbols, whatever lies between them: inner loops of varying length,
optional parts, and kernels that drift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes, Ints

#: Lengths of the sequences of symbols that may mark a loop: equal kernels have different neighbors.
_LENGTHS = (1, 2, 4)

#: Minimum occurrences of a symbol.
LEAST = 3

#: Groups per number of occurrences, groups that are merged, and merged groups that are kept.
_GROUPS, _MERGED, _KEPT = 24, 600, 120

#: Counts of groups of one loop differ by this share at most, and this share alternates at least.
_NEAR, MOSTLY = 0.08, 0.9

#: Bits of a set of symbols.
_BITS = 512

#: Share of common symbols of similar iterations, and share of iterations that must be similar.
_SIMILAR, _OFTEN = 0.6, 0.3

#: Minimum share of the work in a loop.
_SHARE = 0.01

#: A group of few symbols is only a loop if they are a large share of its iteration.
_FEW = ((3, 0.02, 4), (4, 0.1, 10))

#: Something else follows an iteration that seems so many times longer than the others.
_FAR = 4

#: Coincidences have very few symbols for their length, or few iterations of very unequal length.
_RARE, _MANY, _UNEVEN = 0.001, 20, 0.8

#: An iteration with fewer launches is only a loop if it contains most of the work.
_TINY, _MOST_WORK = 3, 0.5


@dataclass(eq=False)
class Repeats:
    """A loop: launches heads[i] <= j < ends[i] are iteration i.

    `length` is the median number of launches of an iteration, and `members` the number of symbols
    that mark it.
    """

    heads: Ints
    ends: Ints
    length: float
    members: int

    def __len__(self) -> int:
        return len(self.heads)

    def only(self, kept: npt.NDArray[np.bool_]) -> Repeats:
        """Return the loop with some of its iterations."""
        return replace(self, heads=self.heads[kept], ends=self.ends[kept])

    def within(self, first: int, count: int) -> Repeats:
        """Return the iterations among so many launches from the first, counted from there."""
        kept = self.only((self.heads >= first) & (self.ends <= first + count))
        return replace(kept, heads=kept.heads - first, ends=kept.ends - first)

    def behind(self, first: Repeats, host: Ints) -> Repeats:
        """Return the loop with other iterations before it; `host` is not needed here."""
        return replace(
            self, heads=np.append(first.heads, self.heads), ends=np.append(first.ends, self.ends)
        )


@dataclass(frozen=True)
class Launched:
    """A sequence of launches: their symbols, host times before them and GPU times, ns.

    `optimizer` marks launches of optimizers, and `whole` launches that may be an iteration by
    themselves, such as CUDA graphs.
    """

    symbols: Codes
    pauses: Ints
    work: Ints
    optimizer: npt.NDArray[np.bool_]
    whole: npt.NDArray[np.bool_]


def alternations(launched: Launched) -> list[Repeats]:
    """Return the loops of a sequence, inner loops included, shortest iteration first.

    Costs n log n for a bounded number of distinct symbols.
    """
    symbols = launched.symbols
    if len(symbols) < 2 * LEAST:
        return []
    sets = _Sets(symbols)
    summed = np.append(0, np.cumsum(launched.work))
    found = [
        repeats
        for group in _groups(symbols)
        if (repeats := _repeats(group, launched, sets, summed)) is not None
    ]
    found.sort(key=lambda loop: -loop.members * len(loop))
    kept: list[Repeats] = []
    for loop in found:
        same = next((own for own in kept if alike(own, loop)), None)
        if same is None:
            kept.append(loop)
        else:
            same.members += loop.members
    return sorted(kept, key=lambda loop: loop.length)


def alike(one: Repeats, other: Repeats) -> bool:
    """Return whether two loops are the same loop: their iterations begin in turn."""
    return 0.8 <= len(one) / len(other) <= 1.25 and _alternation(one.heads, other.heads) >= MOSTLY


def _repeats(group: list[Ints], launched: Launched, sets: _Sets, summed: Ints) -> Repeats | None:
    """Return the loop of alternating symbols; None if its iterations are not similar."""
    heads, size, members = _heads(group, launched), len(sets), len(group)
    if summed[heads[-1]] - summed[heads[0]] < _SHARE * summed[-1]:
        return None
    lengths = np.diff(heads)
    own = sets.of(heads[:-1], heads[1:])
    following = sets.of(heads[1:], np.minimum(heads[1:] + lengths, size))
    similar = _similarity(own, following)
    similar[:-1] = np.maximum(similar[:-1], _similarity(own[:-1], own[1:]))
    linked = similar >= _SIMILAR
    if np.count_nonzero(linked) < LEAST - 1 or linked.mean() < _OFTEN:
        return None
    length = float(np.median(lengths[linked]))
    # The last iteration of a run ends after a usual number of launches.
    ends = np.append(heads[1:], min(size, heads[-1] + int(length)))
    last = ~linked | (lengths > _FAR * length)
    ends[:-1][last] = np.minimum(ends[:-1], heads[:-1] + int(length))[last]
    share = float((summed[ends] - summed[heads]).sum() / max(summed[-1], 1))
    tiny = length < _TINY and share < _MOST_WORK and not launched.whole[heads].all()
    if share < _SHARE or tiny:
        return None
    if members < _RARE * length or (
        len(heads) < _MANY and float(np.std(lengths)) > _UNEVEN * float(np.mean(lengths))
    ):
        return None
    if any(
        members < few and members < length * part and members < length / of
        for few, part, of in _FEW
    ):
        return None
    return Repeats(heads, ends, length, members)


def _heads(group: list[Ints], launched: Launched) -> Ints:
    """Return the places of the symbol that comes first in an iteration.

    That is the first one behind the optimizer, if there is one, else that behind the longest pause.
    """
    # Some symbols are missing in a few iterations, or occur elsewhere too.
    counts = np.bincount([len(places) for places in group])
    usual = len(counts) - 1 - int(counts[::-1].argmax())
    candidates = [places for places in group if len(places) == usual]
    ends = np.flatnonzero(launched.optimizer)
    updated = np.diff(np.searchsorted(ends, candidates[0])) > 0
    behind = [places for places in candidates if not launched.optimizer[places].any()]
    if updated.mean() < MOSTLY or not behind:
        return max(candidates, key=lambda places: float(np.median(launched.pauses[places])))
    # The first iteration begins before its optimizer.
    first = ends[min(np.searchsorted(ends, min(own[0] for own in behind)), len(ends) - 1)]
    behind = [places for places in behind if places[0] < first] or behind
    apart = [places[1:] - ends[np.searchsorted(ends, places[1:]) - 1] for places in behind]
    return behind[int(np.argmin([np.median(own) for own in apart]))]


def _groups(symbols: Codes) -> list[list[Ints]]:
    """Return the places of symbols that alternate, those of most launches first."""
    by_count: dict[int, list[list[Ints]]] = {}
    for length in _LENGTHS:
        for places in _places(_sequences(symbols, length)):
            own = by_count.setdefault(len(places), [])
            same = next((group for group in own if _alternate(group[0], places)), None)
            if same is not None:
                same.append(places)
            elif len(own) < _GROUPS:
                own.append([places])
    found = sorted((group for own in by_count.values() for group in own), key=_launches)
    merged: list[list[Ints]] = []
    for group in found[:_MERGED]:
        count = len(group[0])
        for other in merged:
            apart = abs(len(other[0]) - count)
            if apart <= _NEAR * max(len(other[0]), count) and (
                _alternation(other[0], group[0]) >= MOSTLY
            ):
                other += group
                break
        else:
            merged.append(list(group))
    return sorted(merged, key=_launches)[:_KEPT]


def _launches(group: list[Ints]) -> int:
    return -len(group) * len(group[0])


def _sequences(symbols: Codes, length: int) -> Ints:
    """Return a code for each sequence of consecutive symbols, at its first symbol."""
    factor = np.uint64(0x9E3779B97F4A7C15)
    random = np.random.default_rng(length).integers(1, 1 << 62, int(symbols.max()) + 1, np.uint64)
    codes = np.zeros(max(len(symbols) - length + 1, 0), np.uint64)
    for offset in range(length):
        codes = codes * factor + random[symbols[offset : offset + len(codes)]]
    return np.unique(codes, return_inverse=True)[1]


def _places(codes: Ints) -> Iterator[Ints]:
    """Yield the places of each code that occurs often enough, in order."""
    order = np.argsort(codes, kind="stable")
    edges = np.append(0, np.cumsum(np.bincount(codes)))
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if last - first >= LEAST:
            yield order[first:last]


def _alternate(one: Ints, other: Ints) -> bool:
    """Return whether places of equal number alternate strictly."""
    if one[0] > other[0]:
        one, other = other, one
    middle = len(one) // 2
    if not (one[middle] < other[middle] and other[middle - 1] < one[middle]):
        return False
    return bool((one < other).all() and (other[:-1] < one[1:]).all())


def _alternation(one: Ints, other: Ints) -> float:
    """Return the share of changes between two kinds of places, in order."""
    order = np.argsort(np.concatenate([one, other]), kind="stable") < len(one)
    return float(np.count_nonzero(order[1:] != order[:-1]) / (len(order) - 1))


class _Sets:
    """Sets of symbols of any parts of a sequence, as bits; many symbols share bits."""

    def __init__(self, symbols: Codes) -> None:
        kinds = int(symbols.max()) + 1
        bits = (
            np.arange(kinds)
            if kinds <= _BITS
            else np.random.default_rng(0).integers(0, _BITS, kinds)
        )
        one = np.uint64(1) << (bits % 64).astype(np.uint64)
        self._words = [
            np.where(bits // 64 == word, one, np.uint64(0))[symbols]
            for word in range(int(bits.max()) // 64 + 1)
        ]

    def __len__(self) -> int:
        return len(self._words[0])

    def of(self, first: Ints, last: Ints) -> npt.NDArray[np.uint64]:
        """Return the sets of the symbols first <= i < last, one row each."""
        size = len(self)
        edges = np.empty(2 * len(first), np.int64)
        edges[::2], edges[1::2] = np.minimum(first, size - 1), np.minimum(last, size - 1)
        return np.stack([np.bitwise_or.reduceat(own, edges)[::2] for own in self._words], axis=1)


def _similarity(
    one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]
) -> npt.NDArray[np.float64]:
    """Return the share of common symbols in each pair of sets."""
    return _counts(one & other) / np.maximum(_counts(one | other), 1)


_ONES = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)


def _counts(sets: npt.NDArray[np.uint64]) -> Ints:
    """Return the number of symbols in each set."""
    halves = np.ascontiguousarray(sets).view(np.uint16)
    counts: Ints = _ONES[halves].reshape(len(sets), -1).sum(axis=1, dtype=np.int64)
    return counts
