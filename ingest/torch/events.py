"""Validates the events of torch.profiler traces.

An event without a name, thread or times is skipped, and a value of a wrong type is read as NULL;
both are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfpipe.ingest.builder import ReportBuilder

#: Categories of events that are read; the others have no additional information.
CALLS = ("cuda_runtime", "cuda_driver")
KERNELS = "kernel"
MEMORY = ("gpu_memcpy", "gpu_memset")
RANGES = ("user_annotation", "cpu_op")
READ = frozenset((*CALLS, KERNELS, *MEMORY, *RANGES))

#: Microseconds in the format of Kineto.
_TIME = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,9})?")

#: Largest absolute time, ns, and longest event: one year.
LATEST_NS, _LONGEST_NS = 4 * 10**18, 366 * 86_400 * 10**9

#: The largest process and thread ids, which share 64 bits.
_PIDS, _TIDS = (1 << 31) - 1, (1 << 32) - 1

#: Largest absolute number that is read from an argument, and largest size.
_LARGEST, _MOST_BYTES = (1 << 63) - 1, 1 << 53

#: Maximum nesting of argument lists: shapes of several tensors are lists of lists.
_DEPTH = 4

_WHOLE = ("device", "context", "stream", "correlation")
_SIZES = ("bytes", "registers per thread")
_EXTENTS = ("grid", "block")


class Written(str):
    """A decimal number as written in the trace, as opposed to text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Event:
    """An event with times in ns; relevant `args` have the right types.

    Process and thread of a GPU event are its device and stream, or 0.
    """

    category: str
    name: str
    start: int
    end: int
    pid: int
    tid: int
    args: Mapping[str, Any]


@dataclass
class Admission:
    """Accepts valid events, and counts invalid values and events."""

    events: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    def admit(self, raw: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
        """Yield the complete events ("ph": "X") of categories that are read."""
        for event in raw:
            if event.get("ph") != "X":
                continue
            category = event.get("cat", "")
            if not isinstance(category, str) or isinstance(category, Written):
                self.events += 1
                self._left_out("category")
            elif category in READ:
                self.events += 1
                if (admitted := self._event(category, event)) is not None:
                    yield admitted

    def report(self, builder: ReportBuilder) -> None:
        """Add the invalid values and events to the report."""
        for reason, events in sorted(self.lost.items()):
            builder.lose("traceEvents", reason, events, self.events)

    def _left_out(self, what: str) -> None:
        self.lost[f"have no valid {what}; they were skipped"] += 1

    def _event(self, category: str, event: Mapping[str, Any]) -> Event | None:
        name = text_of(event.get("name"))
        start, lasting = (ns_of(event.get(key)) for key in ("ts", "dur"))
        pid, tid = number_of(event.get("pid"), _PIDS), number_of(event.get("tid"), _TIDS)
        # Old versions write "stream 7" as the thread of GPU events.
        on_host = category in CALLS or category in RANGES
        whole = {
            "name": name is not None,
            "start": start is not None,
            "duration": lasting is not None and 0 <= lasting <= _LONGEST_NS,
            "process": not on_host or (pid is not None and pid >= 0),
            "thread": not on_host or (tid is not None and tid >= 0),
        }
        for what, there in whole.items():
            if not there:
                self._left_out(what)
                return None
        assert name is not None and start is not None and lasting is not None  # noqa: S101
        args = self._args(event.get("args", {} if on_host else None))
        return Event(category, name, start, start + lasting, pid or 0, tid or 0, args)

    def _args(self, args: object) -> Mapping[str, Any]:
        if not isinstance(args, dict):
            self._nulled("args", "not an object")
            return {}
        found = dict(args)
        for names, limit in ((_WHOLE, _LARGEST), (_SIZES, _MOST_BYTES)):
            for name in names:
                if (value := args.get(name)) is None:
                    continue
                found[name] = number_of(value, limit)
                if found[name] is None or (limit == _MOST_BYTES and found[name] < 0):
                    found[name] = None
                    self._nulled(name, "not an integer")
        for name in _EXTENTS:
            if (value := args.get(name)) is None:
                continue
            found[name] = _extent(value)
            if found[name] is None:
                self._nulled(name, "not three sizes")
        return found

    def _nulled(self, name: str, what: str) -> None:
        self.lost[f"have an invalid {name} ({what}), read as NULL"] += 1


def text_of(value: object) -> str | None:
    """Return a storable text, with lone surrogates replaced; None for other values."""
    if not isinstance(value, str) or isinstance(value, Written):
        return None
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def number_of(value: object, limit: int = _LARGEST) -> int | None:
    """Return an integer, possibly written as text; None for other values and beyond a limit."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -limit <= value <= limit else None


def ns_of(value: object) -> int | None:
    """Return microseconds as ns, digit by digit: binary floating point would lose digits."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    if isinstance(value, int) and abs(value) > LATEST_NS:
        return None
    written = str(value)
    if not _TIME.fullmatch(written):
        return None
    whole, _, fraction = written.partition(".")
    sign = -1 if whole.startswith("-") else 1
    ns = int(whole) * 1000 + sign * int((fraction + "000")[:3])
    return ns if abs(ns) <= LATEST_NS else None


def plain(value: object, depth: int = _DEPTH) -> bool:
    """Return whether an argument is a number, a text, or nested lists of these."""
    if isinstance(value, list):
        return depth > 0 and all(plain(item, depth - 1) for item in value)
    return value is None or isinstance(value, (str, int, float))


def _extent(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    sizes = tuple(number_of(item, _MOST_BYTES) for item in value)
    known = tuple(size for size in sizes if size is not None and size >= 0)
    return known if len(known) == 3 else None
