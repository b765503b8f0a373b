"""Columns of numbers that may be larger than memory, which are used a few rows at a time."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Ints, time_order

#: Rows used at once, and bytes of columns that are not files.
_AT_A_TIME, _IN_MEMORY = 1 << 18, 16 << 20

#: Values of a column that estimate its distribution.
_SAMPLE = 1 << 16

#: The smallest value, and what is beyond the largest.
_LEAST, _BEYOND = -(1 << 63), 1 << 63

#: The files of all columns.
_files: WeakSet[mmap.mmap] = WeakSet()


class Columns:
    """Makes columns: arrays in memory, and beyond 16 MB files in a directory.

    A file takes memory only where it was used since the last step of `slices`.  Without a
    directory, all columns are in memory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._used = 0

    def new(self, count: int, kind: npt.DTypeLike, fill: int = 0) -> npt.NDArray[Any]:
        """Return a column with this value in every row; raises OSError if the disk is full."""
        kind = np.dtype(kind)
        size = count * kind.itemsize
        if self._directory is None or self._used + size <= _IN_MEMORY:
            self._used += size
            return np.full(count, fill, kind)
        with TemporaryFile(dir=self._directory) as file:
            # Without room on the disk, a write to mapped memory would end the process.
            os.posix_fallocate(file.fileno(), 0, size)
            mapped = mmap.mmap(file.fileno(), size)
        _files.add(mapped)
        column = np.frombuffer(mapped, kind)
        if fill:
            for some in slices(count):
                column[some] = fill
        return column

    def beside(self) -> Columns:
        """Return what makes columns of the same kind that are needed for a shorter time."""
        return Columns(self._directory)


def slices(
    count: int, *, among: int = 0, every: int = 1, backward: bool = False
) -> Iterator[slice]:
    """Yield slices of a few rows that cover a column; each releases what the previous one used.

    They begin at multiples of `every`.  If rows refer to a longer column, of `among` rows, a slice
    has fewer rows, because each may use several pages of that column.
    """
    share = count / max(among, count, 1)
    size = max(int(_AT_A_TIME * share), _AT_A_TIME >> 9, every) // every * every or 1
    begins = range(0, count, size)
    for begin in reversed(begins) if backward else begins:
        yield slice(begin, min(begin + size, count))
        release()


def release() -> None:
    """Release the memory of columns that are files; their content stays in the page cache."""
    for file in list(_files):
        file.madvise(mmap.MADV_DONTNEED)


def in_parts(rows: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield a few rows at a time."""
    for some in slices(len(rows)):
        yield rows[some]


class Zones:
    """Finds values between bounds, and skips blocks of a column that have none."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._values = values
        self._blocks: list[tuple[slice, int, int]] = []
        samples = [np.array([], np.int64)]
        for some in slices(len(values)):
            block = values[some]
            self._blocks.append((some, int(block.min()), int(block.max())))
            samples.append(block[:: max(len(values) // _SAMPLE, 1)].copy())
        self._sample = np.sort(np.concatenate(samples))

    def between(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the indices of values of `low` to `high`, a few at a time."""
        for some, least, most in self._blocks:
            if least <= high and most >= low:
                block = self._values[some]
                yield some.start + np.flatnonzero((block >= low) & (block <= high))
                release()

    def borders(self) -> list[int]:
        """Return bounds of values between which a column has few rows if its values differ."""
        parts = -(-len(self._values) // _AT_A_TIME)
        places = np.arange(1, parts) * len(self._sample) // max(parts, 1)
        return [_LEAST, *np.unique(self._sample[places]).tolist(), _BEYOND]


def in_order(values: Ints, *ties: npt.NDArray[Any], least: int = _LEAST) -> Iterator[Ints]:
    """Yield the indices that sort values, and equal values by each of `ties`, a few at a time.

    Values below `least` are left out.
    """
    zones = Zones(values)
    for low, high in pairwise(zones.borders()):
        rows = np.concatenate([np.zeros(0, np.int64), *zones.between(max(low, least), high - 1)])
        if len(rows):
            yield rows[time_order(values[rows], *(tie[rows] for tie in ties))]
        release()


def rows_where(
    columns: Columns, count: int, among: Callable[[slice], npt.NDArray[np.bool_]]
) -> Ints:
    """Return the indices, below `count`, of the rows that `among` marks in each slice."""
    found = columns.new(sum(int(np.count_nonzero(among(some))) for some in slices(count)), np.int64)
    first = 0
    for some in slices(count):
        rows = np.flatnonzero(among(some))
        found[first : first + len(rows)] = some.start + rows
        first += len(rows)
    return found


def taken(columns: Columns, values: npt.NDArray[Any], rows: Ints) -> npt.NDArray[Any]:
    """Return some rows of a column as another column."""
    found = columns.new(len(rows), values.dtype)
    for some in slices(len(rows)):
        found[some] = values[rows[some]]
    return found


def joined(columns: Columns, parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return several columns of one type as one."""
    whole = columns.new(sum(map(len, parts)), parts[0].dtype)
    first = 0
    for part in parts:
        for some in slices(len(part)):
            whole[first + some.start : first + some.stop] = part[some]
        first += len(part)
    return whole
