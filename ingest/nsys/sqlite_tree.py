"""The trees of an SQLite file: on which pages the rows of its tables are.

https://www.sqlite.org/fileformat2.html#b_tree_pages
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import FileIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Ints

Bytes = npt.NDArray[np.uint8]

#: Kinds of pages of tables and of indexes, and where their cell pointers begin.
_INTERIOR, LEAF, _INDEX_INTERIOR, _INDEX_LEAF = 5, 13, 2, 10
_POINTERS = {_INTERIOR: 12, LEAF: 8, _INDEX_INTERIOR: 12}

#: Bytes behind what is read, so that eight can be taken from anywhere.
PADDING = 8

_HEADER, _UTF_8, _LEAST_PAGE = 100, 1, 512

#: The byte that SQLite locks.
_LOCKED = 1 << 30

_NO_BOUND = np.iinfo(np.int64).max

#: No tree of row numbers has as many levels.
_DEEPEST = 24


class UnusualError(Exception):
    """The file has what is not read here; SQLite knows whether it is damaged."""


def page_size_of(header: bytes) -> int:
    """Return the size of pages, bytes, that the header of a file states."""
    size = int.from_bytes(header[16:18], "big")
    return 65536 if size == 1 else size


class SqliteFile:
    """The pages of an SQLite file, numbered from 1; for one thread."""

    def __init__(self, path: Path) -> None:
        """Open a file; raises UnusualError where it is no database."""
        self._file = FileIO(path)
        header = self._file.read(_HEADER)
        self.page_size = page_size_of(header)
        if len(header) < _HEADER or self.page_size < _LEAST_PAGE or self.page_size.bit_count() != 1:
            self.close()
            raise UnusualError("no database")
        encoding, *moving = (int.from_bytes(header[at : at + 4], "big") for at in (56, 52, 64))
        #: Whether texts are UTF-8, and pages stay where they are.
        self.plain = encoding == _UTF_8 and not any(moving)
        #: Bytes of a page that hold cells.
        self.usable = self.page_size - header[20]
        self.pages = path.stat().st_size // self.page_size
        #: Pages that SQLite leaves empty, since it locks bytes there.
        locked = _LOCKED // self.page_size + 1
        self.locked = [locked] if locked <= self.pages else []
        #: The first page that lists free ones, 0 for none, and how many are free.
        self.first_free, self.free = (int.from_bytes(header[at : at + 4], "big") for at in (32, 36))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> SqliteFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, pages: Ints) -> Bytes:
        """Return the bytes of some pages one behind the other, and PADDING.

        Raises UnusualError for pages that the file does not have.
        """
        size = self.page_size
        found = np.empty(len(pages) * size + PADDING, np.uint8)
        found[-PADDING:] = 0
        if not len(pages):
            return found
        if pages.min() < 1 or pages.max() > self.pages:
            raise UnusualError("a page that is not there")
        view = memoryview(found.data)
        breaks = np.flatnonzero(np.diff(pages) != 1) + 1
        for first, end in pairwise([0, *breaks.tolist(), len(pages)]):
            self._file.seek((int(pages[first]) - 1) * size)
            if self._file.readinto(view[first * size : end * size]) != (end - first) * size:
                raise UnusualError("the file ends within a page")
        return found


@dataclass(frozen=True)
class Leaves:
    """The leaf pages of a table in the order of its rows; `last` bounds their row numbers."""

    pages: Ints
    last: Ints


@dataclass
class Trees:
    """Which pages of a file belong to what; `doubtful` says that this was not understood.

    `used` has the pages of trees, free ones, and those that are not to be used; `claimed` pages
    that rows go on in, with the place of their row.
    """

    leaves: dict[str, Leaves] = field(default_factory=dict)
    used: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    claimed: dict[int, int] = field(default_factory=dict)
    doubtful: bool = False

    def use(self, pages: Ints) -> None:
        """Note that pages are used."""
        if self.used[pages].any() or len(np.unique(pages)) < len(pages):
            raise UnusualError("a page that is there twice")
        self.used[pages] = True

    def claim(self, page: int, row: int) -> None:
        """Note that a row goes on in a page; raises UnusualError where that is another's."""
        if self.claimed.setdefault(page, row) != row or self.used[page]:
            raise UnusualError("a page that is there twice")

    def size(self, table: str) -> int:
        """Return how many pages the rows of a table begin on."""
        return len(self.leaves[table].pages) if table in self.leaves else 0

    def complete(self) -> bool:
        """Return whether all pages are known."""
        known = int(self.used.sum()) + len(self.claimed)
        return not self.doubtful and known == len(self.used)


