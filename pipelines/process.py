"""Starts programs: argument lists only, with a time limit, output kept in files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfpipe.errors import TaskFailed, ToolMissing


@dataclass(frozen=True)
class Finished:
    """A program that ended: `timed_out` when it was killed at its limit."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.returncode == 0 and not self.timed_out

    def complaint(self) -> str:
        """Return the last lines that it printed, as one line."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines()]
        return " | ".join([line for line in lines if line][-3:])


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    log: Path | None = None,
) -> Finished:
    """Run a program to its end and return what it printed.

    It gets a session of its own, so that at the limit all that it started is ended with it.
    With `log`, the output is also kept in LOG.out and LOG.err.  Raises ToolMissing when the
    program is not there, TaskFailed when it may not be started.
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
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ToolMissing(f"{words[0]}: no such program") from error
    except OSError as error:
        raise TaskFailed(f"{words[0]}: cannot be started ({error.strerror})") from error
    timed_out = False
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        _end(process)
        stdout, stderr = process.communicate()
    except BaseException:
        _end(process)
        process.communicate()
        raise
    finished = Finished(process.returncode, stdout, stderr, time.monotonic() - started, timed_out)
    if log is not None:
        log.with_suffix(".out").write_text(stdout, encoding="utf-8")
        log.with_suffix(".err").write_text(stderr, encoding="utf-8")
    return finished


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
