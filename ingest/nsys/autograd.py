"""Pairs the ranges of PyTorch's backward pass with the operators of the forward pass.

An operator that creates a node of the graph, and the node when the backward pass executes it, have
the same sequence number.  Numbers count per thread of the forward pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups

if TYPE_CHECKING:
    from perfpipe.ingest.nsys.ranges import Ranges

#: What PyTorch appends to the names of NVTX ranges, and the names of ranges of the backward pass.
_NUMBER = re.compile(r"^(.*?), (stashed )?seq ?= ?([0-9]{1,18})(?![0-9])")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function: |Backward[0-9]*$")

#: Number of the forward thread if the trace does not state it.
UNKNOWN = 0


@dataclass
class Numbers:
    """Sequence numbers of ranges: NONE without one.

    `backward` is true for ranges of the backward pass; `forward_thread` is then PyTorch's own
    number of the thread that ran the forward pass, or UNKNOWN.
    """

    number: Ints
    backward: npt.NDArray[np.bool_]
    forward_thread: Ints


def numbers_in_names(ranges: Ranges) -> Numbers | None:
    """Return the sequence numbers that names of NVTX ranges state; None without any.

    PyTorch writes `aten::mm, seq = 7`, and in old versions `MmBackward, stashed seq=7`.
    """
    number = np.full(len(ranges.names) + 1, NONE, np.int64)
    backward = np.zeros(len(ranges.names) + 1, bool)
    for at, name in enumerate(ranges.names):
        if name is not None and (found := _NUMBER.match(name)):
            number[at] = int(found[3])
            backward[at] = bool(found[2] or _BACKWARD.search(found[1]))
    if not backward.any():
        return None
    code = np.where(ranges.name == NONE, len(ranges.names), ranges.name)
    unknown = np.broadcast_to(np.int64(UNKNOWN), len(ranges))
    return Numbers(number[code], backward[code], unknown)


def forward_ranges(ranges: Ranges) -> Codes | None:
    """Return the forward operator of each outermost range of the backward pass; None without any.

    The operator is the latest one with the number that began before.  Numbers of ranges inside of a
    backward pass have no meaning.
    """
    numbers = ranges.numbers or numbers_in_names(ranges)
    if numbers is None:
        return None
    backward = np.flatnonzero(numbers.backward & (numbers.number != NONE) & ranges.on_one_thread)
    if not len(backward):
        return None
    inside = _inside(ranges, numbers.backward)
    backward = backward[~inside[backward]]
    forward = np.flatnonzero(
        ~numbers.backward & ~inside & (numbers.number != NONE) & ranges.on_one_thread
    )
    found = np.full(len(ranges), NONE, np.int32)
    pids = np.array([pid for pid, _ in ranges.threads], np.int64)
    by_thread = {
        code: _Operators(numbers.number[rows], rows)
        for code, own in groups(ranges.thread[forward])
        for rows in (forward[own],)
    }
    stated = numbers.forward_thread[backward]
    for pid in np.unique(pids[ranges.thread[backward]]).tolist():
        threads = [code for code in by_thread if pids[code] == pid]
        for number in np.unique(stated).tolist():
            rows = backward[(pids[ranges.thread[backward]] == pid) & (stated == number)]
            if not len(rows) or not threads:
                continue
            wanted = numbers.number[rows]
            latest = np.stack([by_thread[code].before(wanted, rows) for code in threads])
            known = latest != NONE
            if number == UNKNOWN:
                # Several threads have the number: which one is not recorded.
                chosen = np.where(known.sum(axis=0) == 1, latest.max(axis=0), NONE)
            else:
                # PyTorch numbers its threads: the thread that has most of the numbers.
                counts = known.sum(axis=1)
                best = int(counts.argmax())
                tied = np.count_nonzero(counts == counts[best]) > 1
                chosen = np.full(len(rows), NONE) if tied else latest[best]
            found[rows] = chosen
    return found


class _Operators:
    """Operators of the forward pass on one thread, by number and time."""

    def __init__(self, number: Ints, rows: Ints) -> None:
        order = np.lexsort((rows, number))
        self._rows = rows[order]
        self._numbers, place = np.unique(number[order], return_inverse=True)
        # Ranges are numbered by start, so a smaller index means an earlier start.
        self._beyond = int(rows.max(initial=0)) + 1
        self._keys = place * np.int64(self._beyond) + self._rows

    def before(self, number: Ints, rows: Ints) -> Ints:
        """Return the last operator with each number that began before a range, or NONE."""
        place = np.minimum(np.searchsorted(self._numbers, number), len(self._numbers) - 1)
        limits = place * np.int64(self._beyond) + np.minimum(rows, self._beyond)
        at = np.searchsorted(self._keys, limits) - 1
        there = (at >= 0) & (self._numbers[place] == number)
        there &= self._keys[at] >= place * np.int64(self._beyond)
        return np.where(there, self._rows[at], NONE)


def _inside(ranges: Ranges, backward: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which ranges lie inside of a range of the backward pass on their thread."""
    inside = np.zeros(len(ranges), bool)
    rows = np.flatnonzero(ranges.enclosing != NONE)
    levels = ranges.level[rows]
    for level in range(1, int(levels.max(initial=0)) + 1):
        own = rows[levels == level]
        around = ranges.enclosing[own]
        inside[own] = inside[around] | backward[around]
    return inside
