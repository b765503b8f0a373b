"""How far earlier intervals reach."""

from __future__ import annotations

import numpy as np

from perfpipe.analysis.critical.events import NONE, Flags
from perfpipe.ingest.arrays import Ints


def last_open(ends: Ints, at: Ints, times: Ints) -> Ints:
    """Return which element, up to each place `at`, ends last; NONE if before a time."""
    if not len(ends):
        return np.full(len(at), NONE)
    until = np.maximum.accumulate(ends)
    which = np.maximum.accumulate(np.where(ends == until, np.arange(len(ends)), 0))
    place = np.maximum(at, 0)
    return np.where((at >= 0) & (until[place] > times), which[place], NONE)


def running_max(values: Ints, starts: Flags) -> Ints:
    """Return the running maximum of values within parts that begin where `starts` is true."""
    if not len(values):
        return values
    part = np.cumsum(starts) - 1
    offset = part * (int(values.max()) - int(values.min()) + 1)
    return np.asarray(np.maximum.accumulate(values + offset) - offset)
