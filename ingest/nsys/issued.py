"""The calls that the host issued, in order, each with everything that it launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups
from perfpipe.ingest.columns import Columns, in_order, rows_where, slices, taken
from perfpipe.ingest.nsys.launches import Launches
from perfpipe.ingest.nsys.operations import GRAPH, KERNEL, MISSING, Operations
from perfpipe.kernel_marks import is_sampling, is_trial
from perfpipe.optimizers import is_optimizer

#: Copies that end a step (results for the host), and copies that begin a step.
_RESULT, _INPUT = "[CUDA memcpy Device-to-Host]", "[CUDA memcpy Host-to-Device]"

#: Columns of launches and of copies, and their types.
_LAUNCHES = {
    "tid": np.int64, "symbol": np.int64, "host": np.int64, "ended": np.int64, "idle": np.int64,
    "busy": np.int64, "optimizer": bool, "trial": bool, "sampling": bool, "graph": bool,
}  # fmt: skip
_COPIES = {
    "copy_tid": np.int64, "copy_host": np.int64, "copy_idle": np.int64, "result": bool,
    "given": bool,
}  # fmt: skip

_Columns = dict[str, Any]


@dataclass(frozen=True)
class Issued:
    """Kernel and graph launches of a process, and its copies, each in host order.

    With `thread`, only those of one thread; `tid` and `copy_tid` are the issuing threads.  Times in
    ns.  `symbol` identifies the kernel or whole graph of a launch; `idle` is the GPU idle time
    before it, and `busy` the GPU time of its operations; `optimizer` marks optimizer kernels,
    `trial` kernels of autotuners, `sampling` kernels that choose a token, and `graph` CUDA graphs.
    `ended` is when the launching call returned.  `result` marks copies to the host, `given` copies
    from the host.  `columns` makes columns that are derived from these.
    """

    pid: int
    tid: Ints
    symbol: Codes
    host: Ints
    ended: Ints
    idle: Ints
    busy: Ints
    optimizer: npt.NDArray[np.bool_]
    trial: npt.NDArray[np.bool_]
    sampling: npt.NDArray[np.bool_]
    graph: npt.NDArray[np.bool_]
    copy_tid: Ints
    copy_host: Ints
    copy_idle: Ints
    result: npt.NDArray[np.bool_]
    given: npt.NDArray[np.bool_]
    thread: int | None = None
    columns: Columns = field(default_factory=Columns)

    def of_thread(self, thread: int) -> Issued:
        """Return the launches and copies of one thread."""
        chosen: _Columns = {}
        for tid, names in ((self.tid, _LAUNCHES), (self.copy_tid, _COPIES)):
            rows = rows_where(self.columns, len(tid), partial(_equal, tid, thread))
            chosen |= {name: taken(self.columns, getattr(self, name), rows) for name in names}
        return replace(self, **chosen, thread=thread)

    def part(self, first: int, last: int) -> Issued:
        """Return the launches first <= i < last, and the copies from the first to the next one."""
        begin = np.searchsorted(self.copy_host, self.host[first]) if first else 0
        end = len(self.copy_host)
        if last < len(self.host):
            end = int(np.searchsorted(self.copy_host, self.host[last]))
        copies = slice(int(begin), end)
        chosen: _Columns = {name: getattr(self, name)[first:last] for name in _LAUNCHES}
        chosen |= {name: getattr(self, name)[copies] for name in _COPIES}
        return replace(self, **chosen)


def _equal(values: Ints, value: int, rows: slice) -> npt.NDArray[np.bool_]:
    return np.equal(values[rows], value)


@dataclass(frozen=True)
class Placed:
    """When and where operations ran, and when their calls started, or themselves without a call.

    Times in ns; NONE means an unknown process, thread or device.
    """

    start: Ints
    end: Ints
    pid: Ints
    tid: Ints
    device: Ints
    host: Ints

    @classmethod
    def of(cls, launches: Launches, rows: slice) -> Self:
        """Read the columns of some operations."""
        start, end, pid, device = (
            launches.operations.known(name, rows)
            for name in ("start_ns", "end_ns", "pid", "device")
        )
        host, tid = start.copy(), np.full(len(start), NONE, np.int64)
        call = launches.call[rows]
        called = call != NONE
        host[called] = launches.calls.start[call[called]]
        tid[called] = launches.calls.tid[call[called]]
        return cls(start, end, pid, tid, device, host)


def issued(launches: Launches) -> Iterator[Issued]:
    """Yield the launches and copies of each process that launches."""
    columns = launches.columns.beside()
    units = _units(launches, columns.beside())
    copies = _by_process(
        _copies(launches, units["start"], columns.beside()), "copy_host", [*_COPIES], columns
    )
    none: _Columns = {name: np.zeros(0, kind) for name, kind in _COPIES.items()}
    for process, own in _by_process(units, "host", [*_LAUNCHES], columns).items():
        own["symbol"] = _numbered(own["symbol"], columns)
        yield Issued(pid=process, **own, **copies.get(process, none), columns=columns)


def _units(launches: Launches, columns: Columns) -> _Columns:
    """Return what each call launched, by call_id, then each launch without a recorded call.

    The start, of the first operation, is MISSING for calls that launched nothing.
    """
    operations, calls = launches.operations, launches.calls
    alone = largest = 0
    for some in slices(len(launches)):
        launched = _is_launch(operations, some) & (launches.call[some] == NONE)
        alone += int(np.count_nonzero(launched))
        largest = max(largest, int(_codes(operations, some).max(initial=0)))
    random = np.random.default_rng(0).integers(1, 1 << 62, largest + 1, np.int64)
    # Unknown names come last.
    marks = {
        mark: np.array([*map(judged, operations.names), False])
        for mark, judged in (("optimizer", is_optimizer), ("trial", is_trial))
    }
    samples = np.array([*map(is_sampling, (*operations.full_names, *operations.names)), False])
    count = len(calls) + alone
    units: _Columns = {name: columns.new(count, kind) for name, kind in _LAUNCHES.items()}
    units |= {"pid": columns.new(count, np.int64), "start": columns.new(count, np.int64, MISSING)}
    for some in slices(len(calls)):
        units["host"][some] = calls.start[some]
    several = columns.new(count, np.int32)
    following = len(calls)
    for some, placed, idle in _walk(launches):
        rows = np.flatnonzero(_is_launch(operations, some))
        call = launches.call[some][rows]
        unit, without = call.astype(np.int64), np.flatnonzero(call == NONE)
        unit[without] = following + np.arange(len(without))
        following += len(without)
        codes = _codes(operations, some)[rows]
        np.add.at(units["symbol"], unit, random[codes])
        np.add.at(units["busy"], unit, np.maximum(placed.end - placed.start, 0)[rows])
        np.add.at(several, unit, 1)
        units["graph"][unit[operations.kind[some][rows] == GRAPH]] = True
        units["sampling"][unit[samples[codes]]] = True
        for mark, marked in marks.items():
            units[mark][unit[marked[operations.name[some][rows]]]] = True
        # If a unit occurs several times, its first operation remains.
        new = np.flatnonzero(units["start"][unit] == MISSING)[::-1]
        rows, call, unit = rows[new], call[new], unit[new]
        units["start"][unit], units["pid"][unit] = placed.start[rows], placed.pid[rows]
        units["host"][unit], units["tid"][unit] = placed.host[rows], placed.tid[rows]
        units["idle"][unit] = idle[rows]
        units["ended"][unit] = placed.host[rows]
        known = call != NONE
        units["ended"][unit[known]] = calls.end[call[known]]
    for some in slices(count):
        # Nodes of a graph share its launching call.
        units["graph"][some] |= several[some] > 1
    return units


def _copies(launches: Launches, launched: Ints, columns: Columns) -> _Columns:
    """Return the copies; `launched` is MISSING for calls that launched nothing.

    Copies in a graph are part of its launch.
    """
    operations = launches.operations

    def is_copy(some: slice) -> npt.NDArray[np.bool_]:
        call, own = launches.call[some], ~_is_launch(operations, some)
        called = call != NONE
        own[called] &= launched[call[called]] == MISSING
        return own

    count = sum(int(np.count_nonzero(is_copy(some))) for some in slices(len(launches)))
    copies: _Columns = {name: columns.new(count, kind) for name, kind in _COPIES.items()}
    copies |= {name: columns.new(count, np.int64) for name in ("pid", "start")}
    codes = [_code(operations, title) for title in (_RESULT, _INPUT)]
    first = 0
    for some, placed, idle in _walk(launches):
        rows = np.flatnonzero(is_copy(some))
        own = slice(first, first + len(rows))
        names = operations.name[some][rows]
        copies["start"][own], copies["pid"][own] = placed.start[rows], placed.pid[rows]
        copies["copy_host"][own], copies["copy_tid"][own] = placed.host[rows], placed.tid[rows]
        copies["copy_idle"][own] = idle[rows]
        copies["result"][own], copies["given"][own] = (names == code for code in codes)
        first = own.stop
    return copies


def _walk(launches: Launches) -> Iterator[tuple[slice, Placed, Ints]]:
    """Yield a few operations at a time, and the GPU idle time before each, ns; 0 if it was busy."""
    busy: dict[int, int] = {}
    for some in slices(len(launches)):
        placed = Placed.of(launches, some)
        idle = np.zeros(len(placed.start), np.int64)
        devices, codes = np.unique(placed.device, return_inverse=True)
        for code, rows in groups(codes):
            device, start = int(devices[code]), placed.start[rows]
            ends = np.append(busy.get(device, start[0]), np.maximum(start, placed.end[rows]))
            until = np.maximum.accumulate(ends)
            idle[rows] = np.maximum(start - until[:-1], 0)
            busy[device] = int(until[-1])
        yield some, placed, idle


def _by_process(
    rows: _Columns, host: str, wanted: list[str], columns: Columns
) -> dict[int, _Columns]:
    """Return columns of the rows of each process, in order of host time and start.

    Rows without a start are left out.
    """
    counts = Counter[int]()
    for some in slices(len(rows["start"])):
        processes = rows["pid"][some][rows["start"][some] != MISSING]
        for process, count in zip(*np.unique(processes, return_counts=True), strict=True):
            counts[int(process)] += int(count)
    # Processes share files, of which a process may not open many.
    every = {name: columns.new(counts.total(), rows[name].dtype) for name in wanted}
    ends = dict(zip(sorted(counts), accumulate(counts[pid] for pid in sorted(counts)), strict=True))
    following = {process: end - counts[process] for process, end in ends.items()}
    for ordered in in_order(rows[host], rows["start"]):
        there = ordered[rows["start"][ordered] != MISSING]
        pids = rows["pid"][there]
        for process, first in following.items():
            chosen = there[pids == process]
            following[process] = first + len(chosen)
            for name, values in every.items():
                values[first : following[process]] = rows[name][chosen]
    return {
        process: {name: values[end - counts[process] : end] for name, values in every.items()}
        for process, end in ends.items()
    }


def _numbered(symbols: Ints, columns: Columns) -> Codes:
    """Return symbols as their numbers in ascending order."""
    known = np.zeros(0, np.int64)
    for some in slices(len(symbols)):
        known = np.union1d(known, symbols[some])
    found = columns.new(len(symbols), np.int32)
    for some in slices(len(symbols)):
        found[some] = np.searchsorted(known, symbols[some])
    return found


def _is_launch(operations: Operations, rows: slice) -> npt.NDArray[np.bool_]:
    """Return which operations are kernels or whole graphs."""
    return np.isin(operations.kind[rows], (KERNEL, GRAPH))


def _codes(operations: Operations, rows: slice) -> Ints:
    """Return a code per operation name, with template arguments."""
    full, plain = operations.demangled[rows], operations.name[rows]
    return np.where(full == NONE, len(operations.full_names) + plain, full).astype(np.int64)


def _code(operations: Operations, title: str) -> int | None:
    return operations.names.index(title) if title in operations.names else None
