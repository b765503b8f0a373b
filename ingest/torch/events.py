"""Validates the events of torch.profiler traces.

An event without a name, thread or times is skipped, and a value of a wrong type is read as NULL;
both are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.torch.trace_json import EVENTS, Written
from perfpipe.visible import encodable

#: Categories of events that are read; the others have no additional information.
CALLS = ("runtime", "driver")
KERNELS = "kernel"
MEMORY = ("gpu_memcpy", "gpu_memset")
ANNOTATIONS, OPERATORS = "user_annotation", "cpu_op"
RANGES = (ANNOTATIONS, OPERATORS)
FUNCTIONS = "python_function"
READ = frozenset((*CALLS, KERNELS, *MEMORY, *RANGES, FUNCTIONS))

#: Calls of an accelerator's runtime and driver: cuda_runtime, hip_runtime, xpu_driver.
_CALL = re.compile(r"(?:cuda|hip|xpu|musa|gcu|privateuse1)_(runtime|driver)")

#: Categories of PyTorch 1.8 to 1.10, and what they are called since.
_OLD = {
    "Kernel": KERNELS, "Memcpy": MEMORY[0], "Memset": MEMORY[1], "Runtime": "runtime",
    "Operator": OPERATORS,
}  # fmt: skip

#: Annotations of PyTorch itself, which old versions write as operators.
_ANNOTATION = re.compile(r"ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)")

#: Microseconds in the format of Kineto, and as any program writes them.
_TIME = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,3})?")
_ANY_TIME = re.compile(r"-?[0-9]{1,20}(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,2})?")

#: Largest absolute time, ns, and longest event: one year.
LATEST_NS, _LONGEST_NS = 4 * 10**18, 366 * 86_400 * 10**9

#: The largest process and thread ids, which share 64 bits.
_PIDS, _TIDS = (1 << 31) - 1, (1 << 32) - 1

#: Largest absolute number that is read from an argument, and largest size.
_LARGEST, _MOST_BYTES = (1 << 63) - 1, 1 << 53

#: Maximum nesting of argument lists: shapes of several tensors are lists of lists.
_DEPTH = 4

#: A process of a merged trace: name of the rank, number.
_MERGED = re.compile(r"(.{0,80}?[^\s\d]) *([0-9]{1,10})")

#: Numbers that pair the operators of the backward pass with those of the forward pass.
SEQUENCE, FORWARD_THREAD = "Sequence number", "Fwd thread id"

_WHOLE = ("device", "context", "stream", "correlation")
_SIZES = ("bytes", "registers per thread")
_EXTENTS = ("grid", "block")


class Event(NamedTuple):
    """An event with times in ns; relevant `args` have the right types.

    Process and thread of a GPU event are its device and stream, or 0.  `rank` is the name that a
    program which merged the traces of several ranks gave to the rank, empty in other traces.
    """

    category: str
    name: str
    start: int
    end: int
    pid: int
    tid: int
    rank: str
    args: Mapping[str, Any]


@dataclass
class Admission:
    """Accepts valid events, and counts invalid values and events."""

    events: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    #: Number of events of each category, also of those that are not read.
    categories: Counter[str] = field(default_factory=Counter)

    def admit(self, event: Mapping[str, Any]) -> Event | None:
        """Return a complete event ("ph": "X") of a category that is read; None for others."""
        category = event.get("cat", "")
        if not isinstance(category, str) or isinstance(category, Written):
            self.events += 1
            self._left_out("category")
            return None
        self.categories[category] += 1
        read = self._read_as(category)
        if read is None:
            return None
        self.events += 1
        return self._event(read, event)

    def report(self, builder: ReportBuilder) -> None:
        """Add the invalid values and events to the report."""
        for reason, events in sorted(self.lost.items()):
            builder.lose(EVENTS, reason, events, self.events)

    @staticmethod
    @cache
    def _read_as(category: str) -> str | None:
        call = _CALL.fullmatch(category)
        read = call[1] if call else _OLD.get(category, category)
        return read if read in READ else None

    def _left_out(self, what: str) -> None:
        self.lost[f"have no valid {what}; they were skipped"] += 1

    def _event(self, category: str, event: Mapping[str, Any]) -> Event | None:
        name = text_of(event.get("name"))
        start, lasting = ns_of(event.get("ts")), ns_of(event.get("dur"))
        rank, pid = _process(event.get("pid"))
        tid = _thread(event.get("tid"))
        # Old versions write "stream 7" as the thread of GPU events.
        on_host = category in CALLS or category in RANGES or category == FUNCTIONS
        whole = {
            "name": name is not None,
            "start": start is not None,
            "duration": lasting is not None and 0 <= lasting <= _LONGEST_NS,
            "process": not on_host or (pid is not None and pid >= 0),
            "thread": not on_host or tid is not None,
        }
        for what, there in whole.items():
            if not there:
                self._left_out(what)
                return None
        assert name is not None and start is not None and lasting is not None  # noqa: S101
        if category == OPERATORS and _ANNOTATION.match(name):
            category = ANNOTATIONS
        args = self._args(event.get("args", {} if on_host else None))
        return Event(category, name, start, start + lasting, pid or 0, tid or 0, rank, args)

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


def _process(value: object) -> tuple[str, int | None]:
    """Return the rank and number of a process, which merging programs write as '[TP00] 1001'."""
    number = number_of(value, _PIDS)
    if number is None and isinstance(value, str) and (merged := _MERGED.fullmatch(value)):
        return merged[1], number_of(merged[2], _PIDS)
    return "", number


def _thread(value: object) -> int | None:
    """Return a thread id; Kineto may write the low bits of a pthread id with a sign."""
    number = number_of(value)
    return None if number is None else number & _TIDS


def text_of(value: object) -> str | None:
    """Return a text that UTF-8 can express; None for other values."""
    if not isinstance(value, str) or isinstance(value, Written):
        return None
    return encodable(value)


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
    if _TIME.fullmatch(written):
        whole, _, fraction = written.partition(".")
        sign = -1 if whole.startswith("-") else 1
        ns = int(whole) * 1000 + sign * int((fraction + "000")[:3])
    elif _ANY_TIME.fullmatch(written):
        ns = int((Decimal(written) * 1000).to_integral_value())
    else:
        return None
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
