"""Limits of time and memory that are watched from outside of a process."""

from __future__ import annotations

import os
import re
import resource
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfpipe.database import MEMORY_VARIABLE
from perfpipe.errors import InputError
from perfpipe.pipelines.query_timeout import late
from perfpipe.units import format_bytes

#: How often a process is looked at, s.
EVERY_S = 0.02

#: Memory that a process may take in addition to what queries may use, bytes: DuckDB counts neither
#: its own structures nor a value that a function builds.
_MARGIN = 256 << 20

#: Memory of a process that reads the store, without a query, and the margin, bytes.
OWN_BYTES = (256 << 20) + _MARGIN

#: Private memory that is mapped, but not used: allocators reserve more than they need.
_RESERVED, _RESERVED_TIMES = 1 << 30, 3

#: Sizes as DuckDB reads them.
_SIZE = re.compile(r"\s*([\d.]+)\s*([kmgt]?)(i?)b\s*|\s*([\d.]+)\s*%\s*", re.IGNORECASE)

#: The part of the machine's memory that queries use unless stated, as DuckDB defines it.
_USUAL_PCT = 80.0


@dataclass(frozen=True)
class Bounds:
    """How long a process may run, s, and how much memory it may take; None means no limit."""

    seconds: float | None
    bytes: int | None

    def limit_here(self) -> None:
        """Let the system refuse this process what is far beyond its limit, in one piece or many."""
        if self.bytes is not None:
            most = sizes_of("self")["VmData"] + _RESERVED_TIMES * self.bytes + _RESERVED
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


class Watched:
    """A process, how long it was waited for, and the memory that it had at first."""

    def __init__(self, pid: int, bounds: Bounds) -> None:
        self.pid = pid
        self._bounds = bounds
        self._waited = 0.0
        self._looked = self._at = time.monotonic()
        self._before = private_bytes(pid)

    def wait(self) -> None:
        """Begin to wait for it: the time in which others use what it gives does not count."""
        self._at = time.monotonic()

    def check(self) -> None:
        """Raise InputError if a bound is exceeded; looks at the memory now and then."""
        now = time.monotonic()
        self._waited += now - self._at
        self._at = now
        seconds, most = self._bounds.seconds, self._bounds.bytes
        if seconds is not None and self._waited >= seconds:
            raise late(seconds)
        if most is not None and now - self._looked >= EVERY_S:
            self._looked = now
            if private_bytes(self.pid) - self._before > most + _MARGIN:
                raise out_of_memory(most)


def out_of_memory(most: int | None = None) -> InputError:
    """Return the error of a query that took too much memory, bytes."""
    limit = "" if most is None else f" ({format_bytes(most)})"
    return InputError(
        f"SQL: the query needs more memory than allowed{limit}; raise the memory limit with "
        f"--memory SIZE or {MEMORY_VARIABLE}"
    )


def crashed(exit_code: int | None) -> InputError:
    """Return the error of a query whose process crashed."""
    return InputError(f"stopped: the process of the query crashed (exit code {exit_code})")


def query_memory() -> int | None:
    """Return the memory that queries may use, bytes; None if DuckDB refuses what is stated."""
    found = _SIZE.fullmatch(os.environ.get(MEMORY_VARIABLE) or f"{_USUAL_PCT}%")
    if found is None:
        return None
    try:
        if found[4]:
            return int(_machine_bytes() * float(found[4]) / 100)
        return int(
            float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2].lower() or " ")
        )
    except ValueError:
        return None


@cache
def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def private_bytes(pid: int) -> int:
    """Return the memory that a process has for itself, bytes; 0 if it has ended."""
    return sizes_of(pid).get("RssAnon", 0)


def sizes_of(pid: int | str) -> dict[str, int]:
    """Return the sizes in /proc/PID/status, bytes."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.split() for line in lines.splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) << 10 for name, size, _ in pairs}