def trees_of(path: Path, roots: Mapping[str, int]) -> Trees:
    """Walk the trees of tables and indexes, whose first pages are given, down to their leaves."""
    found = Trees()
    try:
        with SqliteFile(path) as file:
            if not file.plain:
                raise UnusualError("a database of another kind")
            found.used = np.zeros(file.pages + 1, bool)
            found.used[[0, *file.locked]] = True
            found.use(np.array(_free(file), np.int64))
            first = np.fromiter(roots.values(), np.int64)
            found.use(first)
            for (name, root), kind in zip(roots.items(), _kinds(file, first), strict=True):
                _walk(file, found, name, root, kind)
    except (IndexError, UnusualError):
        found.doubtful = True
    return found


def _free(file: SqliteFile) -> list[int]:
    """Return the pages that hold nothing."""
    pages: list[int] = []
    trunk = file.first_free
    while trunk:
        content = file.read(np.array([trunk]))
        count = int(big_endian(content, np.array([4]), 4)[0])
        if len(pages) > file.pages or 4 * (count + 2) > file.page_size:
            raise UnusualError("a list of free pages that does not end")
        pages += [trunk, *big_endian(content, 8 + 4 * np.arange(count), 4).tolist()]
        trunk = int(big_endian(content, np.array([0]), 4)[0])
    if len(pages) != file.free:
        raise UnusualError("another number of free pages than stated")
    return pages


def _kinds(file: SqliteFile, pages: Ints) -> list[int]:
    start = np.arange(len(pages)) * file.page_size
    kinds: list[int] = file.read(pages)[start + _head(pages)].tolist()
    return kinds


def _walk(file: SqliteFile, found: Trees, name: str, root: int, kind: int) -> None:
    pages, last = np.array([root], np.int64), np.array([_NO_BOUND], np.int64)
    for _ in range(_DEEPEST):
        if kind == _INDEX_LEAF:
            return
        if kind == LEAF:
            found.leaves[name] = Leaves(pages, last)
            return
        pages, last = _below(file, pages, last, kind)
        found.use(pages)
        (kind,) = _kinds(file, pages[:1])
    raise UnusualError("a tree without leaves")


def _below(file: SqliteFile, pages: Ints, last: Ints, kind: int) -> tuple[Ints, Ints]:
    """Return the pages one level below interior ones, with bounds on their row numbers."""
    if kind not in (_INTERIOR, _INDEX_INTERIOR):
        raise UnusualError("a page that is none of a tree")
    content = file.read(pages)
    start = np.arange(len(pages)) * file.page_size
    cell, owner, count = cells(content, pages, kind, file.page_size)
    if not count.all():
        raise UnusualError("a page without what a tree has there")
    ends = np.cumsum(count + 1) - 1
    place = np.arange(len(cell)) + owner
    below, bound = np.empty((2, len(cell) + len(pages)), np.int64)
    below[place] = big_endian(content, cell, 4)
    # The rightmost page of each has no key: its rows are bounded as the page's own.
    below[ends], bound[ends] = big_endian(content, start + _head(pages) + 8, 4), last
    if kind == _INTERIOR:
        bound[place], end = varint(content, cell + 4)
        check_cover(content, pages, file, owner, end - cell)
        if (bound[1:] <= bound[:-1]).any():
            raise UnusualError("row numbers that do not ascend")
    return below, bound


def check_empty(file: SqliteFile, pages: Ints) -> None:
    """Raise UnusualError where pages of tables without rows show that there were some."""
    content = file.read(pages)
    _, owner, count = cells(content, pages, LEAF, file.page_size)
    if count.any():
        raise UnusualError("rows that are not to be there")
    check_cover(content, pages, file, owner, owner)


