"""What precedes launches of a process: idle GPU time, pauses of the host, and copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Ints
from perfpipe.ingest.columns import Columns, rows_where, slices, taken
from perfpipe.ingest.nsys.issued import Issued


def pauses_of(process: Issued, columns: Columns) -> Ints:
    """Return the time from the end of the previous call to each launch, ns."""
    pauses = columns.new(len(process.host), np.int64)
    for some in slices(len(pauses)):
        begin = max(some.start, 1)
        host, ended = process.host[begin : some.stop], process.ended[begin - 1 : some.stop - 1]
        pauses[begin : some.stop] = host - np.minimum(ended, host)
    return pauses


def idle_of(process: Issued, columns: Columns) -> Ints:
    """Return the longest idle time before each launch and before the copies that precede it, ns."""
    idle = columns.new(len(process.host), np.int64)
    for some in slices(len(idle)):
        idle[some] = process.idle[some]
    results = taken(columns, process.copy_host, results_of(process, columns))
    for copies, following in _following(process):
        # Copies before a result belong to earlier launches.
        answered = np.searchsorted(results, process.copy_host[copies])
        behind = np.full(len(answered), np.iinfo(np.int64).max)
        behind[answered < len(results)] = results[answered[answered < len(results)]]
        kept = (behind > process.host[following]) & ~process.result[copies]
        np.maximum.at(idle, following[kept], process.copy_idle[copies][kept])
    return idle


def after_inputs(process: Issued, columns: Columns) -> npt.NDArray[np.bool_]:
    """Return which launches follow inputs.

    Like optimizers, they occur a few times per step.
    """
    inputs = columns.new(len(process.host), bool)
    for copies, following in _following(process):
        inputs[following[process.given[copies]]] = True
    return inputs


def _following(process: Issued) -> Iterator[tuple[slice, Ints]]:
    """Yield the copies before the last launch, a few at a time, and the launch after each."""
    first = 0
    for some in slices(len(process.host)):
        host = process.host[some]
        last = first + int(np.searchsorted(process.copy_host[first:], host[-1], side="right"))
        for part in slices(last - first):
            copies = slice(first + part.start, first + part.stop)
            yield copies, some.start + np.searchsorted(host, process.copy_host[copies])
        first = last


def results_of(process: Issued, columns: Columns) -> Ints:
    """Return the indices of copies to the host."""
    return rows_where(columns, len(process.result), lambda some: process.result[some])


def begins_of(process: Issued, results: Ints, edges: Ints) -> npt.NDArray[np.int64]:
    """Return where the copies before iterations begin, and those that belong to the iterations.

    The columns are the first copy since the previous launch, the first after the last of
    `results`, the first after the iteration begins, and when the iteration begins, ns.
    """
    before = np.searchsorted(process.copy_host, process.host[np.maximum(edges - 1, 0)])
    before[edges == 0] = 0
    until = np.searchsorted(process.copy_host, process.host[edges])
    answered = np.searchsorted(results, until)
    first = before.copy()
    some = answered > 0
    first[some] = np.maximum(before[some], results[answered[some] - 1] + 1)
    times = process.host[edges]
    some = first < until
    times[some] = process.copy_host[first[some]]
    return np.stack([before, first, until, times])
