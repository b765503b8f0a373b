"""The stacks of a memory snapshot: whose line allocated memory, and in which phase of training."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from perfpipe.files import packaged
from perfpipe.ingest.allocator.content import storable
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.frames import USER, Frame, Owners

#: Instead of the number of a stack without frames.
NO_STACK = -1

#: Phases that a frame can say, and two that follow: code in no phase, and forward code that a
#: backward pass runs again.
OPTIMIZER, BACKWARD, FORWARD, PARAMETERS = "optimizer", "backward", "forward", "parameters"
OTHER, RECOMPUTE = "other", "recompute"

#: Names of files that hold Python.
_PYTHON = re.compile(r"\.pyc?$|^<")

#: The operator of ATen that C++ code dispatches, and the node of the backward graph that runs.
_OPERATOR = re.compile(r"\bat::_ops::(\w+)::(?:call|redispatch)\(")
_NODE = re.compile(r"\btorch::autograd::(?:generated::)?(\w+)::apply\(")

_TORCH = "torch"

#: Frames of a stack that are kept as text.
_MOST_FRAMES = 60


class BadFrame(Exception):
    """A frame of a stack is damaged; the message says how."""


class _Known(NamedTuple):
    """A frame of Python, or of C++ if `python` is None; with what it says."""

    python: Frame | None
    phase: str | None
    operator: str | None
    node: str | None


@dataclass(frozen=True)
class _Stack:
    """What a stack says; the frames are those of Python, innermost first."""

    frames: tuple[Frame, ...]
    phase: str
    operator: str | None
    node: str | None
    modules: str | None


class Stacks:
    """The distinct stacks of a snapshot.

    Frames are looked up by identity first: a snapshot refers to each of them very often.  The
    snapshot must therefore outlive this object.
    """

    def __init__(self) -> None:
        self._frames: dict[int, int] = {}
        self._numbers: dict[tuple[str, str, int], int] = {}
        self._known: list[_Known] = []
        self._lists: dict[tuple[int, ...], int] = {}
        self._stacks: dict[_Stack, int] = {}

    def number(self, frames: Sequence[Any]) -> int:
        """Return the number of a stack, NO_STACK without frames; raises BadFrame."""
        if not frames:
            return NO_STACK
        numbers = self._frames
        try:
            key = tuple([numbers[id(frame)] for frame in frames])
        except KeyError:
            key = tuple([self._frame(frame) for frame in frames])
        known = self._lists.get(key)
        if known is None:
            stack = _stack([self._known[at] for at in key])
            known = self._lists[key] = self._stacks.setdefault(stack, len(self._stacks))
        return known

    def _frame(self, frame: Any) -> int:
        """Return the number of a frame with this content."""
        if type(frame) is not dict:
            raise BadFrame("a frame is not a dictionary")
        name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
        if not isinstance(name, str) or not isinstance(file, str) or type(line) is not int:
            raise BadFrame("a frame has no name, file or line")
        number = self._numbers.setdefault((file, name, line), len(self._numbers))
        if number == len(self._known):
            self._known.append(_known(file, name, line))
        self._frames[id(frame)] = number
        return number

    def write(self, builder: ReportBuilder) -> None:
        """Write snapshot_stacks."""
        owners = Owners(stack.frames for stack in self._stacks)
        rows = [_row(stack, owners) for stack in self._stacks]
        columns: dict[str, list[object]] = {"stack_id": list(range(len(rows)))}
        for name in _COLUMNS:
            columns[name] = [row[name] for row in rows]
        builder.write("snapshot_stacks", columns, len(rows))


_COLUMNS = (
    "phase", "file", "line", "function", "library", "library_file", "library_line",
    "library_function", "modules", "operator", "node", "stack",
)  # fmt: skip


def _known(file: str, name: str, line: int) -> _Known:
    if _PYTHON.search(file):
        python = Frame(name, file, line if 0 < line < 1 << 31 else None)
        return _Known(python, _phase(file, name), None, None)
    operator, node = _OPERATOR.search(name), _NODE.search(name)
    return _Known(None, _phase("", name), operator and operator[1], node and node[1])


@cache
def _roles() -> tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...]:
    """Return phases with the patterns of file and function of their frames."""
    table = tomllib.loads(packaged("perfpipe.ingest.allocator", "roles.toml"))
    return tuple(
        (phase, re.compile(rule["file"]), re.compile(rule["function"]))
        for phase, rules in table.items()
        for rule in rules
    )


def _phase(file: str, function: str) -> str | None:
    for phase, of_file, of_function in _roles():
        if of_file.search(file) and of_function.search(function):
            return phase
    return None


def _stack(frames: Sequence[_Known]) -> _Stack:
    phases = [frame.phase for frame in frames if frame.phase]
    phase = phases[0] if phases else OTHER
    if phase == FORWARD and BACKWARD in phases:
        phase = RECOMPUTE
    own = _native_part(frames)
    operators = [frame.operator for frame in own if frame.operator]
    return _Stack(
        tuple(frame.python for frame in frames if frame.python),
        phase,
        operators[-1] if operators else None,
        next((frame.node for frame in own if frame.node), None),
        _modules(frames),
    )


def _native_part(frames: Sequence[_Known]) -> Iterable[_Known]:
    """Return the C++ frames that the innermost Python frame called."""
    end = next((at for at, frame in enumerate(frames) if frame.python), len(frames))
    return frames[:end]


def _modules(frames: Sequence[_Known]) -> str | None:
    """Return the lines of the forward functions that modules called, outermost first."""
    python = [frame for frame in reversed(frames) if frame.python]
    found = [
        _place(inner.python)
        for outer, inner in pairwise(python)
        if outer.phase == FORWARD and inner.phase != FORWARD and inner.python
    ]
    return " > ".join(found) or None


def _place(frame: Frame) -> str:
    """Return the name of a frame's file with its line."""
    name = (frame.file or "").replace("\\", "/").rpartition("/")[2]
    return name if frame.line is None else f"{name}:{frame.line}"


def _row(stack: _Stack, owners: Owners) -> dict[str, object]:
    owned = [(frame, *owners.of(frame)) for frame in stack.frames]
    user = next((frame for frame, kind, _ in owned if kind == USER), None)
    library, package = next(
        ((frame, package) for frame, _, package in owned if package not in (None, _TORCH)),
        (None, None),
    )
    if user is None and library is None and owned:
        library, _, package = owned[0]
    if user is not None and library is not None and _outside(stack.frames, library, user):
        library = package = None
    return {
        "phase": stack.phase,
        "file": user and user.file and storable(user.file),
        "line": user and user.line,
        "function": user and storable(user.function),
        "library": package,
        "library_file": library and library.file and storable(library.file),
        "library_line": library and library.line,
        "library_function": library and storable(library.function),
        "modules": stack.modules and storable(stack.modules),
        "operator": stack.operator,
        "node": stack.node,
        "stack": storable("; ".join(_lines(stack.frames))) or None,
    }


def _outside(frames: Sequence[Frame], library: Frame, user: Frame) -> bool:
    """Return whether the library's frame called the user's."""
    return frames.index(library) > frames.index(user)


def _lines(frames: Sequence[Frame]) -> Iterator[str]:
    """Yield the innermost frames, as text."""
    for frame in frames[:_MOST_FRAMES]:
        yield f"{_place(frame)} {frame.function}"
    if len(frames) > _MOST_FRAMES:
        yield f"and {len(frames) - _MOST_FRAMES} more"