def columns_of_first_row(file: SqliteFile, root: int) -> int | None:
    """Return the number of values in the first row of a tree; None without one, or if damaged."""
    page = np.array([root], np.int64)
    try:
        for _ in range(_DEEPEST):
            content, head = file.read(page), _head(page)
            kind = int(content[head][0])
            if kind not in (_INTERIOR, LEAF) or not big_endian(content, head + 3, 2).any():
                break
            cell = big_endian(content, head + _POINTERS[kind], 2)
            if kind == LEAF:
                return _columns_of(content, cell, file.page_size)
            page = big_endian(content, cell, 4)
    except (IndexError, UnusualError):
        pass
    return None


def _columns_of(content: Bytes, cell: Ints, page_size: int) -> int | None:
    """Return the number of values of the row in a cell, by what says which kinds they are."""
    _, at = varint(content, cell)
    _, at = varint(content, at)
    size, first = varint(content, at)
    end = int(at[0] + size[0])
    if end > page_size:
        return None
    # Each of these numbers ends with a byte without the highest bit.
    return int(np.count_nonzero(content[int(first[0]) : end] < 0x80))


def _head(pages: Ints) -> Ints:
    """Return where the content of pages begins: the file's own header is on the first."""
    return np.where(pages == 1, _HEADER, 0)


def cells(content: Bytes, pages: Ints, kind: int, page_size: int) -> tuple[Ints, Ints, Ints]:
    """Return where the cells of pages begin, the index of the page of each, and cells per page.

    Raises UnusualError for pages of another kind, and for cells outside of their page.
    """
    start = np.arange(len(pages)) * page_size
    head = start + _head(pages)
    if (content[head] != kind).any():
        raise UnusualError("no tree of rows, or one whose leaves are not on one level")
    count = big_endian(content, head + 3, 2)
    if (_POINTERS[kind] + 2 * count > page_size).any():
        raise UnusualError("more cells than a page has room for")
    owner = np.repeat(np.arange(len(start)), count)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    offset = big_endian(content, head[owner] + _POINTERS[kind] + 2 * number, 2)
    if (offset >= page_size).any():
        raise UnusualError("a cell outside of its page")
    return start[owner] + offset, owner, count


def check_cover(content: Bytes, pages: Ints, file: SqliteFile, owner: Ints, size: Ints) -> None:
    """Raise UnusualError where cells and free blocks do not fill their pages, as they have to.

    `owner` is the index of the page of each cell, `size` its bytes.
    """
    start = np.arange(len(pages)) * file.page_size
    head = start + _head(pages)
    covered = np.bincount(owner, np.maximum(size, 4), len(start)).astype(np.int64)
    first = big_endian(content, head + 5, 2)
    covered += np.where(first == 0, 65536, first) + content[head + 7]
    block = big_endian(content, head + 1, 2)
    while block.any():
        there = np.flatnonzero(block)
        at = start[there] + block[there]
        free = big_endian(content, at + 2, 2)
        if (free < 4).any() or (block[there] < first[there]).any():
            raise UnusualError("a free block that is none")
        covered[there] += free
        following = np.zeros_like(block)
        following[there] = big_endian(content, at, 2)
        if ((following > 0) & (following <= block)).any():
            raise UnusualError("free blocks that do not ascend")
        block = following
    if (covered != file.usable).any():
        raise UnusualError("cells that do not fill their page")


def big_endian(content: Bytes, at: Ints, width: int) -> Ints:
    """Return the unsigned numbers of a few bytes at some places."""
    value = content.take(at).astype(np.int64)
    for byte in range(1, width):
        value = value << 8 | content.take(at + byte)
    return value


def varint(content: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of varying length at some places, and where they end."""
    byte = content.take(at)
    value, end = (byte & 0x7F).astype(np.int64), at + 1
    more = np.flatnonzero(byte >= 0x80)
    for length in range(2, 10):
        if not len(more):
            break
        byte = content.take(end[more])
        end[more] += 1
        if length == 9:
            value[more] = value[more] << 8 | byte
        else:
            value[more] = value[more] << 7 | (byte & 0x7F)
            more = more[byte >= 0x80]
    return value, end
