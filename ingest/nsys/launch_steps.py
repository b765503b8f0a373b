"""Writes launch_steps: steps detected from the order of launches, per process and GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Ints, groups, nullable
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.nsys.issued import Issued, Placed, issued
from perfpipe.ingest.nsys.launches import Launches
from perfpipe.ingest.nsys.steps import Steps, steps_of

TABLE = "launch_steps"

#: Threads are searched separately unless steps contain this share of the launches of the process,
#: or of the launches in the steps of separate threads.
_MOSTLY = 0.5

#: A thread with a smaller share of the launches of a process is not searched for loops.
_LARGE = 0.05


def write_steps(builder: ReportBuilder, operations: Launches) -> None:
    """Write the steps detected from the launches of each process.

    A loop launches the same kernels repeatedly, so no annotation is needed.  Nothing is written for
    processes without a loop.
    """
    if not len(operations):
        return
    placed = Placed.of(operations)
    parts = [part for process in issued(operations, placed) for part in _parts(process, placed)]
    if parts:
        whole = pa.concat_tables([pa.table(part) for part in parts])
        whole = whole.sort_by([(name, "ascending") for name in ("start_ns", "pid", "device")])
        table = {name: whole[name].combine_chunks() for name in whole.column_names}
        builder.write(TABLE, table, whole.num_rows)


def _parts(process: Issued, placed: Placed) -> Iterator[dict[str, pa.Array]]:
    """Yield the rows of a process for each GPU.

    If threads have separate loops, a GPU gets the steps of the thread that uses it most.
    """
    sequences = [(part, found) for part, found in _looping(process) if found]
    before = [0, *accumulate(len(found) for _, found in sequences)]
    kept = [
        _Kept.of(part, found, placed, loops)
        for (part, found), loops in zip(sequences, before, strict=False)
    ]
    for gpu in sorted({gpu for own in kept for gpu in own.on_gpu}):
        yield max(kept, key=lambda own: len(own.on_gpu.get(gpu, ()))).on(gpu, placed)


def _looping(process: Issued) -> list[tuple[Issued, list[Steps]]]:
    """Return the launches of a process with its steps, as one sequence if most of it repeats.

    Threads with separate loops interleave, so the whole sequence does not repeat.  Then each thread
    is searched separately, if that finds more.
    """
    whole = steps_of(process)
    threads, counts = np.unique(process.tid, return_counts=True)
    large = threads[counts >= _LARGE * len(process.tid)]
    if len(threads) < 2 or _covered(whole) >= _MOSTLY * len(process.tid):
        return [(process, whole)]
    parts = [process.of_thread(int(thread)) for thread in large]
    alone = [(part, steps_of(part)) for part in parts]
    better = _MOSTLY * sum(_covered(found) for _, found in alone) > _covered(whole)
    return alone if better else [(process, whole)]


def _covered(found: Sequence[Steps]) -> int:
    return sum(steps.last - steps.first for steps in found)


@dataclass(frozen=True)
class _Kept:
    """Operations in the steps of a sequence (rows and steps), and the columns of steps.

    `on_gpu` has the indices of the operations on each device.
    """

    pid: int
    rows: Ints
    place: Ints
    on_gpu: dict[int, Ints]
    columns: dict[str, npt.NDArray[Any]]

    @classmethod
    def of(cls, part: Issued, found: Sequence[Steps], placed: Placed, before: int) -> Self:
        """Find the operations of each step; this many loops of the process came before."""
        # Loops do not overlap on the host, so one lookup finds the step of an operation.
        begins = np.concatenate([steps.host[:-1] for steps in found])
        ends = np.concatenate([steps.host[1:] for steps in found])
        lengths = [len(steps.launches) for steps in found]
        columns = {
            "loop": np.repeat(before + np.arange(1, len(found) + 1), lengths),
            "step": np.concatenate([np.arange(1, length + 1) for length in lengths]),
            "period": np.repeat([steps.period * steps.repeats for steps in found], lengths),
            "repeats": np.repeat([steps.repeats for steps in found], lengths),
            "host_start_ns": begins,
            "host_end_ns": ends,
            "launches": np.concatenate([steps.launches for steps in found]),
            "match": np.concatenate([steps.match for steps in found]),
            "boundary": np.repeat([steps.boundary for steps in found], lengths),
            "part_launches": np.repeat([steps.part for steps in found], lengths),
            "parts": np.repeat([steps.parts for steps in found], lengths),
        }
        chosen = (placed.pid == part.pid) & (placed.host >= begins[0])
        if part.thread is not None:
            chosen &= placed.tid == part.thread
        rows = np.flatnonzero(chosen)
        place = np.searchsorted(begins, placed.host[rows], side="right") - 1
        inside = placed.host[rows] < ends[place]
        rows, place = rows[inside], place[inside]
        devices, codes = np.unique(placed.device[rows], return_inverse=True)
        on_gpu = {int(devices[code]): own for code, own in groups(codes)}
        return cls(part.pid, rows, place, on_gpu, columns)

    def on(self, gpu: int, placed: Placed) -> dict[str, pa.Array]:
        """Return the columns of launch_steps for the steps with operations on a GPU."""
        own = self.on_gpu[gpu]
        there, step = np.unique(self.place[own], return_inverse=True)
        first = np.full(len(there), np.iinfo(np.int64).max)
        last = np.full(len(there), NONE)
        np.minimum.at(first, step, placed.start[self.rows[own]])
        np.maximum.at(last, step, placed.end[self.rows[own]])
        ended = last != NONE
        there, first, last = there[ended], first[ended], last[ended]
        return {
            "pid": pa.repeat(self.pid, len(there)),
            "device": nullable(np.full(len(there), gpu)),
            "start_ns": pa.array(first),
            "end_ns": pa.array(last),
            **{name: pa.array(values[there]) for name, values in self.columns.items()},
        }
