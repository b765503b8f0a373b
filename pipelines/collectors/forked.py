"""Samples the stacks of forked Python processes while a program runs under nsys.

nsys samples Python processes that were started by exec, but not those that were forked from one:
workers of a DataLoader, pools of multiprocessing.  When such processes appear, py-spy samples them
from outside.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perfpipe.errors import PerfpipeError
from perfpipe.ingest.nsys.forked_stacks import ForkedStacks, add_to_export
from perfpipe.pipelines.collectors import pyspy
from perfpipe.pipelines.process import Finished
from perfpipe.scratch import scratch

#: Variable with a random value that the processes of one launch have in common.
VARIABLE = "PERFPIPE_FORKED"

#: How often to look for forked processes, s.
_EVERY_S = 0.25

#: How long one trace is, s, and how many bytes of traces are kept, of the latest: py-spy keeps a
#: trace in memory until it writes it.
_TRACE_S, _MOST_BYTES = 30, 256 << 20

#: The most processes whose forks are sampled.
_MOST_ROOTS = 8

#: How long py-spy may take to write its trace when the program has ended, s.
_WRITING_S = 30.0

_LOST = "the stacks of forked processes, such as the workers of a DataLoader, were not recorded: "
_MISSING = _LOST + pyspy.MISSING
_NO_TIME = _LOST + "the export of nsys does not say when the recording began"
_NO_ZERO = _LOST + "this version of py-spy does not log when its trace began"
_NOTHING = _LOST + "the program ended before py-spy wrote a sample of them"
_TOO_MANY = (
    f"the stacks of forked processes are those of the first {_MOST_ROOTS} processes that forked "
    "others"
)
_TOO_LONG = (
    "the stacks of forked processes are those of the last part of the program only, because their "
    "traces are large"
)


class Forks:
    """Forked processes of a launch with the variables `env`: their stacks, and what went wrong."""

    def __init__(self, folder: Path | None) -> None:
        token = secrets.token_hex(8)
        self.env = {VARIABLE: token} if folder else {}
        self.notes: list[str] = []
        self._folder = folder
        self._stacks = ForkedStacks()
        self._processes = Processes(f"{VARIABLE}={token}")
        self._roots: dict[int, int] = {}
        self._traces: deque[pyspy.Trace] = deque()
        self._spies: dict[int, _Spy] = {}
        self._refused: set[int] = set()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def store(self, database: Path) -> None:
        """Add the stacks to the export of the launch."""
        if not len(self._stacks):
            return
        try:
            if not add_to_export(self._stacks, database):
                self._note(_NO_TIME)
        except sqlite3.Error as error:
            self._note(f"{_LOST}{database.name} could not be extended ({error})")

    def start(self) -> None:
        """Look for forked processes from now on."""
        if self._folder:
            self._watcher.start()

    def stop(self, *, read: bool) -> None:
        """End every py-spy; read what they wrote."""
        if not self._folder:
            return
        self._over.set()
        self._watcher.join()
        for spy in self._spies.values():
            spy.end(_WRITING_S if read else 0)
        if read:
            self._read()
        if self._spies and not len(self._stacks) and not self.notes:
            self._note(_NOTHING)

    def _read(self) -> None:
        for trace in self._traces:
            zero = trace.zero_ns
            if zero is None:
                self._note(_NO_ZERO)
                continue
            with suppress(OSError, ValueError):  # a trace that was cut ends early
                for found in pyspy.intervals(trace):
                    if self._roots.get(found.pid) == trace.root:
                        start, end = (zero + us * 1_000 for us in (found.start_us, found.end_us))
                        self._stacks.add(start, end, found.pid, found.tid, found.stack)

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            forked = self._processes.forked()
            self._roots |= forked
            for root in dict.fromkeys(forked.values()):
                if root in self._refused or (root in self._spies and self._spies[root].running):
                    continue
                if root not in self._spies and len(self._spies) >= _MOST_ROOTS:
                    self._note(_TOO_MANY)
                    continue
                self._sample(root)

    def _sample(self, root: int) -> None:
        program = pyspy.find()
        if not pyspy.is_python(root):
            self._refused.add(root)
        elif program is None:
            self._refuse(root, _MISSING)
        elif self._folder:
            number = len(self._traces)
            path = self._folder / f"{root}-{number}-{secrets.token_hex(4)}.json"
            self._spies[root] = _Spy(program, root, path, self._keep)

    def _keep(
        self, root: int, finished: Finished | PerfpipeError, trace: pyspy.Trace | None
    ) -> None:
        """Take what a py-spy wrote, or note why it wrote nothing."""
        if trace is not None:
            with self._lock:
                self._traces.append(trace)
                while len(self._traces) > 1 and _size(self._traces) > _MOST_BYTES:
                    self._traces.popleft().path.unlink(missing_ok=True)
                    self._note(_TOO_LONG)
        elif isinstance(finished, PerfpipeError):
            self._refuse(root, _LOST + pyspy.UNKNOWN.format(reason=finished))
        elif not self._over.is_set() and Path(f"/proc/{root}").exists():
            self._refuse(root, _LOST + pyspy.why(root, finished))

    def _refuse(self, root: int, note: str) -> None:
        self._refused.add(root)
        self._note(note)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


@contextmanager
def sampling_forks(into: Path, *, wanted: bool) -> Iterator[Forks]:
    """Yield what samples the forked processes of a launch within this context."""
    if not wanted:
        yield Forks(None)
        return
    with scratch(into) as folder:
        forks = Forks(folder)
        forks.start()
        try:
            yield forks
        except BaseException:
            forks.stop(read=False)
            raise
        forks.stop(read=True)


class _Spy:
    """A py-spy in a thread; `kept` receives its root, its end, and its trace."""

    def __init__(
        self,
        program: str,
        root: int,
        path: Path,
        kept: Callable[[int, Finished | PerfpipeError, pyspy.Trace | None], None],
    ) -> None:
        self._of = program, root, path, kept
        self._abandoned = False
        self._hang_up: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it still runs, or its trace is being taken."""
        return self._thread.is_alive()

    def end(self, patience_s: float) -> None:
        """Wait until it ends by itself, as it does when the program ends; end it after a while."""
        self._thread.join(patience_s)
        self._abandoned = True
        if self._hang_up is not None:
            self._hang_up()
        self._thread.join()

    def _run(self) -> None:
        program, root, path, kept = self._of
        try:
            finished, trace = pyspy.record(program, root, _TRACE_S, path, self._started)
        except PerfpipeError as error:
            kept(root, error, None)
        else:
            kept(root, finished, trace)

    def _started(self, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up
        if self._abandoned:
            hang_up()


@dataclass
class _Process:
    """A process of the launch; `forked` if it has executed no program since it was forked."""

    parent: int
    image: bytes
    forked: bool
    scans: int = 0


class Processes:
    """The processes whose environment has a mark, from /proc."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._known: set[int] = set()
        self._own: dict[int, _Process] = {}

    def forked(self) -> dict[int, int]:
        """Return every forked process with the process that it, or its parents, were forked from.

        A process that is about to execute a program looks forked for a moment, so it counts when it
        is seen a second time.
        """
        found = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}
        for pid in self._known - found:
            self._own.pop(pid, None)
        new = found - self._known
        while new:
            self._look(new.pop(), new)
        self._known = found
        for pid, process in self._own.items():
            if process.forked:
                process.scans += 1
                process.forked = _image(pid) == process.image
        return {
            pid: self._root(pid)
            for pid, process in self._own.items()
            if process.forked and process.scans > 1
        }

    def _look(self, pid: int, new: set[int]) -> None:
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
            image = _image(pid)
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            return
        if parent in new:
            new.remove(parent)
            self._look(parent, new)
        # The parent may have executed its program since it was first seen.
        forked = parent in self._own and _image(parent) == image
        if forked or self._mark in variables:
            self._own[pid] = _Process(parent, image, forked)

    def _root(self, pid: int) -> int:
        while self._own[pid].forked and self._own[pid].parent in self._own:
            pid = self._own[pid].parent
        return pid


def _image(pid: int) -> bytes:
    """Return what processes have in common until one executes a program; empty if it has ended.

    exec makes a new auxiliary vector, with random addresses.
    """
    place = Path(f"/proc/{pid}")
    try:
        vector = (place / "auxv").read_bytes()
        return vector or bytes((place / "exe").readlink()) + (place / "cmdline").read_bytes()
    except OSError:
        return b""


def _size(traces: deque[pyspy.Trace]) -> int:
    return sum(trace.path.stat().st_size for trace in traces)
