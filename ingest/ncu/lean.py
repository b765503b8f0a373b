"""Small reports for NVIDIA's reader, with the parts of an .ncu-rep that only it can read.

It parses a complete result, with metrics and sections, before it returns a name.  For each function
that it disassembles, it reads the code of all earlier functions in the report.  So it gets results
without metrics and sections, and the code of one function without the code of others.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.ncu.columns import data_of, whole_numbers
from perfpipe.ingest.ncu.container import (
    KERNELS,
    KINDS,
    MAGIC,
    PAYLOAD_SIZE,
    PROCESS,
    SOURCES,
    Container,
    Kind,
)
from perfpipe.ingest.ncu.wire import (
    Value,
    content,
    counted,
    delimited,
    fields,
    fields_at,
    parted,
    varint,
)

#: Start and end of the content of fields.
Extents = npt.NDArray[np.int64]

#: Field of a piece of code that results refer to.
_REFERENCE = 1

#: Fields of a kernel's result that distinguish functions.
_FUNCTION = (3, 4, 5)

# Fields of ProfileMetricResult.
_NAME, _VALUE = 1, 2

#: Fields of block headers that are removed and written again.
_COUNTS = frozenset({SOURCES, PAYLOAD_SIZE, *(kind.count for kind in KINDS)})


@dataclass(frozen=True)
class Result:
    """A result: its place, the places of its metrics, and the result without metrics and sections.

    `code` is its reference to code; `function` is equal for results of the same function.
    """

    kind: Kind
    place: int
    metrics: Extents
    message: bytes
    process: bytes
    code: tuple[Value, ...]
    function: int

    @property
    def module(self) -> Hashable:
        """A key that is equal for results that refer to the same code."""
        return self.process, self.code


class LeanCopies:
    """The results of a report, in order, and the places of its code.

    A result keeps its metrics, without instances, if any of them is new in the report: NVIDIA's
    reader derives units from names and from the other collected metrics.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        #: Processes and places of each reference.
        self._code: dict[Value, list[tuple[bytes, int]]] = {}
        #: The first result that has a metric.
        self.first: dict[str, int] = {}
        self.results: list[Result] = []
        self._functions: dict[Hashable, int] = {}
        self._seen = np.zeros(len(container.strings), bool)
        with container.path.open("rb") as file:
            for block in container.blocks:
                process = content(fields(block.header).get(PROCESS))
                for kind, place, message in container.messages(file, block):
                    if kind:
                        self._add_result(kind, place, message, process)
                    else:
                        self._code.setdefault(_reference(message), []).append((process, place))

    def write_results(self, target: Path) -> None:
        """Write all results, without code."""
        results = iter(self.results)
        with target.open("wb") as file:
            file.write(self._head())
            for block in self.container.blocks:
                kinds = filter(None, block.contents)
                messages = [(kind, next(results).message) for kind in kinds]
                file.writelines(_block(_plain(block.header), messages))

    def write_code(self, target: Path, results: Sequence[Result]) -> None:
        """Write results that refer to the same code, with that code."""
        process = delimited(PROCESS, results[0].process)
        with target.open("wb") as file:
            file.write(self._head())
            for block in self.container.blocks:
                if not block.contents:
                    file.writelines(_block(_plain(block.header), []))
            # One block each: the reader ignores a second piece with the same reference in a block.
            for code in self._code_of(results[0]):
                file.writelines(_block(process, [(None, code)]))
            for result in results:
                file.writelines(_block(process, [(result.kind, result.message)]))

    def _code_of(self, result: Result) -> Iterator[bytes]:
        """Yield the code that a result refers to, of its own process if available."""
        with self.container.path.open("rb") as file:
            for reference in result.code:
                there = self._code.get(reference, [])
                own = [place for process, place in there if process == result.process]
                for place in own or [place for _, place in there]:
                    yield self.container.message(file, place)

    def _head(self) -> bytes:
        return MAGIC + _prefixed(self.container.header)

    def _add_result(self, kind: Kind, place: int, message: bytes, process: bytes) -> None:
        lean, parts = parted(message, frozenset({kind.metrics, kind.sections}))
        known = fields(lean)
        code = tuple(known.get(kind.code, []))
        function: Hashable = len(self.results)
        if kind == KERNELS:
            code = tuple(_reference(content([source])) for source in code)
            function = (process, code, *(tuple(known.get(field, [])) for field in _FUNCTION))
        metrics = np.array(parts[kind.metrics], np.int64).reshape(-1, 2)
        data = data_of(message, metrics.max(initial=0))
        strings = whole_numbers(data, metrics[:, 0] + 1)[0]
        if len(new := strings[~self._seen[strings]]):
            self._seen[new] = True
            names = map(self.container.strings.__getitem__, new.tolist())
            self.first |= dict.fromkeys(names, len(self.results))
            plain = (_without_instances(message, start, end) for start, end in metrics.tolist())
            lean += b"".join(delimited(kind.metrics, metric) for metric in plain)
        number = self._functions.setdefault(function, len(self._functions))
        self.results.append(Result(kind, place, metrics, lean, process, code, number))


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


def _block(header: bytes, messages: Sequence[tuple[Kind | None, bytes]]) -> list[bytes]:
    """Return the concatenated parts of a block."""
    kinds = [kind for kind, _ in messages]
    counts = [counted(SOURCES, kinds.count(None))]
    counts += [counted(kind.count, kinds.count(kind)) for kind in KINDS]
    size = counted(PAYLOAD_SIZE, sum(4 + len(message) for _, message in messages))
    parts = [_prefixed(header + b"".join(counts) + size)]
    for _, message in messages:
        parts += [struct.pack("<I", len(message)), message]
    return parts


def _prefixed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message
