"""Runs py-spy on a process, and reads the stacks of its trace."""

from __future__ import annotations

import calendar
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

from perfpipe.ingest.frames import Frame, Stack
from perfpipe.ingest.torch.trace_json import TraceJson
from perfpipe.pipelines.complaint import exit_sentence
from perfpipe.pipelines.process import Finished, run

#: Samples per second, and half of the time between two of them, us.
RATE = 100
_HALF_US = 1_000_000 // RATE // 2

#: What lies between samples that are further apart was not sampled, us.  Busy CPUs delay samples.
_APART_US = 50_000

#: py-spy logs the time at which it has read its options.  Its trace begins right after that, and it
#: looks at the process next.
_LOGGING = {"RUST_LOG": "py_spy::config=info,py_spy::python_process_info=info"}
_LOGGED = re.compile(
    r"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z INFO +py_spy::config\]", re.MULTILINE
)

#: Names of the outermost frames of a stack: the process and the thread.
_PROCESS = re.compile(r"process (\d+):")
_THREAD = re.compile(r"thread \((\d+)\)")

#: Where a process that multiprocessing forked begins: frames outside belong to its parent.
_BOOTSTRAP = ("_bootstrap", "multiprocessing/process.py")

_PIECE = 1 << 20

_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")

#: The number of the capability CAP_SYS_PTRACE.
_PTRACE = 19

#: Why there are no stacks.
MISSING = "py-spy is not installed (pip install py-spy)"
DENIED = (
    "py-spy may not read the memory of the program; allow it with --cap-add=SYS_PTRACE for a "
    "container, or with sysctl kernel.yama.ptrace_scope=0"
)
UNKNOWN = "py-spy cannot read this Python ({reason})"


@dataclass(frozen=True)
class Trace:
    """A trace of py-spy on a process; its times count from `zero_ns`, CLOCK_REALTIME, if known."""

    path: Path
    root: int
    zero_ns: int | None


@dataclass(frozen=True)
class Interval:
    """A thread had a stack from start to end, us.

    `shared` is whether threads of several processes have its address.
    """

    start_us: int
    end_us: int
    pid: int
    tid: int
    stack: Stack
    shared: bool = False


