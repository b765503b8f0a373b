"""How many processors there are to use."""

from __future__ import annotations

import os

from perfpipe.errors import InputError

#: Bounds what perfpipe takes of a machine that others use too, such as a login node.
CORES_VARIABLE = "PERFPIPE_CORES"


def cores() -> int:
    """Return how many CPUs this process may use: those available to it, or fewer where stated.

    Raises InputError if PERFPIPE_CORES is no whole number above 0.
    """
    available = len(os.sched_getaffinity(0))
    stated = os.environ.get(CORES_VARIABLE)
    if not stated:
        return available
    if not (stated.isascii() and stated.isdigit() and int(stated)):
        raise InputError(f"{CORES_VARIABLE}={stated}: not a number of cores")
    return min(int(stated), available)
