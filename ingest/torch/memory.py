"""Memory events of torch.profiler traces (profile_memory=True)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.torch.events import ns_of, number_of

#: Name of memory events, and their table.
_EVENT, _TABLE = "[memory]", "torch_memory"

#: Numbers of c10::DeviceType.
_DEVICES = {0: "CPU", 1: "CUDA"}


def write_memory(builder: ReportBuilder, raw: Iterable[Mapping[str, Any]], zero: int) -> None:
    """Write allocations and releases of PyTorch, with the totals in the trace.

    Events without a time, a size or a device are skipped and counted.
    """
    lost: Counter[str] = Counter()
    rows = []
    for event in raw:
        if event.get("ph") == "i" and event.get("name") == _EVENT:
            row, lacking = _row(event, zero)
            if lacking:
                lost[lacking] += 1
            else:
                rows.append(row)
    for lacking, events in sorted(lost.items()):
        reason = f"have no valid {lacking}; they were skipped"
        builder.lose(f"{_EVENT} events", reason, events, len(rows) + lost.total())
    if not rows:
        builder.lacks(_TABLE, "the trace has no memory events; profile with profile_memory=True")
    # Events of the same time stay in trace order.
    rows.sort(key=lambda row: row["timestamp_ns"])
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    builder.write(_TABLE, {"event": list(range(len(rows))), **columns} if rows else {}, len(rows))


def _row(event: Mapping[str, Any], zero: int) -> tuple[dict[str, Any], str]:
    """Return the row of an event, and the name of a missing value, if any."""
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    at = ns_of(event.get("ts"))
    kind, device = number_of(args.get("Device Type")), number_of(args.get("Device Id"))
    size = number_of(args.get("Bytes"))
    needed = {"time": at, "device": kind, "size": size}
    lacking = next((what for what, value in needed.items() if value is None), "")
    allocated, reserved = (number_of(args.get(f"Total {what}")) for what in _TOTALS)
    row = {
        "timestamp_ns": (at or 0) - zero,
        "pid": number_of(event.get("pid")),
        "tid": number_of(event.get("tid")),
        "device_type": _DEVICES.get(kind or 0, f"type {kind}"),
        "device": device if device is not None and device >= 0 else None,
        "address": number_of(args.get("Addr")),
        "bytes": size,
        "allocated_bytes": _total(allocated),
        "reserved_bytes": _total(reserved),
    }
    return row, lacking


_TOTALS = ("Allocated", "Reserved")


def _total(value: int | None) -> int | None:
    """Return a total; devices without a total in PyTorch have a negative value."""
    return value if value is not None and value >= 0 else None
