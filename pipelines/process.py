"""Starts programs from argument lists, with a time limit; output is kept in files.

Each program gets a supervisor (pipelines/supervisor.py).  It ends every process that the program
started when the program ends, when its time is over, or when this process is interrupted or killed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from perfpipe.errors import PerfpipeError, TaskFailed, ToolMissing, os_error_sentence
from perfpipe.pipelines.complaint import complaint
from perfpipe.pipelines.console import say

#: Maximum output kept per stream, bytes, so that a runaway program does not fill the disk.
KEPT_OUTPUT = 16 << 20

#: Longer lines are passed on in pieces, characters.
_LONGEST_LINE = 1 << 20

#: How long processes that a program leaves running may take to end by themselves, s.
_LINGER_S = 5.0

#: Time between SIGTERM and SIGKILL, s: srun and mpirun end their tasks meanwhile.
_GRACE_S = 3.0

#: How long to wait for processes that do not end after SIGKILL, s.
_PATIENCE_S = 32.0

#: How long to wait for the end of the output when no process is left, s.
_DRAIN_S = 5.0

_SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class Finished:
    """A finished program; `timed_out` if it was killed at its time limit."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it exited by itself with code 0."""
        return self.returncode == 0 and not self.timed_out

    def complaint(self) -> str:
        """Return the exception that ended it, or else its last lines of output, as one line."""
        return complaint(self.stdout, self.stderr)


class _Reader(threading.Thread):
    """Reads a stream to its end, keeps the beginning, and passes on every line."""

    def __init__(self, stream: IO[str], on_line: Callable[[str], None] | None) -> None:
        super().__init__(daemon=True)
        self._stream, self._on_line = stream, on_line
        self._kept: list[str] = []
        self._left = KEPT_OUTPUT
        self.start()

    def run(self) -> None:
        with contextlib.suppress(ValueError, OSError):  # closed while reading
            while line := self._stream.readline(_LONGEST_LINE):
                if self._left > 0:
                    self._kept.append(line[: self._left])
                    self._left -= len(line)
                if self._on_line is not None:
                    self._on_line(line)

    def text(self) -> str:
        cut = f"\n[truncated after {KEPT_OUTPUT >> 20} MiB]\n" if self._left <= 0 else ""
        return "".join(self._kept) + cut


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    stdout: IO[bytes] | None = None,
    stdin: IO[bytes] | None = None,
    open_stdin: bool = False,
    keep_rest: bool = False,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> Finished:
    """Run a program to its end and return what it printed.

    Every process that it starts ends with it.  `on_line` gets every line of stdout as it comes, in
    another thread.  With `log`, the output is also written to LOG.out and LOG.err; with `stdout`,
    stdout goes to that file instead.  The input is the file `stdin`; with `open_stdin`, it is the
    line "go", and end of file when the program should end; otherwise there is none.  With
    `keep_rest`, processes that it moves to another session stay, such as a connection that ssh
    shares.  `started` receives a function that ends the program early, from any thread.  Raises
    ToolMissing if the program does not exist, TaskFailed if it cannot be started or its output
    cannot be written.
    """
    words = [str(word) for word in argv]
    settings = {**os.environ, **(env or {})}
    if any("\0" in text for text in (*words, *settings, *settings.values())):
        raise TaskFailed(f"{words[0]}: cannot start (null byte in an argument)")
    with Supervised(words[0], stdout, stdin=stdin) as supervised:
        process = supervised.process
        readers = [
            _Reader(stream, hear)
            for stream, hear in ((process.stdout, on_line), (process.stderr, None))
            if stream is not None
        ]
        supervised.start(words, cwd, settings, open_stdin=open_stdin, keep_rest=keep_rest)
        if started is not None:
            started(supervised.hang_up)
        timed_out = not supervised.wait(timeout)
    for reader in readers:
        reader.join(_DRAIN_S)
    texts = [reader.text() for reader in readers]
    code, seconds = supervised.ended or (-signal.SIGKILL, supervised.seconds)
    finished = Finished(code, "" if stdout else texts[0], texts[-1], seconds, timed_out)
    if log is not None:
        _keep(log, finished)
    return finished


