"""Python stacks in an nsys export: those that its sampler took, and those of CUDA calls.

Both are NVTX marks of domains of their own.  The payload of a mark is the header of an export, the
state of the thread, the number of frames, and the frames, innermost first: ids of function and file
in StringIds, and the line.
"""

from __future__ import annotations

import html
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import Ints, ints
from perfpipe.ingest.frames import Frame
from perfpipe.ingest.host_stacks import NO_CALL, NO_STACK, HostStacks, Samples

#: Domains of the marks, and the source of their stacks.
SAMPLING, BACKTRACE = "Python Periodic Sampling", "Python Backtrace on CUDA"
SOURCES = {SAMPLING: "python sampling", BACKTRACE: "cuda backtrace"}

#: Header of an export (domain, schema, bytes, offset), then state and number of frames.
_HEADER, _COUNT = struct.Struct("<4Q"), struct.Struct("<QiI")

#: A frame; the last bytes are padding, which is not initialized.
_FRAME = np.dtype([("function", "<u8"), ("file", "<u8"), ("line", "<i4"), ("unused", "<u4")])

#: What a damaged payload raises; an offset may exceed the range of places in memory.
_DAMAGES = (ValueError, OverflowError, struct.error)


def _frames(content: bytes | str) -> npt.NDArray[Any]:
    """Return the frames in a payload; raises one of _DAMAGES if it is damaged."""
    raw = bytes.fromhex(content) if isinstance(content, str) else content
    _, _, size, offset = _HEADER.unpack_from(raw)
    _, _, count = _COUNT.unpack_from(raw, offset)
    if _COUNT.size + count * _FRAME.itemsize > size:
        raise ValueError
    return np.frombuffer(raw, _FRAME, count, offset + _COUNT.size).copy()


def strings_of(content: bytes | str) -> set[int]:
    """Return the ids of strings in a payload if it may be a stack."""
    try:
        frames = _frames(content)
    except _DAMAGES:
        return set()
    return {*frames["function"].tolist(), *frames["file"].tolist()}


class PythonStacks:
    """Decodes payloads; `strings` are the texts of StringIds."""

    def __init__(self, strings: Mapping[int, str], into: HostStacks) -> None:
        self._strings, self._into = strings, into
        self._known: dict[bytes, int] = {}
        #: Payloads that could not be decoded.
        self.damaged = 0

    def number(self, content: bytes | str) -> int:
        """Return the number of the stack in a payload; NO_STACK if it is empty or damaged."""
        try:
            frames = _frames(content)
        except _DAMAGES:
            self.damaged += 1
            return NO_STACK
        frames["unused"] = 0
        key = frames.tobytes()
        if key not in self._known:
            self._known[key] = self._into.number(tuple(map(self._frame, frames.tolist())))
        return self._known[key]

    def _frame(self, values: tuple[int, int, int, int]) -> Frame:
        function, file, line, _ = values
        return Frame(self._text(function) or "?", self._text(file), line if line > 0 else None)

    def _text(self, number: int) -> str | None:
        # nsys writes names for its pages: &lt;module&gt;
        text = self._strings.get(number)
        return None if text is None else html.unescape(text)


@dataclass(frozen=True)
class Mark:
    """A mark of one of the domains; `content` is its payload."""

    domain: str
    time_ns: int
    pid: int
    tid: int
    content: bytes | str


def add_stacks(
    into: HostStacks, strings: Mapping[int, str], marks: Sequence[Mark], calls: Calls
) -> int:
    """Add the stacks of marks; return the number of marks without a readable stack."""
    decoded = PythonStacks(strings, into)
    samples = {domain: Samples(source) for domain, source in SOURCES.items()}
    for mark in marks:
        stack = decoded.number(mark.content)
        call = NO_CALL
        if mark.domain == BACKTRACE:
            call = calls.at(mark.pid, mark.tid, mark.time_ns)
            if call == NO_CALL:
                continue
        samples[mark.domain].add(mark.time_ns, mark.pid, mark.tid, stack, call=call)
    into.samples += [found for found in samples.values() if found.time_ns]
    return decoded.damaged


class Calls:
    """The CUDA calls of each thread, which backtraces belong to."""

    def __init__(self, calls: pa.Table | None = None) -> None:
        self._threads: dict[tuple[int, int], tuple[Ints, Ints, Ints]] = {}
        if calls is None:
            return
        pid, tid, start, end, number = (
            ints(calls[name]) for name in ("pid", "tid", "start_ns", "end_ns", "correlation_id")
        )
        for thread in set(zip(pid.tolist(), tid.tolist(), strict=True)):
            rows = np.flatnonzero((pid == thread[0]) & (tid == thread[1]))
            self._threads[thread] = (start[rows], end[rows], number[rows])

    def at(self, pid: int, tid: int, time_ns: int) -> int:
        """Return the correlation id of the call that was active at a time, NO_CALL if none was."""
        if (pid, tid) not in self._threads:
            return NO_CALL
        start, end, number = self._threads[pid, tid]
        at = int(np.searchsorted(start, time_ns, side="right")) - 1
        return int(number[at]) if at >= 0 and time_ns <= end[at] else NO_CALL
