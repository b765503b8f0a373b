"""Stacks on the host: who owns each frame, and what a sample stands for."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from perfpipe.ingest.arrays import Ints
from perfpipe.ingest.builder import ReportBuilder

FRAMES, STACKS, SAMPLES = "host_frames", "host_stacks", "host_samples"

#: Function name of code outside functions.
MODULE = "<module>"

USER, LIBRARY, PYTHON, GENERATED, NATIVE = "user", "library", "python", "generated", "native"

#: Directories whose first entries are installed packages.
_INSTALLED = re.compile(r"(?:site|dist)-packages/(?:.*\.egg/)?([^/]+)")

#: The standard library: lib/python3.11/, Lib/, or python311.zip/, and names that are not files.
_STANDARD = re.compile(
    r"(?:^|/)(?:lib(?:64)?/python3\.\d+t?|python3\d+\.zip|Lib)/|^<frozen |^<__array_function__"
)

#: Programs that are installed with a package: torchrun, accelerate.
_SCRIPT = re.compile(r"(?:^|/)(?:bin|Scripts)/([^/]+)$")

#: Cells of notebooks, which are code of the user.
_CELL = re.compile(r"ipykernel_\d+/|^<ipython-input-")

#: Code that is made while the program runs: exec, torch.fx, Inductor, Triton.
_MADE = re.compile(r"^<|torchinductor_[^/]*/|(?:^|/)\.triton/cache/|/triton_[^/]*cache/")

#: Libraries that are often used from a folder of source code.
_KNOWN = frozenset(
    "accelerate apex cupy deepspeed diffusers einops flash_attn flax jax jaxlib keras lightning "
    "megatron numpy optax pandas peft pytorch_lightning scipy sglang sklearn tensorflow timm torch "
    "torchaudio torchdata torchvision transformer_engine transformers triton trl vllm "
    "xformers".split()
)


class Frame(NamedTuple):
    """A function that was being executed at a line; `file` is a library if it is native."""

    function: str
    file: str | None
    line: int | None
    native: bool = False


Stack = tuple[Frame, ...]  # innermost first

#: Instead of the number of a stack without frames, and of a call if there is none.
NO_STACK, NO_CALL = -1, -1


@dataclass
class Samples:
    """Stacks of one source with the times at which they were recorded, as columns.

    Either all have an end, because they were traced, or none.
    """

    source: str
    time_ns: array[int] = field(default_factory=lambda: array("q"))
    pid: array[int] = field(default_factory=lambda: array("q"))
    tid: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("q"))
    call: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))

    def add(self, time_ns: int, pid: int, tid: int, stack: int, *, call: int = NO_CALL) -> None:
        """Add a sample, or the backtrace of a CUDA call with this correlation id."""
        self.time_ns.append(time_ns)
        self.pid.append(pid)
        self.tid.append(tid)
        self.stack.append(stack)
        self.call.append(call)

    def trace(self, start_ns: int, end_ns: int, pid: int, tid: int, stack: int) -> None:
        """Add a stack that was traced from start to end."""
        self.add(start_ns, pid, tid, stack)
        self.end_ns.append(end_ns)


class HostStacks:
    """Collects the distinct stacks of a report, and writes the three tables."""

    def __init__(self) -> None:
        self.stacks: dict[Stack, int] = {}
        self.samples: list[Samples] = []

    def number(self, stack: Stack) -> int:
        """Return the number of a stack, NO_STACK for an empty one."""
        return self.stacks.setdefault(stack, len(self.stacks)) if stack else NO_STACK

    def write(self, builder: ReportBuilder, why_none: str) -> None:
        """Write the tables; without samples, record the reason."""
        self.write_stacks(builder)
        self._write_samples(builder)
        if not any(samples.time_ns for samples in self.samples):
            self.lack(builder, why_none)

    @staticmethod
    def lack(builder: ReportBuilder, reason: str) -> None:
        """Record why there are no stacks."""
        for table in (FRAMES, STACKS, SAMPLES):
            builder.lacks(table, reason)

    def write_stacks(self, builder: ReportBuilder) -> None:
        """Write host_frames and host_stacks."""
        frames = {frame: at for at, frame in enumerate(dict.fromkeys(_all(self.stacks)))}
        owners = Owners(self.stacks)
        owned = [owners.of(frame) for frame in frames]
        columns: dict[str, list[object]] = {
            "frame_id": [*frames.values()],
            "function": [frame.function for frame in frames],
            "file": [frame.file for frame in frames],
            "line": [frame.line for frame in frames],
            "kind": [kind for kind, _ in owned],
            "package": [package for _, package in owned],
        }
        builder.write(FRAMES, columns, len(frames))
        placed = [
            (number, depth, frames[frame])
            for stack, number in self.stacks.items()
            for depth, frame in enumerate(stack)
        ]
        names = ("stack_id", "depth", "frame_id")
        columns = {name: [row[at] for row in placed] for at, name in enumerate(names)}
        builder.write(STACKS, columns, len(placed))

    def _write_samples(self, builder: ReportBuilder) -> None:
        parts = [_columns(samples) for samples in self.samples if samples.time_ns]
        if not parts:
            builder.write(SAMPLES, {}, 0)
            return
        whole = pa.concat_tables(parts)
        order = [(name, "ascending") for name in ("time_ns", "pid", "tid", "source")]
        rows = whole.sort_by(order).combine_chunks()
        builder.write(SAMPLES, dict(zip(rows.column_names, rows.columns, strict=True)), len(rows))


def _columns(samples: Samples) -> pa.Table:
    start, end = spans_of(samples)
    stack, call = (np.array(numbers, np.int64) for numbers in (samples.stack, samples.call))
    called = call != NO_CALL
    return pa.table(
        {
            "time_ns": np.array(samples.time_ns, np.int64),
            "start_ns": pa.array(start, mask=called),
            "end_ns": pa.array(end, mask=called),
            "pid": np.array(samples.pid, np.int64),
            "tid": np.array(samples.tid, np.int64),
            "stack_id": pa.array(stack, mask=stack == NO_STACK),
            "source": pa.repeat(samples.source, len(stack)),
            "correlation_id": pa.array(call, mask=~called),
        }
    )


def spans_of(samples: Samples) -> tuple[Ints, Ints]:
    """Return the start and the end of the interval that each sample stands for, ns.

    The boundary between two samples of a thread is halfway between them, but an interval extends at
    most one period, the median time between samples, to each side: what lies between samples that
    are further apart was not sampled.  Traced intervals are exact.
    """
    time = np.array(samples.time_ns, np.int64)
    if samples.end_ns:
        return time, np.array(samples.end_ns, np.int64)
    pid, tid = (np.array(numbers, np.int64) for numbers in (samples.pid, samples.tid))
    order = np.lexsort((time, tid, pid))
    pid, tid = pid[order], tid[order]
    same = (np.diff(pid) == 0) & (np.diff(tid) == 0)
    time = time[order]
    apart = np.diff(time)
    # Without a second sample no period is known: samples stand for nothing.
    period = int(np.median(apart[same])) if same.any() else 0
    middle = time[:-1] + apart // 2
    start, end = time - period, time + period
    start[1:] = np.where(same, np.maximum(start[1:], middle), start[1:])
    end[:-1] = np.where(same, np.minimum(end[:-1], middle), end[:-1])
    back = np.argsort(order)
    return start[back], end[back]


class Owners:
    """Says who owns the code of a frame, from its file and from where the program's script is.

    What lies beside or below the script that the interpreter started is the user's, unless it is
    installed; elsewhere, the folder of a well-known library is that library.
    """

    def __init__(self, stacks: Iterable[Stack] = ()) -> None:
        self._folders = _folders(stacks)

    def of(self, frame: Frame) -> tuple[str, str | None]:
        """Return the kind of a frame, and the library that it belongs to."""
        if frame.native:
            name = PurePosixPath(frame.file or "").name
            return NATIVE, name or None
        return self.of_file(frame.file or "")

    def of_file(self, path: str) -> tuple[str, str | None]:
        """Return the kind of code in a file of Python, and the library that it belongs to."""
        path = path.replace("\\", "/")
        kind, package = _by_path(path)
        if kind != USER or not package:
            return kind, package
        below = any(path.startswith(folder) for folder in self._folders)
        return (USER, None) if below else (LIBRARY, package)


def _by_path(path: str) -> tuple[str, str | None]:
    """Return the kind of a file, and the library that its folders name."""
    if _CELL.search(path):
        return USER, None
    if installed := _INSTALLED.search(path):
        return LIBRARY, installed[1].removesuffix(".py")
    if _STANDARD.search(path):
        return PYTHON, None
    if not path or _MADE.search(path):
        return GENERATED, None
    if script := _SCRIPT.search(path):
        return LIBRARY, script[1].removesuffix(".py")
    folders = path.split("/")[:-1]
    return USER, next((name for name in folders if name in _KNOWN), None)


def _folders(stacks: Iterable[Stack]) -> frozenset[str]:
    """Return the folders of the scripts that the interpreter started.

    A script is the outermost code of the user outside functions.
    """
    folders = set()
    for stack in stacks:
        for frame in reversed(stack):
            if frame.function == MODULE and not frame.native and frame.file:
                kind, package = _by_path(frame.file.replace("\\", "/"))
                if kind == USER and package is None:
                    folders.add(frame.file.replace("\\", "/").rpartition("/")[0] + "/")
                if kind == USER:
                    break
    return frozenset(folder for folder in folders if folder != "/")


def _all(stacks: Iterable[Sequence[Frame]]) -> Iterable[Frame]:
    for stack in stacks:
        yield from stack
