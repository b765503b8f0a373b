"""A process that already runs: what /proc says about it, and whether it is still the same one.

The kernel uses process ids again, so a process is its id together with its start time.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfpipe.errors import InputError

#: Flag of threads of the kernel in /proc/PID/stat (PF_KTHREAD of the kernel's sched.h).
_PF_KTHREAD = 0x00200000

_PROC = Path("/proc")

#: How long the command line in messages may be, characters.
_LONGEST = 60


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says: CPU time in clock ticks, start time in clock ticks since boot."""

    name: str
    state: str
    parent: int
    flags: int
    cpu_ticks: int
    threads: int
    started: int
    resident_pages: int

    @property
    def ended(self) -> bool:
        """Whether the process has ended, and only its parent has not collected it."""
        return self.state in "ZX"

    @property
    def of_kernel(self) -> bool:
        """Whether this is a thread of the kernel."""
        return bool(self.flags & _PF_KTHREAD)


def stat_of(pid: int) -> Stat | None:
    """Return what /proc says about a process; None if there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        head, _, rest = text.rpartition(")")
        fields = rest.split()
        return Stat(
            name=head.partition("(")[2],
            state=fields[0],
            parent=int(fields[1]),
            flags=int(fields[6]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            started=int(fields[19]),
            resident_pages=int(fields[21]),
        )
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True)
class Target:
    """A process to look at; `started` tells it from a later process with the same id."""

    pid: int
    started: int
    uid: int
    name: str
    command: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        stat = stat_of(self.pid)
        return stat is not None and stat.started == self.started and not stat.ended

    @property
    def label(self) -> str:
        """Its id and its command line, shortened."""
        line = " ".join(self.command) or self.name
        return f"{self.pid} ({line if len(line) <= _LONGEST else line[:_LONGEST] + '...'})"

    def environment(self) -> dict[str, str]:
        """Return the variables with which it was started; empty if they may not be read."""
        try:
            content = (_PROC / str(self.pid) / "environ").read_bytes()
        except OSError:
            return {}
        pairs = (os.fsdecode(part).partition("=") for part in content.split(b"\0") if part)
        return {name: value for name, _, value in pairs}

    def maps(self, library: str) -> Path | None:
        """Return the path of a library that it has loaded, by a part of the file's name."""
        try:
            with (_PROC / str(self.pid) / "maps").open("rb") as lines:
                for line in lines:
                    fields = line.split(maxsplit=5)
                    if len(fields) == 6 and library in os.fsdecode(fields[5].rpartition(b"/")[2]):
                        return Path(os.fsdecode(fields[5].rstrip(b"\n")))
        except OSError:
            return None
        return None

    def tree(self) -> list[Target]:
        """Return this process and its descendants that run, without perfpipe itself."""
        below: dict[int, list[int]] = {}
        for pid, stat in _every():
            if not stat.ended:
                below.setdefault(stat.parent, []).append(pid)
        found, own = [self.pid], os.getpid()
        for pid in found:
            found += [child for child in below.get(pid, ()) if child != own]
        return [one for pid in found if (one := target_of(pid)) is not None]


def _every() -> Iterator[tuple[int, Stat]]:
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal() and (stat := stat_of(int(entry.name))) is not None:
            yield int(entry.name), stat


def target_of(pid: int) -> Target | None:
    """Return a process that runs; None if there is none with this id."""
    place = _PROC / str(pid)
    stat = stat_of(pid)
    if stat is None or stat.ended:
        return None
    try:
        uid = place.stat().st_uid
        content = (place / "cmdline").read_bytes()
    except OSError:
        return None
    words = tuple(os.fsdecode(word) for word in content.rstrip(b"\0").split(b"\0") if word)
    again = stat_of(pid)
    if again is None or again.started != stat.started:
        return None
    return Target(pid, stat.started, uid, stat.name, words)


def find(pid: int) -> Target:
    """Return the process to attach to; raises InputError if that is impossible, and why."""
    stat = stat_of(pid)
    if stat is None:
        raise InputError(f"no process {pid} on this machine: it has ended, or runs elsewhere")
    if stat.of_kernel:
        raise InputError(f"process {pid} ({stat.name}) is a thread of the kernel, not a program")
    if (leader := _leader(pid)) != pid:
        raise InputError(f"{pid} is a thread of process {leader}: attach to {leader}")
    if stat.ended:
        raise InputError(f"process {pid} ({stat.name}) has ended; its parent has not collected it")
    found = target_of(pid)
    if found is None:
        raise InputError(f"process {pid} has just ended")
    if pid == os.getpid():
        raise InputError(f"process {pid} is perfpipe itself")
    if os.geteuid() not in (0, found.uid):
        raise InputError(
            f"process {pid} ({stat.name}) belongs to {_user(found.uid)}: only this user, or root, "
            "can attach to it"
        )
    return found


def _leader(pid: int) -> int:
    """Return the process of a thread, which has a directory in /proc that is not listed."""
    try:
        text = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        return int(text.partition("\nTgid:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return pid


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
