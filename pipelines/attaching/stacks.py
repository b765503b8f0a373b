"""Stacks of the Python processes of a running program, which need no preparation.

py-spy reads the memory of a process from outside, without pausing it.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from perfpipe.errors import PerfpipeError
from perfpipe.ingest.frames import Stack
from perfpipe.ingest.nsys.forked_stacks import ForkedStacks
from perfpipe.pipelines.attaching.target import Target
from perfpipe.pipelines.attaching.ways import Subject
from perfpipe.pipelines.attaching.window import Window
from perfpipe.pipelines.collectors import pyspy
from perfpipe.pipelines.process import Finished

NAME = "stacks"
SEES = f"lines of Python code of all threads, {pyspy.RATE} times per second (py-spy)"
LACKS = "native code, and GPU work"

#: The most processes that a py-spy of their own samples; it also samples their child processes.
_MOST_ROOTS = 8

#: How long py-spy may take to begin, and to write its trace, s.
_PATIENCE_S = 30.0


@dataclass
class Stacks:
    """Intervals of threads with their stacks; `why_none` if there are none."""

    samples: ForkedStacks = field(default_factory=ForkedStacks)
    why_none: str | None = None


def why_not(subject: Subject) -> str | None:
    """Return why no stack can be sampled; None if one can."""
    if pyspy.find() is None:
        return pyspy.MISSING
    if not _roots(subject):
        return "no process of it is Python"
    return None


def _roots(subject: Subject) -> list[Target]:
    """Return the outermost Python processes: py-spy finds those below by itself."""
    python = [one for one in subject.processes if pyspy.is_python(one.pid)]
    below: set[int] = set()
    for one in python:
        below |= {child.pid for child in one.tree()} - {one.pid}
    return [one for one in python if one.pid not in below]


@contextlib.contextmanager
def sampling(subject: Subject, window: Window) -> Iterator[Stacks]:
    """Sample while the block runs; what was sampled is complete after it."""
    found = Stacks(why_none=why_not(subject))
    if found.why_none is not None:
        yield found
        return
    roots = _roots(subject)
    if len(roots) > _MOST_ROOTS:
        window.note(f"stacks are those of {_MOST_ROOTS} of {len(roots)} Python processes")
    spies = [_Spy(root, window) for root in roots[:_MOST_ROOTS]]
    try:
        yield found
        for spy in spies:
            spy.join(window)
    except BaseException:
        for spy in spies:
            spy.end()
        raise
    for spy in spies:
        spy.read(found.samples)
    if not len(found.samples):
        found.why_none = next((spy.why for spy in spies if spy.why), "no stack was sampled")


class _Spy:
    """A py-spy on a process, in a thread."""

    def __init__(self, root: Target, window: Window) -> None:
        self.why: str | None = None
        self._root = root
        self._trace: pyspy.Trace | None = None
        self._hang_up: Callable[[], None] | None = None
        self._abandoned = False
        self._path = window.into / f"stacks-{root.pid}.json"
        self._seconds = max(1, math.ceil(window.seconds))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        program = pyspy.find()
        if program is None:
            self.why = pyspy.MISSING
            return
        try:
            finished, self._trace = pyspy.record(
                program, self._root.pid, self._seconds, self._path, self._started
            )
        except PerfpipeError as error:
            self.why = pyspy.UNKNOWN.format(reason=error)
            return
        if self._trace is None:
            self.why = self._reason(finished)
        elif self._trace.zero_ns is None:
            self.why = "this version of py-spy does not log when its trace began"

    def _reason(self, finished: Finished) -> str:
        if not self._root.alive:
            return "the program ended before py-spy wrote a sample"
        return pyspy.why(self._root.pid, finished)

    def _started(self, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up
        if self._abandoned:
            hang_up()

    def join(self, window: Window) -> None:
        """Wait until it ends by itself, as it also does when the program ends."""
        late = max(0.0, self._seconds - window.lasted_s) + _PATIENCE_S
        self._thread.join(late)
        self.end()

    def end(self) -> None:
        """End it now; the program is not touched."""
        self._abandoned = True
        if self._hang_up is not None:
            self._hang_up()
        self._thread.join()

    def read(self, into: ForkedStacks) -> None:
        """Add what it sampled, with times of CLOCK_REALTIME."""
        if self._trace is None or self._trace.zero_ns is None:
            return
        zero = self._trace.zero_ns
        with contextlib.suppress(OSError, ValueError):  # a trace that was cut ends early
            for one in pyspy.intervals(self._trace):
                start, end = (zero + us * 1_000 for us in (one.start_us, one.end_us))
                into.add(start, end, one.pid, one.tid, one.stack)
        self._path.unlink(missing_ok=True)


def frames_of(stack: Stack) -> list[list[object]]:
    """Return a stack as the file of an attached program has it."""
    return [[frame.function, frame.file, frame.line] for frame in stack]
