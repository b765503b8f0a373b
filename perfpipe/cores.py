"""How many processors there are to use."""

from __future__ import annotations

import os

from perfpipe.errors import InputError

#: Bounds the threads of a query and how many files are read at a time, on a machine that others
#: use too.
CORES_VARIABLE = "PERFPIPE_CORES"


def cores() -> int:
    """Return how many CPUs this process may use: those available to it, or fewer where stated.

    Raises InputError if PERFPIPE_CORES is no whole number above 0.
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
