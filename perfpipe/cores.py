"""Number of CPUs to use."""

from __future__ import annotations

import os

from perfpipe.errors import InputError

#: Limits the threads of a query and the files that are read at a time, on a shared machine.
CORES_VARIABLE = "PERFPIPE_CORES"


def cores() -> int:
    """Return the number of CPUs to use: those available to this process, or fewer if set.

    Raises InputError if PERFPIPE_CORES is not a positive integer.
    """
    available = len(os.sched_getaffinity(0))
    stated = os.environ.get(CORES_VARIABLE)
    if not stated:
        return available
    try:
        count = int(stated) if stated.isascii() and stated.isdigit() else 0
    except ValueError:  # thousands of digits
        count = 0
    if count < 1:
        raise InputError(f"{CORES_VARIABLE}={stated}: not a number of cores")
    return min(count, available)
