"""Small reports for NVIDIA's reader, of the parts of an .ncu-rep that only it can read.

It parses a result whole, metrics and sections, before it tells a name; and for each function that
it disassembles it reads the code of the report up to that function's.  So it gets the results
without the former, and the code of a function without that of others.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest.ncu.container import (
    KERNELS,
    KINDS,
    MAGIC,
    PAYLOAD_SIZE,
    PROCESS,
    SOURCES,
    Container,
    Kind,
)
from ingest.ncu.wire import (
    Value,
    content,
    counted,
    delimited,
    fields,
    fields_at,
    parted,
    varint,
)

#: Field of a piece of code by which results refer to it.
_REFERENCE = 1

#: The fields of the result of a kernel that tell one function from another.
_FUNCTION = (3, 4, 5)

# Fields of ProfileMetricResult.
_NAME, _VALUE = 1, 2

#: What is left out of the headers of blocks, to be stated anew.
_COUNTS = frozenset({SOURCES, PAYLOAD_SIZE, *(kind.count for kind in KINDS)})


@dataclass(frozen=True)
class Result:
    """A result without sections and most metrics; what it refers to code by; its function."""

    kind: Kind
    message: bytes
    process: bytes
    code: tuple[Value, ...]
    function: Hashable


class LeanCopies:
    """The results of a report, in order, and where its code is.

    A result has its metrics, but no instances of them, where one was in no result before it:
    NVIDIA's reader derives units from names, and from what else was collected.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        #: Of each reference: processes and places.
        self._code: dict[Value, list[tuple[bytes, int]]] = {}
        #: The result that has a metric first.
        self.first: dict[str, int] = {}
        self.results: list[Result] = []
        with container.path.open("rb") as file:
            for block in container.blocks:
                process = content(fields(block.header).get(PROCESS))
                for kind, place, message in container.messages(file, block):
                    if kind:
                        self._add_result(kind, message, process)
                    else:
                        self._code.setdefault(_reference(message), []).append((process, place))

    def write_results(self, target: Path) -> None:
        """Write all results, without code."""
        results = iter(self.results)
        parts = [self._head()]
        for block in self._container.blocks:
            kinds = filter(None, block.contents)
            messages = [(kind, next(results).message) for kind in kinds]
            parts.append(_block(_plain(block.header), messages))
        target.write_bytes(b"".join(parts))

    def write_code(self, target: Path, result: Result) -> None:
        """Write one result, with the code that it refers to."""
        parts = [self._head()]
        for block in self._container.blocks:
            if not block.contents:
                parts.append(_block(_plain(block.header), []))
        process = delimited(PROCESS, result.process)
        # One block each: the reader does not take two pieces with the same reference from one.
        for kind, message in [*self._code_of(result), (result.kind, result.message)]:
            parts.append(_block(process, [(kind, message)]))
        target.write_bytes(b"".join(parts))

    def _code_of(self, result: Result) -> list[tuple[None, bytes]]:
        """Return the code that a result refers to: that of its own process, where there is some."""
        found: list[tuple[None, bytes]] = []
        with self._container.path.open("rb") as file:
            for reference in result.code:
                there = self._code.get(reference, [])
                own = [place for process, place in there if process == result.process]
                for place in own or [place for _, place in there]:
                    found.append((None, self._container.message(file, place)))
        return found

    def _head(self) -> bytes:
        return MAGIC + _prefixed(self._container.header)

    def _add_result(self, kind: Kind, message: bytes, process: bytes) -> None:
        lean, parts = parted(message, frozenset({kind.metrics, kind.sections}))
        known = fields(lean)
        code = tuple(known.get(kind.code, []))
        function: Hashable = len(self.results)
        if kind == KERNELS:
            code = tuple(_reference(content([source])) for source in code)
            function = (process, code, *(tuple(known.get(field, [])) for field in _FUNCTION))
        metrics = parts[kind.metrics]
        strings = self._container.strings
        names = [strings[varint(message, start + 1)[0]] for start, _ in metrics]
        if new := [name for name in names if name not in self.first]:
            self.first |= dict.fromkeys(new, len(self.results))
            plain = (_without_instances(message, start, end) for start, end in metrics)
            lean += b"".join(delimited(kind.metrics, metric) for metric in plain)
        self.results.append(Result(kind, lean, process, code, function))


def _without_instances(message: bytes, start: int, end: int) -> bytes:
    last = start
    for field, _, _, after in fields_at(message, start, end):
        if field not in (_NAME, _VALUE):
            break
        last = after
    return message[start:last]


def _reference(code: bytes) -> int:
    for field, _, start, _ in fields_at(code, 0, len(code)):
        if field == _REFERENCE:
            return varint(code, start)[0]
    return 0


def _plain(header: bytes) -> bytes:
    return parted(header, _COUNTS)[0]


def _block(header: bytes, messages: Sequence[tuple[Kind | None, bytes]]) -> bytes:
    payload = b"".join(_prefixed(message) for _, message in messages)
    kinds = [kind for kind, _ in messages]
    counts = [counted(SOURCES, kinds.count(None))]
    counts += [counted(kind.count, kinds.count(kind)) for kind in KINDS]
    size = counted(PAYLOAD_SIZE, len(payload))
    return _prefixed(header + b"".join(counts) + size) + payload


def _prefixed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message
