"""Backtraces of native code in an nsys export: of CUDA calls, of CPU samples and of OS calls.

The frames of a backtrace are rows of a table, innermost first.  Events refer to them by id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from perfpipe.ingest.arrays import Ints, ints
from perfpipe.ingest.frames import Frame, Stack, library_of
from perfpipe.ingest.host_stacks import OS_CALLS, HostStacks, Samples
from perfpipe.ingest.ncu.names import function_name
from perfpipe.ingest.nsys.export import Export
from perfpipe.ingest.nsys.resolve import pid_of, tid_of

#: Events, and the tables of their backtraces.
_CALLS, _OF_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUDA_CALLCHAINS"
_SAMPLED, _OF_SAMPLED = "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS"
_OS_CALLS, _OF_OS_CALLS = "OSRT_API", "OSRT_CALLCHAINS"

_FRAME = ("id", "stackDepth", "symbol", "module", "unresolved", "unwindMethod")

#: Modules of frames that state that a backtrace is incomplete.
_NO_MODULE = frozenset(("[Unknown]", "[Broken backtraces]", "[Max depth]"))

#: Libraries of the profiler, whose innermost frames are not part of the program.
_PROFILER = re.compile(r"libcupti|libToolsInjection|libnvperf|libQuadD")

#: Functions that a launching stub calls.
_LAUNCHING = re.compile(r"cuda(?:Launch|PopCall)")

#: An unresolved symbol.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")

#: Instead of the id of an unresolved symbol.
_UNRESOLVED = -1


def add_native_stacks(
    into: HostStacks,
    export: Export,
    strings: Mapping[int, str],
    kernels: Collection[str],
    known: Collection[tuple[int, int]],
) -> None:
    """Add the backtraces of an export.

    `kernels` are the functions of kernels; `known` are the CUDA calls (process, correlation id)
    whose stacks of Python are already there.
    """
    decode = _Decoder(into, strings, kernels)
    calls = Samples("cuda backtrace")
    for rows, stacks in _with_stacks(export, decode, _CALLS, _OF_CALLS, "correlationId"):
        for start, pid, tid, call, stack in zip(*rows, stacks, strict=True):
            if call is not None and (pid, call) not in known:
                calls.add(start, pid, tid, stack, call=call)
    waits = Samples(OS_CALLS)
    for rows, stacks in _with_stacks(export, decode, _OS_CALLS, _OF_OS_CALLS, "end"):
        for start, pid, tid, end, stack in zip(*rows, stacks, strict=True):
            if end is not None:
                waits.trace(start, end, pid, tid, stack)
    samples = Samples("cpu sampling")
    for rows, stacks in _with_stacks(export, decode, _SAMPLED, _OF_SAMPLED, "id"):
        for start, pid, tid, _, stack in zip(*rows, stacks, strict=True):
            samples.add(start, pid, tid, stack)
    into.samples += [found for found in (calls, waits, samples) if found.time_ns]


def _with_stacks(
    export: Export, decode: _Decoder, events: str, chains: str, more: str
) -> Iterator[tuple[list[list[Any]], list[int]]]:
    """Yield start, process, thread and one more column of events, and the numbers of their stacks.

    Events without a backtrace are left out.
    """
    key = "id" if events == _SAMPLED else "callchainId"
    wanted = {"start", "globalTid", key, more}
    if not wanted <= export.columns(events) or not set(_FRAME[:4]) <= export.columns(chains):
        return
    found = decode.chains(export, chains)
    if not found:
        return
    # In some exports, 0 is the id of a backtrace, in others it means that there is none.
    several = Counter[int]()
    for batch in export.scan(events, [key]):
        several.update(Counter(batch[key].drop_null().to_pylist()))
    if several[0] > 1:
        found.pop(0, None)
    for batch in export.scan(events, list(dict.fromkeys(["start", "globalTid", key, more]))):
        numbers = [found.get(number) for number in batch[key].to_pylist()]
        rows = batch.filter(pa.array([number is not None for number in numbers]))
        rows = rows.filter(rows["globalTid"].is_valid())
        threads = rows["globalTid"]
        columns = [rows["start"], pid_of(threads), tid_of(threads), rows[more]]
        yield [column.to_pylist() for column in columns], [found[n] for n in rows[key].to_pylist()]


class _UnorderedError(Exception):
    """The rows of a backtrace do not follow each other from the innermost frame."""


class _Decoder:
    """Turns the rows of backtraces into stacks."""

    def __init__(
        self, into: HostStacks, strings: Mapping[int, str], kernels: Collection[str]
    ) -> None:
        self._into, self._strings = into, strings
        self._kernels = frozenset(kernels)
        self._known: dict[bytes, int] = {}

    def chains(self, export: Export, table: str) -> dict[int, int]:
        """Return the numbers of stacks by the id of the backtrace."""
        columns = [name for name in _FRAME if name in export.columns(table)]
        try:
            return self._read(export.scan(table, columns), checked=True)
        except _UnorderedError:
            # All rows are in memory to sort them.
            return self._read(export.scan(table, columns, ["id", "stackDepth"]))

    def _read(self, batches: Iterator[pa.RecordBatch], *, checked: bool = False) -> dict[int, int]:
        found: dict[int, int] = {}
        alone: dict[int, int] = {}
        rest = np.zeros((0, 4), np.int64)
        for batch in batches:
            rows = np.concatenate([rest, _rows(batch)])
            starts = np.flatnonzero(np.diff(rows[:, 0], prepend=rows[0, 0] - 1))
            sizes = np.diff([*starts, len(rows)])
            depth = np.arange(len(rows)) - np.repeat(starts, sizes)
            if checked and (rows[:, 1] != depth).any():
                raise _UnorderedError
            self._add(rows, starts, found, alone)
            rest = rows[starts[-1] :]
        if len(rest):
            self._add(rest, np.array([0, len(rest)]), found, alone)
        # nsys may unwind only each fourth sample: the others have nothing but an address.
        return found or alone

    def _add(self, rows: Ints, borders: Ints, found: dict[int, int], alone: dict[int, int]) -> None:
        for first, last in pairwise(borders.tolist()):
            chain = rows[first:last]
            unwound = len(chain) > 1 or chain[0, 3] % 2
            (found if unwound else alone)[int(chain[0, 0])] = self._number(chain[:, 2:])

    def _number(self, chain: Ints) -> int:
        key = chain.tobytes()
        if key not in self._known:
            self._known[key] = self._into.number(self._stack(chain.tolist()))
        return self._known[key]

    def _stack(self, chain: list[list[int]]) -> Stack:
        frames: list[Frame] = []
        for symbol, module in chain:
            frame = self._frame(symbol, module >> 1)
            inner = frames[-1] if frames else None
            repeats = frame == inner and symbol == _UNRESOLVED
            if frame is not None and not repeats and not self._is_stub(frame, inner):
                frames.append(frame)
        while len(frames) > 1 and _PROFILER.match(library_of(frames[0].file or "")):
            del frames[0]
        return tuple(frames)

    def _is_stub(self, frame: Frame, inner: Frame | None) -> bool:
        """Return whether a function only launches the kernel of the same name."""
        if inner is not None and not _LAUNCHING.search(inner.function):
            return False
        name = function_name(frame.function)
        return name in self._kernels or "__device_stub_" in name

    def _frame(self, symbol: int, module: int) -> Frame | None:
        path = self._strings.get(module) or "[Unknown]"
        if path in _NO_MODULE:
            return None
        name = None if symbol == _UNRESOLVED else self._strings.get(symbol)
        if name is None or _ADDRESS.fullmatch(name):
            name = f"[unresolved] {library_of(path)}"
        return Frame(name, path, None, native=True)


def _rows(batch: pa.RecordBatch) -> Ints:
    """Return id, depth, symbol, and twice the module plus 1 if the stack was unwound."""
    names = batch.schema.names
    columns = [ints(batch[name], missing=_UNRESOLVED) for name in _FRAME[:4]]
    if "unresolved" in names:
        columns[2] = np.where(ints(batch["unresolved"], missing=0) == 1, _UNRESOLVED, columns[2])
    unwound = "unwindMethod" not in names or ints(batch["unwindMethod"], missing=1) != 0
    columns[3] = columns[3] * 2 + unwound
    return np.stack(columns, axis=1)
