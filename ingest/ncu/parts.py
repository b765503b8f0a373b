"""Reads launches of an .ncu-rep in parts, possibly in several processes.

The data of a large part goes to a file launch by launch, so that a part can have any size.
"""

from __future__ import annotations

import heapq
import pickle
import struct
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from perfpipe.errors import InputError, brief
from perfpipe.ingest.ncu.columns import Places
from perfpipe.ingest.ncu.lean import LeanCopies, Result
from perfpipe.ingest.ncu.names import keeps_instances
from perfpipe.ingest.ncu.sass import Disassembler, Listing
from perfpipe.ingest.ncu.source_rows import Counts, SourceCounts
from perfpipe.ingest.ncu.values import MetricReader, Metrics
from perfpipe.ingest.workers import Workers

#: CPU time for reading a launch, for each of its bytes, and for each function, s.
_LAUNCH_S, _BYTE_S, _FUNCTION_S = 0.006, 10e-9, 0.03


#: Parts with more bytes of metrics are not kept in memory.
_MOST_IN_MEMORY = 80_000_000


@dataclass(frozen=True)
class Part:
    """Some launches of a report, in order, and where to write their data."""

    copies: LeanCopies
    launches: tuple[int, ...]
    target: Path


@dataclass(frozen=True)
class LaunchRead:
    """The counts of a launch, and the addresses in its function."""

    launch_id: int
    function: int
    metrics: Metrics
    reached: Places
    counts: dict[str, Counts | None]


@dataclass(frozen=True)
class PartRead:
    """The launches of a part, those in a file last, and the instructions of the functions."""

    kept: list[LaunchRead]
    path: Path
    listings: dict[int, Listing]

    def launches(self) -> Iterator[tuple[LaunchRead, Listing]]:
        """Yield the launches in order, each with at least the instructions that it reached."""
        for launch in self._launches():
            yield launch, self.listings.get(launch.function, {})

    def _launches(self) -> Iterator[LaunchRead]:
        # Each launch is released after it is yielded.
        self.kept.reverse()
        while self.kept:
            yield self.kept.pop()
        with self.path.open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)  # noqa: S301 (written by read_part)


def in_order(parts: Iterable[PartRead]) -> Iterator[tuple[LaunchRead, Listing]]:
    """Yield the launches of all parts in order."""
    return heapq.merge(*(part.launches() for part in parts), key=lambda launch: launch[0].launch_id)


def split(copies: LeanCopies, directory: Path, workers: Workers) -> list[Part]:
    """Return the launches in parts of about equal work, one part per worker.

    Launches of one function, and functions of one module, stay together if possible, since each
    part disassembles the functions of its launches.
    """
    modules: dict[Hashable, int] = {}
    order = sorted(
        enumerate(copies.results),
        key=lambda item: (modules.setdefault(item[1].module, item[0]), item[1].function, item[0]),
    )
    known: set[int] = set()
    work: list[float] = []
    for _, result in order:
        first = result.function not in known
        known.add(result.function)
        work.append(_LAUNCH_S + _BYTE_S * _size(result) + _FUNCTION_S * first)
    most = workers.worth(sum(work))
    done = (np.cumsum(work) - np.array(work) / 2) / sum(work)
    parts: list[list[int]] = [[] for _ in range(most)]
    for (launch_id, _), share in zip(order, done.tolist(), strict=True):
        parts[int(share * most)].append(launch_id)
    return [
        Part(copies, tuple(sorted(part)), directory / f"part-{number}")
        for number, part in enumerate(parts)
        if part
    ]


def _size(result: Result) -> int:
    """Return the number of bytes of metrics."""
    return int(result.metrics[-1, 1] - result.metrics[0, 0]) if len(result.metrics) else 0


def read_part(part: Part) -> PartRead:
    """Read the launches of a part; raises InputError if their bytes are damaged."""
    wanted: dict[int, set[int]] = {}
    kept: list[LaunchRead] = []
    read = 0
    try:
        with part.target.open("wb") as target:
            for launch in _read(part):
                read += _size(part.copies.results[launch.launch_id])
                if read <= _MOST_IN_MEMORY:
                    kept.append(launch)
                else:
                    pickle.dump(launch, target, pickle.HIGHEST_PROTOCOL)
                if len(launch.reached):
                    wanted.setdefault(launch.function, set()).update(launch.reached.tolist())
        with TemporaryDirectory(dir=part.target.parent) as directory:
            listings = Disassembler(part.copies, Path(directory)).listings(wanted)
    except (IndexError, ValueError, struct.error) as error:
        name = part.copies.container.name
        raise InputError(f"{name}: the report is damaged ({brief(error)})") from error
    return PartRead(kept, part.target, listings)


def _read(part: Part) -> Iterator[LaunchRead]:
    container = part.copies.container
    reader = MetricReader(container.strings)
    with container.path.open("rb") as file:
        for launch_id in part.launches:
            result = part.copies.results[launch_id]
            metrics = reader.read(container.message(file, result.place), result.metrics)
            source = SourceCounts(metrics.instances, metrics.function_start)
            kept = {
                name: found for name, found in metrics.instances.items() if keeps_instances(name)
            }
            yield LaunchRead(
                launch_id,
                result.function,
                Metrics(metrics.names, metrics.numbers, metrics.texts, kept),
                source.reached,
                source.columns(),
            )
