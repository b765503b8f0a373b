"""Python functions in a torch.profiler trace (with_stack=True), as stacks over time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.frames import Frame
from perfpipe.ingest.host_stacks import SAMPLES, HostStacks
from perfpipe.ingest.torch.events import Event
from perfpipe.ingest.torch.spool import Spool

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SOURCE = "python tracing"

_NO_STACKS = "the trace has no Python functions; profile with with_stack=True"

#: torch/nn/modules/linear.py(124): forward
_FUNCTION = re.compile(r"(.+)\((\d+)\): (.*)", re.DOTALL)

#: <built-in method item of Tensor object at 0x7f11e8777200>
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

#: The call of a module, and the file of the function that it replaces: nn.Module: Linear_0
_MODULE, _MODULE_FILE = "nn.Module: ", "torch/nn/modules/module.py"

_NUMBERS = ("pid", "tid", "start_ns", "end_ns")

#: Frames that are kept of a stack, outermost first.
_DEEPEST = 1_000

#: Functions that start this long before all other events have no valid time, ns.
_BEFORE = 3_600 * 10**9


class PythonFunctions:
    """Gathers Python functions on disk, and writes each stretch of time with the same stack."""

    def __init__(self, directory: Path) -> None:
        self._functions = Spool(
            directory / "functions.parquet", ("pid", "tid", "name", "start_ns", "end_ns"), ("name",)
        )
        self._traced = Spool(
            directory / "traced.parquet", ("pid", "tid", "stack", "start_ns", "end_ns"), ()
        )

    def add(self, event: Event, pid: int) -> None:
        """Add a function of a process."""
        name = _ADDRESS.sub("", event.name)
        self._functions.add((pid, event.tid, name, event.start, event.end))

    def write(self, builder: ReportBuilder, con: DuckDBPyConnection, zero: int) -> None:
        """Write host_samples, host_stacks and host_frames; times count from `zero`, ns."""
        stacks = HostStacks()
        tree = _Tree(stacks, self._functions)
        threads: dict[tuple[int, int], _Thread] = {}
        for batch in self._functions.in_time_order(con, zero - _BEFORE, outer_first=True):
            numbers = [batch.numbers(name).to_pylist() for name in _NUMBERS]
            names = batch.codes("name").tolist()
            for pid, tid, start, end, name in zip(*numbers, names, strict=True):
                if (thread := threads.get((pid, tid))) is None:
                    thread = threads[pid, tid] = _Thread(tree, start)
                self._add_pieces(pid, tid, thread.begin(name, start, end))
        for (pid, tid), thread in threads.items():
            self._add_pieces(pid, tid, thread.finish())
        with builder.table(SAMPLES) as writer:
            for batch in self._traced.in_time_order(con, zero - _BEFORE):
                start, end = (batch.numbers(name) for name in ("start_ns", "end_ns"))
                columns = {
                    "time_ns": pc.subtract(start, zero),
                    "start_ns": pc.subtract(start, zero),
                    "end_ns": pc.subtract(end, zero),
                    "pid": batch.numbers("pid"),
                    "tid": batch.numbers("tid"),
                    "stack_id": batch.numbers("stack"),
                    "source": [SOURCE] * len(batch),
                }
                writer.write(columns, len(batch))
        stacks.write_stacks(builder)
        if not writer.rows:
            stacks.lack(builder, _NO_STACKS)

    def _add_pieces(self, pid: int, tid: int, pieces: Iterator[_Piece]) -> None:
        for start, end, stack in pieces:
            self._traced.add((pid, tid, stack, start, end))


_Piece = tuple[int, int, int]  # start, end, number of the stack


class _Tree:
    """The distinct stacks; node 0 is the empty stack."""

    def __init__(self, stacks: HostStacks, functions: Spool) -> None:
        self._stacks, self._functions = stacks, functions
        self._nodes: dict[tuple[int, int], int] = {}
        self._above = [(0, 0, 0)]  # node, name, depth
        self._frames: dict[int, Frame] = {}
        self._numbers: dict[int, int] = {}

    def below(self, node: int, name: int) -> int:
        """Return the stack in which the innermost function of `node` calls another."""
        if (node, name) not in self._nodes:
            depth = self._above[node][2] + 1
            if depth > _DEEPEST:
                return node
            self._nodes[node, name] = len(self._above)
            self._above.append((node, name, depth))
        return self._nodes[node, name]

    def number(self, node: int) -> int:
        """Return the number of a stack in host_stacks."""
        if node not in self._numbers:
            frames, at = [], node
            while at:
                at, name, _ = self._above[at]
                frames.append(self._frame(name))
            self._numbers[node] = self._stacks.number(tuple(frames))
        return self._numbers[node]

    def _frame(self, name: int) -> Frame:
        if name not in self._frames:
            self._frames[name] = frame_of(self._functions.values("name")[name])
        return self._frames[name]


@dataclass
class _Thread:
    """The functions that a thread is executing, outermost first, as nodes with their ends."""

    tree: _Tree
    at: int
    open: list[tuple[int, int]] = field(default_factory=list)
    #: The last stretch: it continues if the same stack follows.
    last: tuple[int, int, int] | None = None

    def begin(self, name: int, start: int, end: int) -> Iterator[_Piece]:
        """Begin a function; yield finished stretches."""
        yield from self._until(start)
        node, limit = self.open[-1] if self.open else (0, end)
        # Rounded times may exceed those of the caller.
        self.open.append((self.tree.below(node, name), min(end, limit)))

    def finish(self) -> Iterator[_Piece]:
        """End all functions."""
        if self.open:
            yield from self._until(self.open[0][1])
        yield from self._close()

    def _until(self, time: int) -> Iterator[_Piece]:
        while self.open and self.open[-1][1] <= time:
            node, end = self.open.pop()
            yield from self._stretch(node, end)
        if self.open:
            yield from self._stretch(self.open[-1][0], time)
        else:
            self.at = max(self.at, time)

    def _stretch(self, node: int, end: int) -> Iterator[_Piece]:
        if end <= self.at:
            return
        start, self.at = self.at, end
        if self.last is not None and self.last[1:] == (start, node):
            self.last = (self.last[0], end, node)
            return
        yield from self._close()
        self.last = (start, end, node)

    def _close(self) -> Iterator[_Piece]:
        if self.last is not None:
            start, end, node = self.last
            yield start, end, self.tree.number(node)
        self.last = None


def frame_of(name: str) -> Frame:
    """Return the frame of a function by its name in the trace.

    >>> frame_of("torch/nn/modules/linear.py(124): forward")
    Frame(function='forward', file='torch/nn/modules/linear.py', line=124, native=False)
    """
    if function := _FUNCTION.fullmatch(name):
        return Frame(function[3], function[1], int(function[2]) or None)
    return Frame(name, _MODULE_FILE if name.startswith(_MODULE) else None, None)
