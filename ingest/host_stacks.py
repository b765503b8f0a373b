"""Stacks of threads on the host at known times, and what each of them stands for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from perfpipe.ingest.arrays import Ints
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.frames import Frame, Owners, Stack
from perfpipe.secrets import hide

FRAMES, STACKS, SAMPLES = "host_frames", "host_stacks", "host_samples"

#: Source of the stacks of calls into the operating system, which nsys records by default.
OS_CALLS = "os backtrace"

#: Instead of the number of a stack without frames, and of a call if there is none.
NO_STACK, NO_CALL = -1, -1


@dataclass
class Samples:
    """Stacks of one source with the times at which they were recorded, as columns.

    Either all have an end, because they were traced, or none.
    """

    source: str
    time_ns: array[int] = field(default_factory=lambda: array("q"))
    pid: array[int] = field(default_factory=lambda: array("q"))
    tid: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("q"))
    call: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))

    def add(self, time_ns: int, pid: int, tid: int, stack: int, *, call: int = NO_CALL) -> None:
        """Add a sample, or the backtrace of a CUDA call with this correlation id."""
        self.time_ns.append(time_ns)
        self.pid.append(pid)
        self.tid.append(tid)
        self.stack.append(stack)
        self.call.append(call)

    def trace(self, start_ns: int, end_ns: int, pid: int, tid: int, stack: int) -> None:
        """Add a stack that was traced from start to end."""
        self.add(start_ns, pid, tid, stack)
        self.end_ns.append(end_ns)


class HostStacks:
    """Collects the distinct stacks of a report, and writes the three tables."""

    def __init__(self) -> None:
        self.stacks: dict[Stack, int] = {}
        self.samples: list[Samples] = []

    def number(self, stack: Stack) -> int:
        """Return the number of a stack, NO_STACK for an empty one."""
        return self.stacks.setdefault(stack, len(self.stacks)) if stack else NO_STACK

    def calls(self) -> set[tuple[int, int]]:
        """Return process and correlation id of the CUDA calls whose stacks are known."""
        return {
            (pid, call)
            for samples in self.samples
            for pid, call, stack in zip(samples.pid, samples.call, samples.stack, strict=True)
            if call != NO_CALL and stack != NO_STACK
        }

    def write(self, builder: ReportBuilder, why_none: str) -> None:
        """Write the tables; if only calls into the operating system have stacks, record why."""
        self.write_stacks(builder)
        self._write_samples(builder)
        sources = {samples.source for samples in self.samples if samples.time_ns}
        if not sources:
            self.lack(builder, why_none)
        elif sources == {OS_CALLS}:
            builder.lacks(SAMPLES, why_none)

    @staticmethod
    def lack(builder: ReportBuilder, reason: str) -> None:
        """Record why there are no stacks."""
        for table in (FRAMES, STACKS, SAMPLES):
            builder.lacks(table, reason)

    def write_stacks(self, builder: ReportBuilder) -> None:
        """Write host_frames and host_stacks."""
        frames = {frame: at for at, frame in enumerate(dict.fromkeys(_all(self.stacks)))}
        owners = Owners(self.stacks)
        owned = [owners.of(frame) for frame in frames]
        columns: dict[str, list[object]] = {
            "frame_id": [*frames.values()],
            "function": [hide(frame.function) for frame in frames],
            "file": [frame.file and hide(frame.file) for frame in frames],
            "line": [frame.line for frame in frames],
            "kind": [kind for kind, _ in owned],
            "package": [package for _, package in owned],
        }
        builder.write(FRAMES, columns, len(frames))
        placed = [
            (number, depth, frames[frame])
            for stack, number in self.stacks.items()
            for depth, frame in enumerate(stack)
        ]
        names = ("stack_id", "depth", "frame_id")
        columns = {name: [row[at] for row in placed] for at, name in enumerate(names)}
        builder.write(STACKS, columns, len(placed))

    def _write_samples(self, builder: ReportBuilder) -> None:
        parts = [_columns(samples) for samples in self.samples if samples.time_ns]
        if not parts:
            builder.write(SAMPLES, {}, 0)
            return
        whole = pa.concat_tables(parts)
        order = [(name, "ascending") for name in ("time_ns", "pid", "tid", "source")]
        rows = whole.sort_by(order).combine_chunks()
        builder.write(SAMPLES, dict(zip(rows.column_names, rows.columns, strict=True)), len(rows))


def _columns(samples: Samples) -> pa.Table:
    start, end = spans_of(samples)
    stack, call = (np.array(numbers, np.int64) for numbers in (samples.stack, samples.call))
    called = call != NO_CALL
    return pa.table(
        {
            "time_ns": np.array(samples.time_ns, np.int64),
            "start_ns": pa.array(start, mask=called),
            "end_ns": pa.array(end, mask=called),
            "pid": np.array(samples.pid, np.int64),
            "tid": np.array(samples.tid, np.int64),
            "stack_id": pa.array(stack, mask=stack == NO_STACK),
            "source": pa.repeat(samples.source, len(stack)),
            "correlation_id": pa.array(call, mask=~called),
        }
    )


def spans_of(samples: Samples) -> tuple[Ints, Ints]:
    """Return the start and the end of the interval that each sample stands for, ns.

    The boundary between two samples of a thread is halfway between them, but an interval extends at
    most one period, the median time between samples, to each side: what lies between samples that
    are further apart was not sampled.  Traced intervals are exact.
    """
    time = np.array(samples.time_ns, np.int64)
    if samples.end_ns:
        return time, np.array(samples.end_ns, np.int64)
    pid, tid = (np.array(numbers, np.int64) for numbers in (samples.pid, samples.tid))
    order = np.lexsort((time, tid, pid))
    pid, tid = pid[order], tid[order]
    same = (np.diff(pid) == 0) & (np.diff(tid) == 0)
    time = time[order]
    apart = np.diff(time)
    # Without a second sample no period is known: samples stand for nothing.
    period = int(np.median(apart[same])) if same.any() else 0
    middle = time[:-1] + apart // 2
    start, end = time - period, time + period
    start[1:] = np.where(same, np.maximum(start[1:], middle), start[1:])
    end[:-1] = np.where(same, np.minimum(end[:-1], middle), end[:-1])
    back = np.argsort(order)
    return start[back], end[back]


def _all(stacks: Iterable[Sequence[Frame]]) -> Iterable[Frame]:
    for stack in stacks:
        yield from stack
