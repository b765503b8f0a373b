"""The calls that the host issued, in order, each with everything that it launched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups, time_order
from perfpipe.ingest.nsys.launches import Launches
from perfpipe.ingest.nsys.operations import GRAPH, KERNEL, Operations
from perfpipe.kernel_marks import is_sampling, is_trial
from perfpipe.optimizers import is_optimizer

#: Copies that end a step (results for the host), and copies that begin a step.
_RESULT, _INPUT = "[CUDA memcpy Device-to-Host]", "[CUDA memcpy Host-to-Device]"


@dataclass(frozen=True)
class Issued:
    """Kernel and graph launches of a process, and its copies, each in host order.

    With `thread`, only those of one thread; `tid` and `copy_tid` are the issuing threads.  Times in
    ns.  `symbol` identifies the kernel or whole graph of a launch; `idle` is the GPU idle time
    before it, and `busy` the GPU time of its operations; `optimizer` marks optimizer kernels,
    `trial` kernels of autotuners, `sampling` kernels that choose a token, and `graph` CUDA graphs.
    `ended` is when the launching call returned.  `result` marks copies to the host, `given` copies
    from the host.
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

    def of_thread(self, thread: int) -> Issued:
        """Return the launches and copies of one thread."""
        own, copies = self.tid == thread, self.copy_tid == thread
        return Issued(
            pid=self.pid,
            tid=self.tid[own],
            symbol=self.symbol[own],
            host=self.host[own],
            ended=self.ended[own],
            idle=self.idle[own],
            busy=self.busy[own],
            optimizer=self.optimizer[own],
            trial=self.trial[own],
            sampling=self.sampling[own],
            graph=self.graph[own],
            copy_tid=self.copy_tid[copies],
            copy_host=self.copy_host[copies],
            copy_idle=self.copy_idle[copies],
            result=self.result[copies],
            given=self.given[copies],
            thread=thread,
        )


@dataclass(frozen=True)
class Placed:
    """When and where each operation ran, and when its call started, or itself without a call.

    Times in ns; NONE means an unknown process, thread or device.
    """

    start: Ints
    end: Ints
    pid: Ints
    tid: Ints
    device: Ints
    host: Ints

    @classmethod
    def of(cls, launches: Launches) -> Self:
        """Read the columns of all operations."""
        start, end, pid, device = (
            launches.operations.known(name, slice(None))
            for name in ("start_ns", "end_ns", "pid", "device")
        )
        host, tid = start.copy(), np.full(len(start), NONE, np.int64)
        called = launches.call != NONE
        host[called] = launches.calls.start[launches.call[called]]
        tid[called] = launches.calls.tid[launches.call[called]]
        return cls(start, end, pid, tid, device, host)


def issued(launches: Launches, placed: Placed) -> Iterator[Issued]:
    """Yield the launches and copies of each process."""
    operations, calls = launches.operations, launches.calls
    start, host = placed.start, placed.host
    idle = _idle(start, np.maximum(start, placed.end), placed.device)
    codes, marks = _names(operations)
    random = np.random.default_rng(0).integers(1, 1 << 62, int(codes.max(initial=0)) + 1, np.int64)
    # The unit of an operation is its call, or itself if no call was recorded.
    call = launches.call
    alone = np.arange(len(call), dtype=np.int32) + np.int32(len(calls))
    units = np.where(call == NONE, alone, call)
    is_launch = np.isin(operations.kind, (KERNEL, GRAPH))
    processes, process_of = np.unique(placed.pid, return_inverse=True)

    def of(process: int, own: Ints) -> Issued:
        chosen = own[is_launch[own]]
        # Operations of a unit are in time order.
        unit, first, member = np.unique(units[chosen], return_index=True, return_inverse=True)
        symbol, busy = np.zeros(len(unit), np.int64), np.zeros(len(unit), np.int64)
        np.add.at(symbol, member, random[codes[chosen]])
        np.add.at(busy, member, np.maximum(placed.end[chosen] - start[chosen], 0))
        rows = chosen[first]
        order = time_order(host[rows], start[rows])
        rows = rows[order]
        marked = {name: np.bincount(member, own[chosen])[order] > 0 for name, own in marks.items()}
        ended = host[rows].copy()
        known = call[rows] != NONE
        ended[known] = calls.end[call[rows][known]]
        copies = own[~is_launch[own]]
        # Operations in a graph are part of its launch.
        copies = copies[~np.isin(units[copies], unit)]
        copies = copies[time_order(host[copies], start[copies])]
        return Issued(
            pid=process,
            tid=placed.tid[rows],
            symbol=np.unique(symbol[order], return_inverse=True)[1].astype(np.int32),
            host=host[rows],
            ended=ended,
            idle=idle[rows],
            busy=busy[order],
            optimizer=marked["optimizer"],
            trial=marked["trial"],
            sampling=marked["sampling"],
            # Nodes of a graph share its launching call.
            graph=(np.bincount(member)[order] > 1) | (operations.kind[rows] == GRAPH),
            copy_tid=placed.tid[copies],
            copy_host=host[copies],
            copy_idle=idle[copies],
            result=_is_called(_RESULT, operations, copies),
            given=_is_called(_INPUT, operations, copies),
        )

    for process, own in groups(process_of):
        if is_launch[own].any():
            # Temporary arrays are released before the result is used.
            yield of(int(processes[process]), own)


def _idle(start: Ints, end: Ints, device: Ints) -> Ints:
    """Return the GPU idle time before each operation, ns; 0 if it was busy."""
    idle = np.zeros(len(start), np.int64)
    for _, rows in groups(np.unique(device, return_inverse=True)[1]):
        busy = np.maximum.accumulate(end[rows])
        idle[rows[1:]] = np.maximum(start[rows[1:]] - busy[:-1], 0)
    return idle


def _names(operations: Operations) -> tuple[Ints, dict[str, npt.NDArray[np.bool_]]]:
    """Return a code per operation name, with template arguments, and the marks by name."""
    full, plain = operations.demangled, operations.name
    # Unknown names come last.
    titles = [*operations.names, ""]
    functions = np.where(plain == NONE, len(titles) - 1, plain).astype(np.int64)
    codes = np.where(full == NONE, len(operations.full_names) + functions, full).astype(np.int64)
    marks = {
        mark: np.array([*map(judged, titles)])[functions]
        for mark, judged in (("optimizer", is_optimizer), ("trial", is_trial))
    }
    marks["sampling"] = np.array([*map(is_sampling, (*operations.full_names, *titles))])[codes]
    return codes, marks


def _is_called(title: str, operations: Operations, rows: Ints) -> npt.NDArray[np.bool_]:
    codes = [code for code, found in enumerate(operations.names) if found == title]
    return np.isin(operations.name[rows], codes)
