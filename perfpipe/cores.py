"""How many processors there are to use."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of CPUs available to this process."""
    return len(os.sched_getaffinity(0))
