"""Memory events of torch.profiler traces (profile_memory=True)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.torch.events import LATEST_NS, ns_of, number_of
from perfpipe.ingest.torch.spool import Spool

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Name of memory events, and their table.
_EVENT, _TABLE = "[memory]", "torch_memory"

#: Numbers of c10::DeviceType.
_DEVICES = {0: "CPU", 1: "CUDA"}

_NUMBERS = ("pid", "tid", "device", "address", "bytes", "allocated_bytes", "reserved_bytes")


class MemoryEvents:
    """Allocations and releases of PyTorch, with the totals in the trace.

    Events without a time, a size or a device are skipped and counted.
    """

    def __init__(self, directory: Path) -> None:
        self._lost: Counter[str] = Counter()
        columns = (*_NUMBERS, "device_type", "start_ns", "end_ns")
        self._spool = Spool(directory / "memory_events.parquet", columns, ("device_type",))

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an instant event if it is about memory."""
        if event.get("name") != _EVENT:
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        at = ns_of(event.get("ts"))
        kind, device = number_of(args.get("Device Type")), number_of(args.get("Device Id"))
        size = number_of(args.get("Bytes"))
        for what, value in {"time": at, "device": kind, "size": size}.items():
            if value is None:
                self._lost[what] += 1
                return
        allocated, reserved = (number_of(args.get(f"Total {what}")) for what in _TOTALS)
        self._spool.add((
            number_of(event.get("pid")), number_of(event.get("tid")),
            device if device is not None and device >= 0 else None,
            number_of(args.get("Addr")), size, _total(allocated), _total(reserved),
            _DEVICES.get(kind or 0, f"type {kind}"), at, at,
        ))  # fmt: skip

    def write(self, builder: ReportBuilder, con: DuckDBPyConnection, zero: int) -> None:
        """Write torch_memory; times count from `zero`, ns."""
        for what, events in sorted(self._lost.items()):
            reason = f"have no valid {what}; they were skipped"
            total = len(self._spool) + self._lost.total()
            builder.lose(f"{_EVENT} events", reason, events, total)
        if not len(self._spool):
            reason = "the trace has no memory events; profile with profile_memory=True"
            builder.lacks(_TABLE, reason)
        with builder.table(_TABLE) as writer:
            for batch in self._spool.in_time_order(con, -LATEST_NS):
                columns = {name: batch.numbers(name) for name in _NUMBERS} | {
                    "event": range(writer.rows, writer.rows + len(batch)),
                    "timestamp_ns": pc.subtract(batch.numbers("start_ns"), zero),
                    "device_type": batch.texts("device_type"),
                }
                writer.write(columns, len(batch))


_TOTALS = ("Allocated", "Reserved")


def _total(value: int | None) -> int | None:
    """Return a total; devices without a total in PyTorch have a negative value."""
    return value if value is not None and value >= 0 else None
