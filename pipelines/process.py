"""Starts programs from argument lists, with a time limit; output is kept in files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from perfpipe.errors import TaskFailed, ToolMissing, os_error_sentence

#: Maximum output kept per stream, bytes, so that a runaway program does not fill the disk.
KEPT_OUTPUT = 16 << 20

#: Longer lines are passed on in pieces, characters.
_LONGEST_LINE = 1 << 20

#: How long to wait for output after a program has ended, s: its children may keep it open.
_DRAIN_S = 5


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
        """Whether it exited on its own with code 0."""
        return self.returncode == 0 and not self.timed_out

    def complaint(self) -> str:
        """Return its last lines of output, as one line."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines()]
        return " | ".join([line[:500] for line in lines if line][-3:])


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
) -> Finished:
    """Run a program to its end and return what it printed.

    It gets a session of its own, so that at the limit all that it started is ended with it.
    `on_line` sees every line of stdout as it comes, in another thread.  With `log`, the output is
    also kept in LOG.out and LOG.err.  Raises ToolMissing when the program is not there,
    TaskFailed when it may not be started or its output cannot be kept.
    """
    started = time.monotonic()
    words = [str(word) for word in argv]
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        missing = f"{cwd}: no such directory" if cwd and not cwd.is_dir() else None
        raise ToolMissing(missing or f"{words[0]}: no such program") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TaskFailed(f"{words[0]}: cannot be started ({reason})") from error
    assert process.stdout and process.stderr  # noqa: S101
    readers = (_Reader(process.stdout, on_line), _Reader(process.stderr, None))
    timed_out = False
    try:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            _end(process)
            process.wait()
        for reader in readers:
            reader.join(_DRAIN_S)
    except BaseException:
        _end(process)
        process.wait()
        raise
    stdout, stderr = (reader.text() for reader in readers)
    finished = Finished(process.returncode, stdout, stderr, time.monotonic() - started, timed_out)
    if log is not None:
        _keep(log, finished)
    return finished


def _keep(log: Path, finished: Finished) -> None:
    try:
        log.with_suffix(".out").write_text(finished.stdout, encoding="utf-8")
        log.with_suffix(".err").write_text(finished.stderr, encoding="utf-8")
    except OSError as error:
        raise TaskFailed(os_error_sentence(error, "cannot keep the output in")) from error


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
