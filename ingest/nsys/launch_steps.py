"""Writes launch_loops and launch_steps: loops found from the order of launches, and iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Ints, nullable, placed
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import slices
from perfpipe.ingest.nsys.issued import Issued, Placed, issued
from perfpipe.ingest.nsys.launches import Launches
from perfpipe.ingest.nsys.loops import Level, loops_of
from perfpipe.ingest.nsys.steps import MOST_STEPS, Steps, steps_of
from perfpipe.model import tables

TABLE = "launch_steps"
LOOPS = "launch_loops"

#: Threads are searched separately unless steps contain this share of the launches of the process,
#: or of the launches in the steps of separate threads.
_MOSTLY = 0.5

#: Threads with exact loops in this share of their launches have loops of their own.
_NEARLY_ALL = 0.9

#: A thread with a smaller share of the launches of a process is not searched for loops.
_LARGE = 0.05


def write_steps(builder: ReportBuilder, launches: Launches) -> None:
    """Write the loops found from the launches of each process, and their iterations.

    A loop launches the same kernels repeatedly, so no annotation is needed.  Nothing is written for
    processes without a loop.
    """

    def operations() -> Iterator[Placed]:
        return (Placed.of(launches, some) for some in slices(len(launches)))

    loops: list[pa.Table] = []
    steps: list[pa.Table] = []
    for process in issued(launches):
        kept = _kept(process, operations)
        loops += [own.loops() for own in kept]
        steps += [pa.table(part) for part in _parts(kept)]
    for name, parts, keys in (
        (LOOPS, loops, ("pid", "loop")),
        (TABLE, steps, ("start_ns", "pid", "device", "loop")),
    ):
        if parts:
            whole = pa.concat_tables(parts).sort_by([(key, "ascending") for key in keys])
            columns = {name: whole[name].combine_chunks() for name in whole.column_names}
            builder.write(name, columns, whole.num_rows)


def _kept(process: Issued, operations: Callable[[], Iterable[Placed]]) -> list[_Kept]:
    """Return the loops of a process by sequence of launches; `operations` yields all."""
    sequences = [(part, found) for part, found in looping(process) if found]
    before = [0, *accumulate(len(found) for _, found in sequences)]
    kept = [
        _Kept(part, found, loops) for (part, found), loops in zip(sequences, before, strict=False)
    ]
    for some in operations() if kept else ():
        for own in kept:
            own.add(some)
    return kept


def _parts(kept: Sequence[_Kept]) -> Iterator[dict[str, pa.Array]]:
    """Yield the iterations of a process on each GPU.

    If threads have separate loops, a GPU gets the steps of the thread that uses it most.
    """
    for gpu in sorted({gpu for own in kept for gpu in own.used}):
        yield max(kept, key=lambda own: own.used[gpu]).on(gpu)


def looping(process: Issued) -> list[tuple[Issued, list[Level]]]:
    """Return the launches of a process with its loops, as one sequence if most of it repeats.

    Threads with separate loops interleave, so the whole sequence does not repeat.  Then each thread
    is searched separately, if that finds more.
    """
    whole = steps_of(process)
    counts = Counter[int]()
    for some in slices(len(process.tid)):
        threads, launches = np.unique(process.tid[some], return_counts=True)
        counts.update(dict(zip(threads.tolist(), launches.tolist(), strict=True)))
    large = [thread for thread in sorted(counts) if counts[thread] >= _LARGE * counts.total()]
    if len(counts) < 2 or _covered(whole) >= _MOSTLY * len(process.tid):
        return [(process, loops_of(process, whole))]
    parts = [process.of_thread(thread) for thread in large]
    alone = [(part, steps_of(part)) for part in parts]
    exact = sum(_covered(found) for _, found in alone)
    levels = loops_of(process, whole)
    if exact < _NEARLY_ALL * len(process.tid) and _stepping(levels) >= _MOSTLY * len(process.tid):
        return [(process, levels)]
    if _MOSTLY * exact > _covered(whole):
        return [(part, loops_of(part, found)) for part, found in alone]
    return [(process, levels)]


def _stepping(levels: Sequence[Level]) -> int:
    """Return the number of launches in steps."""
    return sum(
        int((level.loop.ends - level.loop.heads).sum())
        for level in levels
        if level.role.role == "step"
    )


def _covered(found: Sequence[Steps]) -> int:
    return sum(steps.last - steps.first for steps in found)


@dataclass
class _OnGpu:
    """When the first operation of each iteration began on a GPU, and the last one ended, ns."""

    first: Ints
    last: Ints

    @classmethod
    def of(cls, iterations: int) -> Self:
        """Return iterations without operations."""
        return cls(np.full(iterations, np.iinfo(np.int64).max), np.full(iterations, NONE))


class _Kept:
    """The loops of a sequence of launches, and the operations of their iterations on each GPU.

    `used` is the number of operations in loops on each GPU.
    """

    def __init__(self, part: Issued, levels: Sequence[Level], before: int) -> None:
        """Take loops; this many loops of the process came before."""
        self._part, self._levels, self._before = part, levels, before
        self._combined = [_combined(level) for level in levels]
        self._on_gpu: dict[tuple[int, int], _OnGpu] = {}
        self.used = Counter[int]()

    def add(self, some: Placed) -> None:
        """Add operations of all processes."""
        chosen = some.pid == self._part.pid
        if self._part.thread is not None:
            chosen &= some.tid == self._part.thread
        rows = np.flatnonzero(chosen)
        used = np.zeros(len(rows), bool)
        devices, codes = np.unique(some.device[rows], return_inverse=True)
        for number, level in enumerate(self._combined):
            place, inside = placed(level.begins, level.ends, some.host[rows])
            used |= inside
            for code, device in enumerate(devices.tolist()):
                own = np.flatnonzero(inside & (codes == code))
                if len(own):
                    key = (number, device)
                    gpu = self._on_gpu.setdefault(key, _OnGpu.of(len(level)))
                    np.minimum.at(gpu.first, place[own], some.start[rows[own]])
                    np.maximum.at(gpu.last, place[own], some.end[rows[own]])
        for code, device in enumerate(devices.tolist()):
            if count := int(np.count_nonzero(used & (codes == code))):
                self.used[device] += count

    def loops(self) -> pa.Table:
        """Return the rows of launch_loops."""
        rows = [
            {
                "pid": self._part.pid,
                "loop": self._before + level.number,
                "parent": self._before + level.outer if level.outer else None,
                "level": level.level,
                "role": level.role.role,
                "source": level.source,
                "evidence": ", ".join(level.role.evidence) or None,
                "iterations": level.iterations,
                "launches": float(level.loop.length),
                "variable": int(level.variable),
                "fewest": level.per_outer[0] if level.per_outer else None,
                "usual": level.per_outer[1] if level.per_outer else None,
                "most": level.per_outer[2] if level.per_outer else None,
                "share": level.role.share,
                "why": level.role.why,
            }
            for level in self._levels
        ]
        return pa.Table.from_pylist(rows, schema=tables()[LOOPS].schema)

    def on(self, gpu: int) -> dict[str, pa.Array]:
        """Return the columns of launch_steps for the iterations with operations on a GPU."""
        parts = [
            self._iterations(level, gpu, self._on_gpu[number, gpu])
            for number, level in enumerate(self._combined)
            if (number, gpu) in self._on_gpu
        ]
        return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}

    def _iterations(self, level: Level, gpu: int, own: _OnGpu) -> dict[str, pa.Array]:
        there = np.flatnonzero(own.last != NONE)
        columns: dict[str, npt.NDArray[Any]] = {
            "start_ns": own.first,
            "end_ns": own.last,
            "run": level.run,
            "step": np.arange(1, len(level) + 1),
            "host_start_ns": level.begins,
            "host_end_ns": level.ends,
            "launches": level.loop.ends - level.loop.heads,
            "period": int(level.loop.length) * level.repeats,
            "repeats": level.repeats,
        }
        match = level.match[there]
        return {
            "pid": pa.repeat(self._part.pid, len(there)),
            "device": nullable(np.full(len(there), gpu)),
            "loop": pa.array(np.full(len(there), self._before + level.number)),
            "match": pa.array(match, mask=np.isnan(match)),
            "boundary": pa.array(np.full(len(there), level.boundary, object), pa.string()),
            **{name: pa.array(values[there]) for name, values in columns.items()},
        }


def _combined(level: Level) -> Level:
    """Return a loop with several iterations in one, if it has too many."""
    several = -(-len(level) // MOST_STEPS)
    return level if several == 1 else level.every(several)
