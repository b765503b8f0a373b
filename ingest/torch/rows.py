"""Gathers the events of a trace, in any order, as rows of tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpipe.ingest.torch.events import (
    CALLS,
    FORWARD_THREAD,
    KERNELS,
    LATEST_NS,
    MEMORY,
    OPERATORS,
    SEQUENCE,
    Event,
    number_of,
    plain,
    text_of,
)
from perfpipe.ingest.torch.ranks import DistinctNumbers
from perfpipe.ingest.torch.spool import Spool

#: Arguments that only torch.distributed calls have.
_COLLECTIVE = "Collective name"

#: Dimensions of the inputs of an operator, if shapes were recorded, and their types.
_SHAPES, _TYPES = "Input Dims", "Input type"

#: Sequence number of an operator, and PyTorch's number of the forward thread, as columns.
NUMBERS = ("sequence", "forward_thread")

_GPU = ("device", "context", "stream", "rank", "correlation_id", "start_ns", "end_ns", "name")
EXTENTS = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_NO_EXTENT = (None,) * 3

#: An event at the time 0 has no time if all others start at least this much later: one hour, ns.
_NO_TIME = 3_600 * 10**9


class Rows:
    """The events of a trace as rows of tables."""

    def __init__(self, directory: Path) -> None:
        def spool(name: str, columns: tuple[str, ...], texts: tuple[str, ...]) -> Spool:
            return Spool(directory / f"{name}.parquet", columns, texts)

        self.devices = DistinctNumbers()
        self.at_zero = 0
        self._earliest = LATEST_NS
        self._processes = DistinctNumbers()
        self._calls: dict[str, Counter[int]] = {}
        self._ranges: dict[str, Counter[int]] = {}
        self.kernels = spool("kernels", (*_GPU, "registers", *EXTENTS), ("rank", "name"))
        self.memory = spool("memory", (*_GPU, "bytes"), ("rank", "name"))
        call = ("pid", "tid", "api", "name", "correlation_id", "start_ns", "end_ns")
        self.calls = spool("calls", call, ("api", "name"))
        texts = ("domain", "name", "shapes", "types", "payload")
        ranges = ("pid", "tid", *texts, *NUMBERS, "start_ns", "end_ns")
        self.ranges = spool("ranges", ranges, texts)

    @property
    def count(self) -> int:
        """Number of events."""
        return sum(map(len, (self.kernels, self.memory, self.calls, self.ranges)))

    @property
    def zero(self) -> int:
        """The start of the first event that has a time, ns."""
        if self.at_zero and not _NO_TIME <= self._earliest < LATEST_NS:
            return min(self._earliest, 0)
        return self._earliest

    @property
    def ranks(self) -> int:
        """Number of ranks; 1 unless the trace was merged from several."""
        return len(self._calls.keys() | self._ranges.keys())

    def add(self, event: Event) -> None:
        """Add an event."""
        if event.start:
            self._earliest = min(self._earliest, event.start)
        else:
            self.at_zero += 1
        args, times = event.args, (event.start, event.end)
        if event.category == KERNELS:
            extents = (*(args.get("grid") or _NO_EXTENT), *(args.get("block") or _NO_EXTENT))
            registers = args.get("registers per thread")
            self.kernels.add((*self._gpu(event), registers, *extents))
        elif event.category in MEMORY:
            self.memory.add((*self._gpu(event), args.get("bytes")))
        elif event.category in CALLS:
            pid = self._process(event, self._calls)
            number = args.get("correlation")
            self.calls.add((pid, event.tid, event.category, event.name, number, *times))
        else:
            pid = self._process(event, self._ranges)
            domain = "cpu_op" if event.category == OPERATORS else ""
            shapes = args.get(_SHAPES) or None
            self.ranges.add((
                pid, event.tid, domain, event.name, _as_json(shapes),
                None if shapes is None else _as_json(args.get(_TYPES)), _payload(args),
                number_of(args.get(SEQUENCE)), number_of(args.get(FORWARD_THREAD)), *times,
            ))  # fmt: skip

    def process(self, event: Event) -> int:
        """Return the process of an event on the host."""
        return self._processes.of(event.rank, event.pid)

    def _process(self, event: Event, counted: dict[str, Counter[int]]) -> int:
        pid = self.process(event)
        counted.setdefault(event.rank, Counter())[pid] += 1
        return pid

    def _gpu(self, event: Event) -> tuple[Any, ...]:
        args = event.args
        device = args.get("device", event.pid)
        if device is not None:
            device = self.devices.of(event.rank, device)
        return (
            device, args.get("context"), args.get("stream", event.tid), event.rank,
            args.get("correlation"), event.start, event.end, event.name,
        )  # fmt: skip

    def pid(self, rank: str) -> int | None:
        """Return the process of a rank's GPU operations: the one with the most calls."""
        pids = self._calls.get(rank) or self._ranges.get(rank) or Counter()
        return max(pids, key=pids.__getitem__, default=None)


def _payload(args: Mapping[str, Any]) -> str | None:
    """Return the arguments of a torch.distributed call: field, number, text of each."""
    if _COLLECTIVE not in args:
        return None
    return json.dumps([
        (text_of(field), _number(value), text_of(str(value)))
        for field, value in sorted(args.items())
        if plain(value)
    ])  # fmt: skip


def _number(value: object) -> int | None:
    return None if isinstance(value, str) else int(value) if value is True else number_of(value)


def _as_json(value: object) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))
