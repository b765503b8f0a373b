"""Watches the output of ncu, and ends the program after the last kernel to profile."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import uuid
from pathlib import Path

from perfpipe.pipelines.collectors.base import Context

#: Output of ncu for each profiled kernel, and for each process that it attaches to.
_PROFILING = re.compile(r'==PROF== Profiling "(?P<kernel>[^"]+)".* - \d+ pass')
_CONNECTED = re.compile(r"==PROF== Connected to process (?P<pid>\d+)")

#: How long to wait for more kernels after the expected ones, s.
_SETTLED_S = 5.0

#: Environment variable that marks the processes of one launch of ncu.
MARK_VARIABLE = "PERFPIPE_NCU_LAUNCH"


class Seen:
    """Counts the kernels that ncu has profiled; ends the program after the last expected one.

    It also ends the program after `quiet_s` without a kernel, or a moment after the last expected
    kernel if others may have come before it (`from_start`).  In per-launch-config mode, ncu ignores
    --kill.  Interrupting ncu and the program makes ncu write its report; `timeout` forwards its
    interrupt to both.
    """

    def __init__(
        self,
        context: Context,
        expected: int | None = None,
        quiet_s: float | None = None,
        *,
        led: bool = False,
        from_start: bool = False,
    ) -> None:
        """`led` says that `timeout` is the leader of the process group."""
        self._context, self._expected, self._led = context, expected, led
        self._quiet_s, self._from_start = quiet_s, from_start
        self._alarm: threading.Timer | None = None
        self.mark = uuid.uuid4().hex
        self.kernels = 0
        self.stopped = False
        self.quiet = False
        self.group: int | None = None
        self._pid: int | None = None

    @property
    def connected(self) -> bool:
        """Whether a process that ncu attached to uses CUDA."""
        return self._pid is not None

    def hear(self, line: str) -> None:
        """Read a line that ncu prints."""
        if match := _PROFILING.search(line):
            self.kernels += 1
            self._find_group()
            of = f" of {self._expected}" if self._expected else ""
            self._context.say(f"ncu: kernel {self.kernels}{of}, {match['kernel']}")
            done = self._expected is not None and self.kernels >= self._expected
            if done and not self._from_start:
                self._stop()
            else:
                self._wait_for_more(_SETTLED_S if done else self._quiet_s)
        elif match := _CONNECTED.search(line):
            self._pid = int(match["pid"])
            self._find_group()

    def _wait_for_more(self, quiet_s: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if quiet_s is not None:
            self._alarm = threading.Timer(quiet_s, self._grow_tired)
            self._alarm.daemon = True
            self._alarm.start()

    def _grow_tired(self) -> None:
        self.quiet = True
        self._stop()

    def _stop(self) -> None:
        """Interrupt the program; ncu then writes its report."""
        if self.group is not None:
            self.stopped = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.kill if self._led else os.killpg)(self.group, signal.SIGINT)

    def _find_group(self) -> None:
        """Find the group of the program; a new process may not show its mark yet."""
        if self.group is None and self._pid is not None and is_marked(self._pid, self.mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                group = os.getpgid(self._pid)
                self.group = group if group != os.getpgid(0) else None

    def end_all(self) -> None:
        """End remaining processes of the program: they survive a crash of ncu."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self.group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)


def is_marked(pid: int, mark: str) -> bool:
    """Return whether a process of this machine was launched with a mark in its environment.

    Output of a program may look like a line of ncu, and ids of another machine are invalid here.
    """
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK_VARIABLE}={mark}".encode() in environment.split(b"\0")
