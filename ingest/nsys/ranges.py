"""NVTX ranges as columns, and how they nest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, STILL_OPEN, Codes, Ints, groups, nullable, present
from perfpipe.ingest.columns import Columns, slices
from perfpipe.ingest.nsys.operations import texts_of
from perfpipe.ingest.sequences import depths, latest_reaching

if TYPE_CHECKING:
    from perfpipe.ingest.nsys.autograd import Numbers

#: Styles by code.
STYLES = ("PushPop", "StartEnd", "Mark")
PUSH_POP, START_END, MARK = range(3)

#: Domains of ranges that a profiler adds, which annotate nothing: who holds Python's lock.
PROFILERS = frozenset({"GIL Trace"})

#: Profiled threads to process concurrently; more would only use more memory.
_THREADS = 2


@dataclass
class Ranges:
    """Ranges and marks in start order, outer before inner; the index is the range_id.

    All arrays have the same length; codes, of 16 or 32 bits, are NONE (-1) for missing values.
    `end` is STILL_OPEN if the capture does not contain it.  `on_one_thread` is true for ranges that
    begin and end on the same thread, false for marks and what a profiler adds.  `payloads` are as
    exported, by range_id.  `numbers` are the sequence numbers of PyTorch's operators, unless names
    state them.
    """

    start: Ints
    end: Ints
    style: npt.NDArray[np.int8]
    thread: Codes
    threads: list[tuple[int, int]]  # process and thread id by thread code
    name: Codes
    names: list[str | None]
    domain: Codes
    domains: list[str | None]  # None is the default domain
    end_thread: Codes
    category: Codes
    categories: list[int]
    payloads: dict[int, bytes | str] = field(default_factory=dict)
    numbers: Numbers | None = None
    storage: InitVar[Columns | None] = None
    on_one_thread: npt.NDArray[np.bool_] = field(init=False)
    depth: Codes = field(init=False)
    parent: Codes = field(init=False)
    level: Codes = field(init=False)
    enclosing: Codes = field(init=False)

    def __post_init__(self, storage: Columns | None) -> None:
        columns = storage or Columns()
        count = len(self)
        self.on_one_thread, nested = (columns.new(count, bool) for _ in range(2))
        both = columns.new(count, np.int64)
        threads, pairs, mixed = set[int](), set[int](), set[int]()
        profilers = [code for code, name in enumerate(self.domains) if name in PROFILERS]
        for some in slices(count):
            style, thread, other = self.style[some], self.thread[some], self.end_thread[some]
            annotates = ~np.isin(self.domain[some], profilers)
            on_one = (style != MARK) & ((other == NONE) | (other == thread))
            self.on_one_thread[some] = on_one & annotates
            nested[some] = (style == PUSH_POP) & annotates
            both[some] = thread * np.int64(len(self.domains)) + self.domain[some]
            threads.update(present(thread[nested[some]]))
            pairs.update(present(both[some][nested[some]]))
            mixed.update(present(thread[self.on_one_thread[some] & (style == START_END)]))
        self.level, self.enclosing = nesting(self.start, self.end, self.thread, nested, columns)
        if len(threads) == len(pairs):
            self.depth, self.parent = self.level, self.enclosing
        else:
            self.depth, self.parent = nesting(self.start, self.end, both, nested, columns)
        if mixed:
            self._place_start_end_ranges([*mixed])

    def _place_start_end_ranges(self, mixed: list[int]) -> None:
        """Recompute level and enclosing range on threads with start/end ranges.

        These may overlap other ranges without nesting: the enclosing range is the latest that
        fully contains the range.
        """
        # These may be the same arrays as depth and parent, which must not change.
        self.level, self.enclosing = self.level.copy(), self.enclosing.copy()
        chosen = np.flatnonzero(self.on_one_thread & np.isin(self.thread, mixed)).astype(np.int32)
        for _, members in groups(self.thread[chosen]):
            own = chosen[members]
            start, end = self.start[own], self.end[own]
            # A range that ends where another begins does not contain it, even one without length.
            around = latest_reaching(end, np.arange(len(own)) - 1, np.maximum(end, start + 1))
            self.enclosing[own] = np.where(around == NONE, NONE, own[around])
            self.level[own] = depths(around)

    def __len__(self) -> int:
        return len(self.start)

    def titles(self, index: Codes) -> pa.DictionaryArray:
        """Return `domain:name` of ranges, with an empty default domain; NULL for NONE."""
        # A number per pair of domain and name; the last name means no name.
        names = [*self.names, None]
        pairs = self.domain[index].astype(np.int64) * len(names) + self.name[index] % len(names)
        used = pa.array(pairs, mask=index == NONE).dictionary_encode()
        known: dict[str, int] = {}
        numbers = []
        for pair in used.dictionary.to_pylist():
            domain, name = divmod(pair, len(names))
            title = f"{self.domains[domain] or ''}:{names[name] or ''}"
            numbers.append(known.setdefault(title, len(known)))
        codes = pa.array(numbers, pa.int32()).take(used.indices)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(known), pa.string()))

    def columns(self, rows: slice) -> dict[str, pa.Array]:
        """Return the columns of nsys_nvtx_ranges about the ranges alone, for some rows."""
        start, end = self.start[rows], self.end[rows]
        unknown = end == STILL_OPEN
        pids = pa.array([pid for pid, _ in self.threads], pa.int64())
        tids = pa.array([tid for _, tid in self.threads], pa.int64())
        thread, other = self.thread[rows], self.end_thread[rows]
        elsewhere = np.where(other == thread, NONE, other)
        return {
            "pid": pids.take(pa.array(thread)),
            "tid": tids.take(pa.array(thread)),
            "end_tid": tids.take(nullable(elsewhere)),
            "domain": texts_of(self.domain[rows], self.domains),
            "name": texts_of(self.name[rows], self.names),
            "style": texts_of(self.style[rows].astype(np.int32), list(STYLES)),
            "start_ns": pa.array(start),
            "end_ns": pa.array(end, mask=unknown),
            "dur_ns": pa.array(end - start, mask=unknown),
            "category": pa.array(self.categories, pa.int64()).take(nullable(self.category[rows])),
            "range_id": pa.array(np.arange(rows.start, rows.start + len(start))),
            "depth": nullable(self.depth[rows]),
            "parent": nullable(self.parent[rows]),
            "level": nullable(self.level[rows]),
            "enclosing": nullable(self.enclosing[rows]),
        }


@dataclass
class _Open:
    """Ranges of a group that later ranges may be in.

    `ends` of those that have not ended, in half nanoseconds, and the latest range at each depth.
    """

    ends: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    latest: Codes = field(default_factory=lambda: np.zeros(0, np.int32))


def nesting(
    start: Ints,
    end: Ints,
    group: npt.NDArray[np.integer],
    nested: npt.NDArray[np.bool_],
    columns: Columns,
) -> tuple[Codes, Codes]:
    """Return depth and parent (index) of each range, NONE where `nested` is false or at depth 0.

    Ranges must be ordered by start, and by descending end for equal starts.  Within one group
    (process, thread, domain) push/pop ranges are nested or disjoint, so the parent is the latest
    earlier range at one depth less.  A range that ends where another starts does not enclose it,
    but a range without length encloses later ranges at the same instant.  All times in ns;
    O(n log n).
    """
    depth = columns.new(len(start), np.int32, NONE)
    parent = columns.new(len(start), np.int32, NONE)
    opened: dict[int, _Open] = {}

    def nest(members: Codes, before: _Open) -> None:
        starts, ends = start[members], end[members]
        # Half nanoseconds: a zero-length range ends half a nanosecond after its start.
        starts *= 2
        ends *= 2
        ends += ends == starts
        ends = np.concatenate([before.ends, ends])
        # Mostly sorted already, which only a stable sort exploits.
        ends.sort(kind="stable")
        ended = np.searchsorted(ends, starts, side="right").astype(np.int32)
        level = np.arange(len(members), dtype=np.int32) + np.int32(len(before.ends)) - ended
        before.ends = ends[ended[-1] :].copy()
        depth[members] = level
        # The latest earlier ranges come first, from the outermost.
        known = np.arange(len(before.latest), dtype=np.int32)
        all_levels, everyone = np.append(known, level), np.append(before.latest, members)
        parent[members] = _parents(all_levels, everyone)[len(known) :]
        before.latest = np.full(max(int(all_levels.max()) + 1, 0), NONE, np.int32)
        # If a depth occurs several times, the last range remains.
        before.latest[all_levels] = everyone

    # Uses threads: sorting and searching release the interpreter's lock.
    with ThreadPoolExecutor(_THREADS) as pool:
        for some in slices(len(start)):
            index = (some.start + np.flatnonzero(nested[some])).astype(np.int32)
            jobs = [
                pool.submit(nest, index[own], opened.setdefault(code, _Open()))
                for code, own in groups(group[index])
            ]
            for job in jobs:
                job.result()
    return depth, parent


def _parents(level: Codes, members: Codes) -> Codes:
    """Return the latest earlier member at one level less, NONE at level 0.

    All levels are looked up in one sequence, ordered by level and place.
    """
    parent = np.full(len(level), NONE, np.int32)
    # 16-bit codes sort in linear time.
    deepest = int(level.max(initial=0))
    small = level.astype(np.int16) if deepest <= np.iinfo(np.int16).max else level
    by_level = np.argsort(small, kind="stable").astype(np.int32)
    outermost = int(np.count_nonzero(level == 0))
    places = by_level + level[by_level].astype(np.int64) * len(level)
    for rows in slices(len(level) - outermost):
        inner = slice(rows.start + outermost, rows.stop + outermost)
        around = np.searchsorted(places, places[inner] - len(level)) - 1
        parent[by_level[inner]] = members[by_level[around]]
    return parent
