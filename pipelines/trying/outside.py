"""What a launch changed outside its protected directories, and what it leaves in shared memory.

Nothing traces the program: directories in which programs usually write are searched for files that
changed meanwhile.  Another program of the user may have changed some of them.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from perfpipe.files import printable

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108

#: Limits of a search: entries, time in s, and files that it returns.
_MOST_ENTRIES, _MOST_S, _MOST_FILES = 200_000, 2.0, 1000

#: Times of files come from a clock that ticks this rarely, ns.
_TICK_NS = 20_000_000

#: Segments and semaphores of PyTorch, of multiprocessing and of joblib; a number is the process.
_SEGMENTS = re.compile(r"torch_(?P<torch>\d+)_.*|sem\.(mp|loky)-.+|psm_[0-9a-f]+|nccl-\w+")

_OWN = re.compile(r"perfpipe.*|\.perfpipe-.*")


@dataclass
class Watch:
    """The directories in which to search for changes since the launch began."""

    roots: list[Path] = field(default_factory=list)
    skipped: set[Path] = field(default_factory=set)
    began_ns: int = field(default_factory=time.time_ns)
    first: int = field(default_factory=lambda: _last_process())
    note: str | None = None

    def changed(self) -> list[Path]:
        """Return the user's files that changed since the beginning, in order.

        `note` then says what was not searched.
        """
        found: dict[Path, None] = {}
        left, until = _MOST_ENTRIES, time.monotonic() + _MOST_S
        # Directories near the roots come first: the search may end early.
        pending = deque(path for path in self._outermost() if path.is_dir())
        found |= dict.fromkeys(
            path for path in self.roots if path.is_file() and self._is_new(path.stat())
        )
        while pending:
            folder = pending.popleft()
            try:
                entries = [*os.scandir(folder)]
            except OSError:
                continue
            for entry in entries:
                left -= 1
                path = Path(entry.path)
                if path in self.skipped or _OWN.fullmatch(entry.name):
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif self._is_new(entry.stat(follow_symlinks=False)):
                        found[path] = None
                except OSError:
                    continue
            if left < 0 or time.monotonic() > until or len(found) > _MOST_FILES:
                self.note = (
                    "the search for changed files outside the working directory was ended in "
                    f"{printable(str(folder))}, since it has many files"
                )
                break
        return sorted(found)

    def _outermost(self) -> list[Path]:
        """Return the roots that are not below another root that is searched."""
        roots = dict.fromkeys(path for path in self.roots if path not in self.skipped)
        return [one for one in roots if not any(parent in roots for parent in one.parents)]

    def _is_new(self, found: os.stat_result) -> bool:
        # ctime also shows files that keep the time of what they are copied from.
        return (
            found.st_uid == os.getuid()
            and stat.S_ISREG(found.st_mode)
            and found.st_ctime_ns >= self.began_ns - _TICK_NS
        )

    def remove_segments(self, shared_memory: Path = SHARED_MEMORY) -> list[str]:
        """Remove segments of shared memory that ended processes of the launch left; return them.

        A segment that a process still uses stays.
        """
        last = _last_process()
        candidates = {}
        try:
            entries = [*os.scandir(shared_memory)]
        except OSError:
            return []
        for entry in entries:
            name = _SEGMENTS.fullmatch(entry.name)
            try:
                if not name or not self._is_new(entry.stat(follow_symlinks=False)):
                    continue
                number = int(name["torch"] or 0)
                if number and (not _between(self.first, number, last) or _lives(number)):
                    continue
                candidates[entry.stat(follow_symlinks=False).st_ino] = entry
            except OSError:
                continue
        used = _mapped(shared_memory) if candidates else frozenset()
        removed = []
        for number, entry in candidates.items():
            if number not in used:
                Path(entry.path).unlink(missing_ok=True)
                removed.append(entry.name)
        return removed


def usual_places() -> list[Path]:
    """Return where programs usually write besides their directory: home, and temporary files."""
    temporary = (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"))  # noqa: S108
    return [*dict.fromkeys([home(), *temporary])]


def home() -> Path:
    """Return the user's home directory."""
    return Path(os.path.expanduser("~")).resolve()  # noqa: PTH111


def _last_process() -> int:
    """Return the number of the process that was started last."""
    try:
        return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[-1])
    except (OSError, ValueError):
        return 0


def _between(first: int, number: int, last: int) -> bool:
    """Return whether a process was started between two others; numbers begin again at the end."""
    if first <= last:
        return first < number <= last
    return number > first or number <= last


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _mapped(shared_memory: Path) -> frozenset[int]:
    """Return the numbers of the files of shared memory that processes use."""
    found: set[int] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_bytes().splitlines()
        except OSError:
            continue
        begin = os.fsencode(shared_memory) + b"/"
        found.update(int(line.split()[4]) for line in lines if begin in line)
    return frozenset(found)


def named(paths: Iterable[Path]) -> list[str]:
    """Return paths as text."""
    return [printable(str(path)) for path in paths]
