"""Reads off the memory maps of processes how much host memory CUDA has pinned for them."""

from __future__ import annotations

from pathlib import Path

from perfpipe.pipelines.supervisor import descendants

#: How memory is mapped that a process shares under no name, as cudaHostAlloc maps it.
_SHARED = " /dev/zero (deleted)\n"


def pinned_gb() -> float:
    """Return the most pinned memory that a process below this one has, GB.

    That is what it shares under no name, of which CUDA's pinned memory is the usual kind.
    """
    return max((_shared_bytes(pid) for pid in descendants()), default=0) / 1e9


def _shared_bytes(pid: int) -> int:
    try:
        with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as maps:
            ranges = [line.split(maxsplit=1)[0] for line in maps if line.endswith(_SHARED)]
    except OSError:  # it has ended, or is another user's
        return 0
    borders = [[int(at, 16) for at in text.split("-")] for text in ranges]
    return sum(end - start for start, end in borders)