def find() -> str | None:
    """Return the path of py-spy: beside the interpreter, else on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def record(
    program: str,
    root: int,
    seconds: int,
    path: Path,
    started: Callable[[Callable[[], None]], None],
) -> tuple[Finished, Trace | None]:
    """Sample a process and its child processes until they end, at most for some seconds.

    `started` receives a function that ends py-spy, from any thread.
    """
    words = [program, "record", "--pid", str(root), "--subprocesses", "--threads"]
    # Without pauses the program runs as fast as usual.  py-spy's own guess of what is idle would
    # leave out threads that wait.
    words += ["--nonblocking", "--idle", "--rate", str(RATE), "--duration", str(seconds)]
    words += ["--format", "chrometrace", "--output", str(path)]
    finished = run(words, env=_LOGGING, started=started)
    if not finished.ok or not path.is_file():
        return finished, None
    return finished, Trace(path, root, _zero(finished.stderr))


def _zero(log: str) -> int | None:
    """Return the time at which a trace began, ns of CLOCK_REALTIME; None if it was not logged."""
    if not (logged := _LOGGED.search(log)):
        return None
    seconds = calendar.timegm(time.strptime(logged[1], "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1_000_000_000 + int(logged[2])


def intervals(trace: Trace) -> Iterator[Interval]:
    """Yield the intervals of each thread, in order."""
    with trace.path.open("rb") as file:
        pieces = iter(lambda: file.read(_PIECE), b"")
        yield from merged(states(TraceJson(pieces).events()))


def states(events: Iterable[dict[str, object]]) -> Iterator[Interval]:
    """Yield what the trace says about a thread between two of its events.

    py-spy tells threads apart by their address, which is the same in a process and in those forked
    from it: a state ends when any of them is sampled.
    """
    stacks: dict[object, list[tuple[object, ...]]] = {}
    since: dict[object, int] = {}
    owners: dict[object, set[int]] = {}
    read: dict[tuple[tuple[object, ...], ...], _Read | None] = {}
    for event in events:
        name, thread, at = event.get("name"), event.get("tid"), event.get("ts")
        if not isinstance(name, str) or not isinstance(at, int):
            continue
        stack = stacks.setdefault(thread, [])
        if stack and at > since[thread]:
            key = tuple(stack)
            if key not in read:
                read[key] = _read(key)
            if (whose := read[key]) is not None:
                known = owners.setdefault(thread, set())
                known.add(whose.pid)
                yield Interval(since[thread], at, *whose, shared=len(known) > 1)
        since[thread] = at
        if event.get("ph") == "E":
            del stack[-1:]
        else:
            place = event.get("args")
            place = place if isinstance(place, dict) else {}
            stack.append((name, place.get("filename"), place.get("line")))


class _Read(NamedTuple):
    """A stack of a trace, with its process and thread."""

    pid: int
    tid: int
    stack: Stack


def _read(stack: tuple[tuple[object, ...], ...]) -> _Read | None:
    owner, tid, inner = 0, 0, 0
    for at, (name, file, _) in enumerate(stack):
        if file:
            break
        inner = at + 1
        if process := _PROCESS.match(str(name)):
            owner = int(process[1])
        elif thread := _THREAD.match(str(name)):
            tid = int(thread[1])
    frames = [
        # The class is not part of the name elsewhere: Popen.wait, work.<locals>.<listcomp>
        Frame(
            str(name).rpartition(".")[2],
            str(file) if file else None,
            line if isinstance(line, int) and line > 0 else None,
        )
        for name, file, line in stack[inner:]
    ]
    if not owner or not frames:
        return None
    # Frames outside of this one belong to the parent, when it forked.
    born = [at for at, frame in enumerate(frames) if _is_bootstrap(frame)]
    own = frames[max(born, default=0) :]
    return _Read(owner, tid or owner, tuple(reversed(own)))


def _is_bootstrap(frame: Frame) -> bool:
    function, file = _BOOTSTRAP
    return frame.function == function and (frame.file or "").endswith(file)


def merged(found: Iterable[Interval]) -> Iterator[Interval]:
    """Yield the intervals of each thread between samples; equal stacks become one interval.

    A boundary lies in the middle between the samples on both sides, if they are not too far apart.
    """
    threads: dict[tuple[int, int], _Thread] = {}
    latest: dict[int, int] = {}
    for state in found:
        key = (state.pid, state.tid)
        if state.shared:
            latest[state.pid] = state.end_us
        thread = threads.get(key)
        if thread is None:
            threads[key] = _Thread(state, state.start_us - _HALF_US)
        elif state.start_us - thread.state.end_us > _APART_US:
            yield thread.until(thread.state.end_us + _HALF_US)
            threads[key] = _Thread(state, state.start_us - _HALF_US)
        elif state.stack == thread.state.stack:
            thread.state = state
        else:
            border = thread.border(state.start_us)
            yield thread.until(border)
            threads[key] = _Thread(state, border)
    for thread in threads.values():
        # py-spy does not say when a thread ended: it had ended if its process was sampled no more,
        # which the trace shows at a shared address.
        state = thread.state
        last = latest.get(state.pid, state.end_us) + _HALF_US
        yield thread.until(max(min(state.end_us, last), state.start_us))


@dataclass
class _Thread:
    """A thread that has had the stack of its latest state since a time, us."""

    state: Interval
    start_us: int

    def border(self, sampled_us: int) -> int:
        """Return where this stack ends if a sample finds another one."""
        # Samples in a row that find the same stack are not in the trace, unless a process that has
        # a thread with the same address was sampled between them.
        last = max(self.state.start_us, self.state.end_us - 2 * _HALF_US)
        return (last + sampled_us) // 2

    def until(self, end_us: int) -> Interval:
        state = self.state
        return Interval(self.start_us, end_us, state.pid, state.tid, state.stack)


def is_python(pid: int) -> bool:
    """Return whether a process is a Python interpreter, or has one as a library."""
    try:
        name = PurePath(Path(f"/proc/{pid}/exe").readlink()).name
        return name.startswith("python") or b"libpython" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


def why(root: int, finished: Finished) -> str:
    """Return why py-spy failed on a process."""
    said = [line for line in finished.stderr.splitlines() if line and not line.startswith("[")]
    reason = said[0].removeprefix("Error: ") if said else exit_sentence(finished.returncode)
    # py-spy reports a process that it may not read like one that it does not know.
    if "Permission" in reason or not _may_read(root) or _is_restricted():
        return DENIED
    return UNKNOWN.format(reason=reason)


def _may_read(pid: int) -> bool:
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def _is_restricted() -> bool:
    """Whether this process may only read the memory of its child processes, as py-spy has none."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        privileges = int(status.partition("CapEff:")[2].split()[0], 16)
        return _YAMA.read_text(encoding="utf-8").strip() != "0" and not privileges >> _PTRACE & 1
    except (OSError, ValueError, IndexError):
        return False
