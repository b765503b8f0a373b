"""Reads the rows of a table of an SQLite file a few hundred pages at a time, column by column.

SQLite gives one value after the other, which costs several times as much as all else that becomes
of it here.  What this module does not know is left to SQLite: see UnusualError.
https://www.sqlite.org/fileformat2.html#record_format
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from perfpipe.ingest.arrays import Ints
from perfpipe.ingest.nsys.sqlite_tree import (
    LEAF,
    PADDING,
    Bytes,
    SqliteFile,
    Trees,
    UnusualError,
    cells,
    check_cover,
    varint,
)
from perfpipe.ingest.nsys.sqlite_values import Kinds, Values, widths

#: Bytes of pages that are read at a time, and most bytes of rows, which may go on in other pages.
_AT_A_TIME, _MOST_AT_A_TIME = 2 << 20, 16 << 20

#: Serial types below this take one byte.
_SHORT = 0x80

#: A row may take all of a page but so many bytes; the rest of a longer one is on other pages.
_ALONE = 35

_LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Layout:
    """The columns of a table as they were declared: their types by name, in order.

    Those of `filled` are never NULL; `rowid` is the one that stands for the row number, which rows
    do not repeat.
    """

    types: Mapping[str, str]
    filled: frozenset[str] = frozenset()
    rowid: str | None = None


@dataclass
class Rows:
    """Rows of a table in the order of their numbers; `mistyped` counts values that were NULLed."""

    file: SqliteFile
    trees: Trees
    table: str
    layout: Layout
    columns: Sequence[str]
    mistyped: Counter[str] = field(default_factory=Counter)

    def batches(
        self, first: int | None = None, last: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, or those from one row number to another.

        Raises UnusualError where SQLite has to read them.
        """
        if (leaves := self.trees.leaves.get(self.table)) is None:
            raise UnusualError("a table whose tree is unusual")
        # Rows have larger numbers than the page before may have.
        above = np.append(_LEAST, leaves.last[:-1])
        begin = 0 if first is None else int(np.searchsorted(leaves.last, first))
        end = len(above) if last is None else int(np.searchsorted(leaves.last, last)) + 1
        step = max(1, _AT_A_TIME // self.file.page_size)
        for at in range(begin, min(end, len(above)), step):
            some = slice(at, min(at + step, end))
            try:
                yield from self._batches(
                    leaves.pages[some], above[some], leaves.last[some], first, last
                )
            except IndexError as error:
                raise UnusualError("a value outside of its page") from error

    def _batches(
        self, pages: Ints, above: Ints, bound: Ints, first: int | None, last: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some pages: at once, or by half as many where rows are long."""
        content = self.file.read(pages)
        start = np.arange(len(pages)) * self.file.page_size
        cell, owner, count = cells(content, pages, LEAF, self.file.page_size)
        if not count.all() and len(self.trees.leaves[self.table].pages) > 1:
            raise UnusualError("a page without rows among others")
        length, at = varint(content, cell)
        rowid, at = varint(content, at)
        local, end = self._local(length), start[owner] + self.file.usable
        if (local < 0).any() or (at + local > end).any():
            raise UnusualError("a row that is longer than its page")
        check_cover(content, pages, self.file, owner, at + _beside(length, local) - cell)
        apart = (rowid > above[owner]) & (rowid <= bound[owner])
        if not apart.all() or (rowid[1:] <= rowid[:-1]).any():
            raise UnusualError("row numbers that do not ascend")
        own = slice(
            None if first is None else np.searchsorted(rowid, first),
            None if last is None else np.searchsorted(rowid, last, "right"),
        )
        length, rowid, at, owner = length[own], rowid[own], at[own], owner[own]
        if (length > self.file.pages * self.file.page_size).any():
            raise UnusualError("a row that is longer than the file")
        if length.sum() > _MOST_AT_A_TIME and len(pages) > 1:
            for half in np.array_split(np.arange(len(pages)), 2):
                yield from self._batches(pages[half], above[half], bound[half], first, last)
        elif len(at):
            places = (pages[owner] - owner) * self.file.page_size + at
            content, at = self._whole(content, at, length, local[own], places)
            yield self._columns(content, at, length, rowid)

    def _local(self, length: Ints) -> Ints:
        """Return how many bytes of rows are on their own page."""
        usable = self.file.usable
        if not len(length) or length.max() <= usable - _ALONE:
            return length
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = np.where(local <= usable - _ALONE, local, least)
        return np.where(length <= usable - _ALONE, length, local)

    def _whole(
        self, content: Bytes, at: Ints, length: Ints, local: Ints, places: Ints
    ) -> tuple[Bytes, Ints]:
        """Return pages with rows that go on in others behind them, and where each row begins.

        `places` says where rows begin in the file.
        """
        long = np.flatnonzero(length > local)
        if not len(long):
            return content, at
        parts, begin, at = [content[:-PADDING]], len(content) - PADDING, at.copy()
        for row in long.tolist():
            place = int(at[row] + local[row])
            parts.append(content[at[row] : place])
            rest = int(length[row] - local[row])
            parts += self._rest(content[place : place + 4], rest, int(places[row]))
            at[row], begin = begin, begin + int(length[row])
        return np.concatenate([*parts, np.zeros(PADDING, np.uint8)]), at

    def _rest(self, pointer: Bytes, length: int, row: int) -> list[Bytes]:
        """Return the rest of a row, which is at a place, from the pages that are chained to it."""
        parts: list[Bytes] = []
        while length > 0:
            page = int.from_bytes(pointer.tobytes(), "big")
            content = self.file.read(np.array([page]))
            self.trees.claim(page, row)
            pointer = content[:4]
            parts.append(content[4 : 4 + min(length, self.file.usable - 4)])
            length -= len(parts[-1])
        if pointer.any():
            raise UnusualError("a row that goes on behind its end")
        return parts

    def _columns(self, content: Bytes, start: Ints, length: Ints, rowid: Ints) -> pa.RecordBatch:
        kinds, places = self._layout(content, start, length)
        reader = Values(content)
        found: dict[str, pa.Array] = {}
        order = {name: place for place, name in enumerate(self.layout.types)}
        for name in self.columns:
            place = order[name]
            found[name], mistyped = reader.read(
                self.layout.types[name], kinds[place], places[place]
            )
            self.mistyped[name] += mistyped
        alias = self.layout.rowid
        if alias is not None and alias in found:
            if found[alias].null_count < len(rowid):
                raise UnusualError("a row that repeats its number")
            found[alias] = pa.array(rowid)
        return pa.RecordBatch.from_pydict(found)

    def _layout(self, content: Bytes, start: Ints, length: Ints) -> tuple[list[Kinds], list[Ints]]:
        """Return the kinds of the values of each column, and where they are."""
        size, at = varint(content, start)
        body = start + size
        kinds: list[Kinds] = []
        for name in self.layout.types:
            kind: Kinds = content.take(at)
            if kind.max() < _SHORT:
                at = at + 1
            else:
                kind, at = varint(content, at)
            if name in self.layout.filled and not kind.all():
                raise UnusualError("a column without the value that it has to have")
            kinds.append(kind)
        if (at != body).any():
            raise UnusualError("rows of another number of columns")
        places = [body]
        for kind in kinds:
            places.append(places[-1] + widths(kind))
        # No value takes less than nothing, so that all lie within their rows.
        if (places[-1] != start + length).any():
            raise UnusualError("rows of another length than stated")
        return kinds, places


def _beside(length: Ints, local: Ints) -> Ints:
    """Return how many bytes rows take on their pages: longer ones have a pointer behind them."""
    return np.where(length > local, local + 4, local)
