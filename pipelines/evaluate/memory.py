"""The memory of a device, and whether a problem fits into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Limits of the memory of this process: the limit and the use of its control group.
_GROUP = Path("/sys/fs/cgroup")

#: Share of free memory that is used.
_SHARE = 0.9


def free(torch: Any, device: str) -> int:
    """Return the bytes that can be allocated on a device, with a reserve."""
    if device == "cpu":
        return int(_SHARE * _host())
    # What PyTorch holds without using it is free as well.
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(_SHARE * (torch.cuda.mem_get_info(device)[0] + unused))


def _host() -> int:
    available = 1 << 62
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) << 10
    try:
        limit = (_GROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        stat = (_GROUP / "memory.stat").read_text(encoding="ascii").split()
        used -= int(stat[stat.index("inactive_file") + 1])
    except (OSError, ValueError):
        return available
    return available if limit == "max" else min(available, max(0, int(limit) - used))