class Supervised:
    """A program under a supervisor; `ended` is its exit code and how long it took, s.

    Leaving the context ends the program and every process that it started.
    """

    def __init__(
        self,
        program: str,
        stdout: IO[bytes] | None,
        pass_fds: Sequence[int] = (),
        stdin: IO[bytes] | None = None,
    ) -> None:
        self.program = program
        self.ended: tuple[int, float] | None = None
        self._cwd: Path | None = None
        self._pid: int | None = None
        self._unread = b""
        self._started = time.monotonic()
        self._line, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SUPERVISOR), str(theirs.fileno())],
                stdin=stdin or subprocess.DEVNULL,
                stdout=stdout or subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
                pass_fds=[theirs.fileno(), *pass_fds],
            )

    @property
    def seconds(self) -> float:
        """Time since it was started, s."""
        return time.monotonic() - self._started

    def start(
        self, words: list[str], cwd: Path | None, env: Mapping[str, str], **options: bool | float
    ) -> None:
        """Start the program, which inherits the passed descriptors."""
        self._cwd = cwd
        request = json.dumps(
            {
                "words": words,
                "cwd": os.fspath(cwd) if cwd else None,
                "env": dict(env),
                "open_stdin": False,
                "keep_rest": False,
                "linger_s": _LINGER_S,
                "grace_s": _GRACE_S,
                **options,
            }
        ).encode()
        with contextlib.suppress(OSError):  # a supervisor that is gone does not answer either
            self._line.sendall(len(request).to_bytes(4, "big") + request)

    def wait(self, timeout: float | None) -> bool:
        """Return whether the program ended in time; raises the error if it could not start."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.ended is None:
            match self._answer(until):
                case None:
                    return False
                case ["process", pid]:
                    self._pid = int(pid)
                case ["ended", code, seconds]:
                    self.ended = int(code), float(seconds)
                case ["failed", number, what]:
                    raise self._failure(int(number), what)
                case _:
                    raise TaskFailed(f"{self.program}: its supervisor was killed")
        return True

    def _failure(self, number: int, what: str) -> PerfpipeError:
        missing = number in (errno.ENOENT, errno.ENOTDIR)
        if what == "cwd":
            reason = "no such directory" if missing else os.strerror(number)
            return ToolMissing(f"{self._cwd}: {reason}")
        if missing:
            return ToolMissing(f"{self.program}: no such program")
        return TaskFailed(f"{self.program}: cannot start ({os.strerror(number)})")

    def _answer(self, until: float | None) -> list[str] | None:
        """Return the words of the next line; None if it is late, an empty list at the end."""
        while b"\n" not in self._unread:
            self._line.settimeout(None if until is None else max(1e-3, until - time.monotonic()))
            try:
                part = self._line.recv(1 << 12)
            except TimeoutError:
                return None
            except OSError:
                part = b""
            if not part:
                return []
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode().split()

    def __enter__(self) -> Supervised:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._line:
            try:
                if kind is not None or self.ended is None:
                    self.hang_up()
                self._await_end()
            except BaseException:
                self.hang_up()
                self._await_end()
                raise
        if self._pid is not None and self.ended is None:
            # It does so itself, unless it was killed.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        self.process.wait()

    def hang_up(self) -> None:
        """Let the supervisor end everything, as it would if perfpipe were gone."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    def _await_end(self) -> None:
        """Wait until the supervisor has ended."""
        late = time.monotonic() + _LINGER_S + _GRACE_S + _PATIENCE_S
        while answer := self._answer(late):
            if answer[0] == "ended":
                self.ended = int(answer[1]), float(answer[2])
            elif answer[0] == "left":
                say(f"{self.program}: could not end its processes {', '.join(answer[1:])}")


def _keep(log: Path, finished: Finished) -> None:
    try:
        log.with_suffix(".out").write_text(finished.stdout, encoding="utf-8")
        log.with_suffix(".err").write_text(finished.stderr, encoding="utf-8")
    except OSError as error:
        raise TaskFailed(os_error_sentence(error, "cannot write the output to")) from error
