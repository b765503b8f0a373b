"""Runs between perfpipe and a program that it launches, so that no process outlives either.

Runs as a separate program, with one end of a socket as its argument, and does not import perfpipe.
It reads a request (its length in 4 bytes, then JSON), starts the program in a new session and
answers in lines:

    process PID                    it is about to start, with this process id
    failed ERRNO cwd|program       it could not start
    ended CODE SECONDS             it ended, by signal -CODE if negative
    left PID ...                   processes that could not be ended

When the socket closes, also because perfpipe was killed, the supervisor ends every process that the
program started: SIGTERM first, SIGKILL after a while.  It also ends processes that the program
leaves running.  Orphans become children of the supervisor, whatever session they are in, so none is
missed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

#: How long processes may take to end after SIGKILL, s: freeing GPU memory takes time.
_KILLED_S = 30.0

#: How often SIGKILL is sent to remaining processes, s.
_AGAIN_S = 0.02

_RUNNING, _LINGERING, _ENDING, _KILLING = range(4)


def main() -> None:
    """Run the requested program and exit when all its processes have ended."""
    line = int(sys.argv[1])
    os.set_inheritable(line, False)
    request = _request(line)
    if request is None:
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, waker = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    started = time.monotonic()
    program = _start(request, line, libc)
    if program is None:
        return
    # stdout belongs to the program, and must close when the program closes it.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    _watch(program, started, line, woken, request)


def _request(line: int) -> dict[str, Any] | None:
    """Return what to start; None if perfpipe has ended."""
    content = b""
    while len(content) < 4 or len(content) < 4 + int.from_bytes(content[:4], "big"):
        part = os.read(line, 1 << 16)
        if not part:
            return None
        content += part
    request: dict[str, Any] = json.loads(content[4:])
    return request


def _start(request: dict[str, Any], line: int, libc: Any) -> int | None:
    """Start the program and return its process id; on failure, answer that and return None."""
    said, say = os.pipe()
    gate, opener = os.pipe()
    stdin = os.pipe() if request["open_stdin"] else None
    own = os.getpid()
    program = os.fork()
    if program == 0:
        os.close(opener)
        # perfpipe learns its process id before it can do anything, such as kill this process.
        if not os.read(gate, 1):
            os._exit(127)
        _become(request, own, stdin and stdin[0], say, libc)
    _answer(line, f"process {program}")
    os.write(opener, b".")
    for end in (gate, opener, say):
        os.close(end)
    if stdin:
        # The end for writing stays open for as long as this process lives.
        os.write(stdin[1], b"go\n")
        os.close(stdin[0])
    failure = os.read(said, 100)
    os.close(said)
    if not failure:
        return program
    os.waitpid(program, 0)
    _answer(line, f"failed {failure.decode()}")
    return None


def _become(
    request: dict[str, Any], parent: int, stdin: int | None, say: int, libc: Any
) -> NoReturn:
    """Become the program; only in a forked child."""
    what = "program"
    try:
        os.setsid()
        # If this supervisor is killed, the kernel kills the program itself.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:
            # Python ignores these signals, and the program would inherit that.
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            if stdin is not None:
                os.dup2(stdin, 0)
            what = "cwd"
            if request["cwd"] is not None:
                os.chdir(request["cwd"])
            what = "program"
            os.execvpe(request["words"][0], request["words"], request["env"])  # noqa: S606
    except OSError as error:
        os.write(say, f"{error.errno} {what}".encode())
    finally:
        os._exit(127)


def _watch(program: int, started: float, line: int, woken: int, request: dict[str, Any]) -> None:
    """Wait for the end of the program or of perfpipe, and end the remaining processes.

    With `keep_rest`, processes that have left the session of the program continue.
    """
    linger_s, grace_s = request["linger_s"], request["grace_s"]
    session = program if request["keep_rest"] else None
    phase, until = _RUNNING, float("inf")
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        alive = False
        for pid, status in _reaped():
            alive = alive or pid == 0
            if pid == program:
                code = os.waitstatus_to_exitcode(status)
                _answer(line, f"ended {code} {time.monotonic() - started:.9f}")
                if session is not None:
                    return
                if phase == _RUNNING:
                    phase, until = _LINGERING, time.monotonic() + linger_s
        if not alive:
            return
        late = time.monotonic() >= until
        if late and phase < _KILLING:
            phase += 1
            late, until = False, time.monotonic() + (grace_s if phase == _ENDING else _KILLED_S)
            if phase == _ENDING:
                _signal(signal.SIGTERM, session)
        killed = phase == _KILLING and _signal(signal.SIGKILL, session)
        if phase == _KILLING and (late or not killed) and (left := descendants()):
            _answer(line, " ".join(["left", *map(str, left)]))
            return
        wait = min(until - time.monotonic(), _AGAIN_S if phase == _KILLING else 3600.0)
        for ready, _ in poll.poll(max(0.0, wait) * 1e3):
            if ready == line:
                asked = not os.read(line, 100)
                if asked:
                    poll.unregister(line)
            else:
                numbers = set(os.read(woken, 1000))
                asked = bool(numbers - {signal.SIGCHLD})
            if asked and phase < _ENDING:
                phase, until = _ENDING, time.monotonic() + grace_s
                _signal(signal.SIGTERM, session)


def _reaped() -> list[tuple[int, int]]:
    """Return the ended children with their status, and (0, 0) if other children are alive."""
    found = []
    while True:
        try:
            found.append(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            return found
        if found[-1][0] == 0:
            return found


def _signal(number: int, session: int | None) -> bool:
    """Signal every descendant, or those in a session; returns whether any may be signaled."""
    any_may = False
    for pid in descendants():
        try:
            if session in (None, os.getsid(pid)):
                os.kill(pid, number)
            any_may = True
        except PermissionError:  # of another user
            continue
        except ProcessLookupError:
            any_may = True
    return any_may


def descendants() -> list[int]:
    """Return every descendant of this process."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
            below.setdefault(parent, []).append(int(name))
    found = list(below.get(os.getpid(), []))
    for pid in found:
        found += below.get(pid, [])
    return found


def _answer(line: int, text: str) -> None:
    try:
        os.write(line, text.encode() + b"\n")
    except OSError:  # perfpipe is gone
        return


if __name__ == "__main__":
    main()
