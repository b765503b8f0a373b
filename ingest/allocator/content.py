"""The content of a memory snapshot of PyTorch, with every member that perfpipe reads checked.

`torch.cuda.memory._dump_snapshot` pickles one dictionary; torch/csrc/cuda/Module.cpp and
memory_snapshot.cpp in PyTorch's sources make it:

    {"segments": [{"device", "address", "total_size", "stream", "segment_type", "segment_pool_id",
                   "is_expandable", "frames", "blocks": [{"address", "size", "requested_size",
                                                          "state", "frames"}, ...]}, ...],
     "device_traces": [[{"action", "addr" or "device_free", "size", "stream", "time_us",
                         "user_metadata", "frames"}, ...], ...],
     "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments", ...},
     "external_annotations": [{"name", "stage": "START" or "END", "device", "time_us"}, ...]}

Versions before 2.1 have no settings, no annotations, and no times; before 2.0 a block has its
frames in `history`.  A snapshot may be JSON of the same form.  A program may add the
memory of its GPUs: `"perfpipe": {"devices": [{"name", "memory_bytes"}, ...]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from perfpipe.errors import InputError, brief
from perfpipe.ingest.unpickling import read_plain
from perfpipe.secrets import hide
from perfpipe.visible import encodable

#: Largest address, size and time that the store holds.
_LARGEST = (1 << 63) - 1

_MICROSECOND_NS = 1000


@dataclass(frozen=True)
class Block:
    """A part of a segment: `bytes` of it, of which `requested` were asked for.

    It is misplaced if it ends after the segment, or if it is not where the block before it ends.
    """

    address: int
    bytes: int
    requested: int
    state: str
    frames: Sequence[Any]
    misplaced: bool = False


@dataclass(frozen=True)
class Segment:
    """Memory that the allocator reserved, with its blocks."""

    device: int
    address: int
    bytes: int
    stream: int
    pool: str
    size_class: str | None
    expandable: bool | None
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Annotation:
    """The start or the end of a range of `torch.profiler.record_function`."""

    name: str
    stage: str
    device: int
    time_ns: int


@dataclass(frozen=True)
class Event:
    """What the allocator did; `address` is None for an event without one (oom)."""

    action: str
    address: int | None
    bytes: int
    stream: int | None
    time_ns: int | None
    frames: Sequence[Any]
    metadata: str | None
    device_free: int | None


@dataclass(frozen=True)
class Device:
    """What is known of a GPU: its memory, bytes."""

    name: str | None
    memory_bytes: int | None


@lru_cache(maxsize=1 << 16)
def storable(text: str) -> str:
    """Return a text that UTF-8 can express, without secrets."""
    return hide(encodable(text))


class Content:
    """A snapshot whose members are checked when they are read; raises InputError for a bad one."""

    def __init__(self, source: Path, content: Path) -> None:
        self._path = source
        value = _json(source, content) if _is_json(content) else read_plain(content, source)
        # torch.cuda.memory_snapshot() returns the segments alone.
        value = {"segments": value} if isinstance(value, list) else value
        if not isinstance(value, dict) or not isinstance(value.get("segments"), list):
            raise InputError(f"{source}: not a memory snapshot of PyTorch (no segments)")
        self.value: dict[str, Any] = value
        self.traces = self._list(value, "device_traces", "the snapshot")

    def segments(self) -> Iterator[Segment]:
        """Yield the segments at the time of the snapshot."""
        for number, row in enumerate(self._list(self.value, "segments", "the snapshot")):
            place = f"segment {number}"
            row = self._dict(row, place)
            address = self._whole(row, "address", place)
            size = self._whole(row, "total_size", place)
            yield Segment(
                self._whole(row, "device", place, 0),
                address,
                size,
                self._whole(row, "stream", place, 0),
                _pool(row.get("segment_pool_id")),
                self._text(row, "segment_type", place),
                self._flag(row, "is_expandable", place),
                tuple(self._blocks(row, address, address + size, place)),
            )

    def _blocks(
        self, segment: Mapping[str, Any], address: int, end: int, place: str
    ) -> Iterator[Block]:
        for number, row in enumerate(self._list(segment, "blocks", place)):
            where = f"block {number} of {place}"
            row = self._dict(row, where)
            history = row.get("history")
            if isinstance(history, list) and history and "frames" not in row:
                own = self._dict(history[0], where)
                row = {"requested_size": own.get("real_size"), "frames": own.get("frames")} | row
            size = self._whole(row, "size", where)
            if address > _LARGEST:
                raise self._bad(f"the address of {where}", "a whole number of 63 bits")
            yield Block(
                address,
                size,
                self._whole(row, "requested_size", where, size),
                self._text(row, "state", where) or "",
                self._list(row, "frames", where),
                address + size > end or self._whole(row, "address", where, address) != address,
            )
            # Versions before 2.0 have no addresses of blocks, which lie one after the other.
            address += size

    def events(self, device: int) -> Iterator[Event]:
        """Yield what the allocator did on a device, the oldest event first."""
        trace = self.traces[device]
        if not isinstance(trace, list):
            raise self._bad(f"the trace of device {device}", "a list")
        for number, row in enumerate(trace):
            if type(row) is not dict:
                raise self._bad(f"event {number} of device {device}", "a dictionary")
            try:
                yield _event(row)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"{self._path}: event {number} of device {device} is damaged ({brief(error)})"
                ) from error

    def annotations(self) -> Iterator[Annotation]:
        """Yield the starts and ends of annotated ranges."""
        rows = self._list(self.value, "external_annotations", "the snapshot")
        for number, row in enumerate(rows):
            place = f"annotation {number}"
            row = self._dict(row, place)
            yield Annotation(
                self._text(row, "name", place) or "",
                self._text(row, "stage", place) or "",
                self._whole(row, "device", place, 0),
                self._time_ns(row, place),
            )

    def settings(self) -> dict[str, str]:
        """Return the settings of the allocator as text; nested ones by name.name."""
        found = {}
        for name, value in self._dict(self.value.get("allocator_settings") or {}, "").items():
            parts = value.items() if isinstance(value, dict) else (("", value),)
            for part, own in parts:
                if not isinstance(own, (list, tuple, dict)) and own is not None:
                    found[storable(f"{name}.{part}".rstrip("."))] = storable(str(own))
        return found

    def devices(self) -> list[Device]:
        """Return the GPUs in order, if the snapshot names them."""
        ours = self._dict(self.value.get("perfpipe") or {}, "the member perfpipe")
        rows = [self._dict(row, "a device") for row in self._list(ours, "devices", "perfpipe")]
        return [
            Device(
                self._text(row, "name", "a device"),
                self._whole(row, "memory_bytes", "a device") if row.get("memory_bytes") else None,
            )
            for row in rows
        ]

    def _bad(self, place: str, wanted: str) -> InputError:
        return InputError(f"{self._path}: {place} is not {wanted}")

    def _dict(self, value: object, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._bad(place, "a dictionary")
        return value

    def _list(self, row: Mapping[str, Any], name: str, place: str) -> list[Any]:
        value = row.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._bad(f"{name} of {place}", "a list")
        return value

    def _whole(
        self, row: Mapping[str, Any], name: str, place: str, otherwise: int | None = None
    ) -> int:
        value = row.get(name)
        value = otherwise if value is None else value
        if not _is_whole(value):
            raise self._bad(f"{name} of {place}", "a whole number of 63 bits")
        return value

    def _time_ns(self, row: Mapping[str, Any], place: str) -> int:
        time_ns = _MICROSECOND_NS * self._whole(row, "time_us", place)
        if time_ns > _LARGEST:
            raise self._bad(f"time_us of {place}", "a time")
        return time_ns

    def _text(self, row: Mapping[str, Any], name: str, place: str) -> str | None:
        value = row.get(name)
        if value is not None and not isinstance(value, str):
            raise self._bad(f"{name} of {place}", "a text")
        return None if value is None else storable(value)

    def _flag(self, row: Mapping[str, Any], name: str, place: str) -> bool | None:
        value = row.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._bad(f"{name} of {place}", "true or false")
        return value


def _event(row: dict[str, Any]) -> Event:
    """Return an event; raises KeyError, TypeError or ValueError if it is damaged."""
    action, oom = row["action"], row["action"] == "oom"
    address = None if oom else row.get("addr")
    stream, time_us, metadata = row.get("stream"), row.get("time_us"), row.get("user_metadata")
    frames, free = row.get("frames") or (), row.get("device_free") if oom else None
    size = row["size"]
    optional = (number for number in (address, stream, time_us, free) if number is not None)
    for number in (size, *optional):
        if not _is_whole(number):
            raise ValueError(f"{brief(repr(number))} is not a whole number of 63 bits")
    if not isinstance(action, str) or not isinstance(frames, (list, tuple)):
        raise TypeError("action or frames")
    time_ns = None if time_us is None else _MICROSECOND_NS * time_us
    if time_ns is not None and time_ns > _LARGEST:
        raise ValueError(f"{time_us} is not a time")
    metadata = storable(metadata) if isinstance(metadata, str) and metadata else None
    return Event(storable(action), address, size, stream, time_ns, frames, metadata, free)


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LARGEST


def _pool(value: object) -> str:
    """Return the id of a private memory pool, such as 0:1 of a CUDA graph; 0:0 is common."""
    if isinstance(value, (list, tuple)):
        return ":".join(str(part) for part in value[:2] if isinstance(part, int)) or "0:0"
    return "0:0"


def _is_json(content: Path) -> bool:
    with content.open("rb") as file:
        return file.read(64).lstrip()[:1] in {b"{", b"["}


def _json(source: Path, content: Path) -> object:
    try:
        value: object = json.loads(content.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: damaged JSON ({brief(error)})") from error
    return value
