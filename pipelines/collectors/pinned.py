"""Reads the amount of CUDA's pinned host memory from the memory maps of processes."""

from __future__ import annotations

from pathlib import Path

from perfpipe.pipelines.supervisor import descendants

#: Mapping of anonymous shared memory, which cudaHostAlloc uses.
_SHARED = " /dev/zero (deleted)\n"


def pinned_gb() -> float:
    """Return the largest pinned memory of a process below this one, GB.

    It is measured as anonymous shared memory, which is usually CUDA's pinned memory.
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
