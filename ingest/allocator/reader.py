"""Writes the tables of a memory snapshot of PyTorch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from perfpipe.errors import InputError
from perfpipe.ingest.allocator.content import Block, Content, Event, Segment
from perfpipe.ingest.allocator.lives import NONE, Allocations, Lives
from perfpipe.ingest.allocator.stacks import BadFrame, Stacks
from perfpipe.ingest.arrays import nullable
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.provenance import utc

_NO_HISTORY = (
    "the snapshot has no events; call torch.cuda.memory._record_memory_history() before the "
    "program allocates memory"
)


def read_snapshot(builder: ReportBuilder) -> None:
    """Read a memory snapshot; raises InputError if it is damaged or empty."""
    source = builder.source
    content = Content(source.path, source.content)
    segments = list(content.segments())
    stacks, events, allocations = Stacks(), _Events(), Allocations()
    of_device: dict[int, list[Segment]] = {device: [] for device in range(len(content.traces))}
    for segment in segments:
        of_device.setdefault(segment.device, []).append(segment)
    try:
        for device, own in sorted(of_device.items()):
            lives = Lives(device, allocations)
            if device < len(content.traces):
                _read_events(content, device, lives, stacks, events)
            _read_blocks(builder, own, lives, stacks, events)
    except BadFrame as error:
        raise InputError(f"{source.path}: {error}") from error
    if not segments and not len(events.action):
        raise InputError(f"{source.path}: the snapshot has no segments and no events")
    first = next((time for time in events.time_ns if time != NONE), None)
    _write_segments(builder, segments, stacks)
    _write_events(builder, events, first)
    _write_allocations(builder, allocations)
    stacks.write(builder)
    _write_rest(builder, content, first)
    if first is not None:
        builder.facts.started_ns, builder.facts.captured_at = first, utc(first / 1e9)


@dataclass
class _Events:
    """Events as columns; NONE is a missing number."""

    action: list[str] = field(default_factory=list)
    metadata: list[str | None] = field(default_factory=list)
    device: array[int] = field(default_factory=lambda: array("q"))
    time_ns: array[int] = field(default_factory=lambda: array("q"))
    address: array[int] = field(default_factory=lambda: array("q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    stream: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("q"))
    allocation: array[int] = field(default_factory=lambda: array("q"))
    device_free: array[int] = field(default_factory=lambda: array("q"))

    def add(self, device: int, event: Event, stack: int, allocation: int) -> None:
        """Add an event of a device."""
        self.action.append(event.action)
        self.metadata.append(event.metadata)
        self.device.append(device)
        for column, value in (
            (self.time_ns, event.time_ns),
            (self.address, event.address),
            (self.stream, event.stream),
            (self.device_free, event.device_free),
        ):
            column.append(NONE if value is None else value)
        self.bytes.append(event.bytes)
        self.stack.append(stack)
        self.allocation.append(allocation)


def _read_events(
    content: Content, device: int, lives: Lives, stacks: Stacks, events: _Events
) -> None:
    for event in content.events(device):
        number = len(events.action)
        stack = stacks.number(event.frames)
        events.add(device, event, stack, lives.event(event, number, stack))


def _read_blocks(
    builder: ReportBuilder,
    segments: Sequence[Segment],
    lives: Lives,
    stacks: Stacks,
    events: _Events,
) -> None:
    """Add what was allocated before the first event, and warn about what does not fit."""
    lives.blocks(
        (block, stacks.number(block.frames)) for segment in segments for block in segment.blocks
    )
    misplaced = sum(block.misplaced for segment in segments for block in segment.blocks)
    if misplaced:
        builder.warn(
            f"{misplaced:,} blocks do not fit into their segment: the snapshot is damaged, and "
            "sums over blocks are wrong"
        )
    if not len(events.action):
        return
    for count, text in (
        (lives.overlapping, "allocations are at an address that was still in use"),
        (lives.unreleased, "allocations were released without an event"),
        (lives.later, "blocks were allocated after the last event"),
    ):
        if count:
            builder.warn(
                f"{count:,} {text}: the recording of the history was incomplete, or ended before "
                "the snapshot"
            )


def _write_segments(builder: ReportBuilder, segments: Sequence[Segment], stacks: Stacks) -> None:
    names = ("device", "address", "bytes", "stream", "pool", "size_class")
    columns: dict[str, Any] = {
        name: [getattr(segment, name) for segment in segments] for name in names
    }
    columns["expandable"] = [
        None if segment.expandable is None else int(segment.expandable) for segment in segments
    ]
    columns["segment"] = list(range(len(segments)))
    builder.write("snapshot_segments", columns, len(segments))
    placed: list[tuple[int, Block]] = [
        (number, block) for number, segment in enumerate(segments) for block in segment.blocks
    ]
    blocks = {
        "segment": [number for number, _ in placed],
        "address": [block.address for _, block in placed],
        "bytes": [block.bytes for _, block in placed],
        "requested_bytes": [block.requested for _, block in placed],
        "state": [block.state for _, block in placed],
        "stack_id": _nullable(array("q", (stacks.number(block.frames) for _, block in placed))),
    }
    builder.write("snapshot_blocks", blocks, len(placed))


def _write_events(builder: ReportBuilder, events: _Events, first: int | None) -> None:
    if not len(events.action):
        builder.lacks("snapshot_events", _NO_HISTORY)
    times = np.array(events.time_ns, np.int64)
    columns = {
        "event": np.arange(len(times)),
        "device": np.array(events.device, np.int64),
        "time_ns": pa.array(times - (first or 0), mask=times == NONE),
        "action": pa.array(events.action, pa.string()),
        "address": _nullable(events.address),
        "bytes": np.array(events.bytes, np.int64),
        "stream": _nullable(events.stream),
        "stack_id": _nullable(events.stack),
        "allocation_id": _nullable(events.allocation),
        "device_free_bytes": _nullable(events.device_free),
        "metadata": events.metadata,
    }
    builder.write("snapshot_events", columns, len(times))


def _write_allocations(builder: ReportBuilder, rows: Allocations) -> None:
    columns = {
        "allocation_id": np.arange(len(rows.end)),
        "device": np.array(rows.device, np.int64),
        "address": np.array(rows.address, np.int64),
        "bytes": np.array(rows.bytes, np.int64),
        "stream": np.array(rows.stream, np.int64),
        "stack_id": _nullable(rows.stack),
        "start_event": _nullable(rows.start),
        "end_event": _nullable(rows.end),
        "completed_event": _nullable(rows.completed),
    }
    builder.write("snapshot_allocations", columns, len(rows.end))


def _write_rest(builder: ReportBuilder, content: Content, first: int | None) -> None:
    settings = content.settings()
    builder.write(
        "snapshot_settings",
        {"name": [*settings], "value": [*settings.values()]},
        len(settings),
    )
    marks = list(content.annotations())
    columns = {
        "mark": list(range(len(marks))),
        "device": [mark.device for mark in marks],
        "name": [mark.name for mark in marks],
        "stage": [mark.stage for mark in marks],
        "time_ns": [mark.time_ns - (first or 0) for mark in marks],
    }
    builder.write("snapshot_marks", columns, len(marks))
    devices = content.devices()
    builder.write(
        "snapshot_devices",
        {
            "device": list(range(len(devices))),
            "name": [device.name for device in devices],
            "memory_bytes": [device.memory_bytes for device in devices],
        },
        len(devices),
    )
    if not devices:
        reason = "PyTorch does not store the memory of the GPU in snapshots; the program can add it"
        builder.lacks("snapshot_devices", reason)


def _nullable(values: array[int]) -> pa.Array:
    return nullable(np.array(values, np.int64), NONE)
