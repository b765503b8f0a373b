"""Counts the launches of which the profiler recorded no kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from perfpipe.ingest.arrays import NONE, Ints, ints
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.consistency import open_at
from perfpipe.ingest.stored import read_rows

_CALLS = "nsys_api_calls"

#: Calls that launch kernels or graphs, and those around launches that only record a graph.
_OTHER, _LAUNCH, _BEGIN, _END = range(4)
_NAMES = (
    (_LAUNCH, re.compile(r"(cuda|cu|hip)(Ext|Hcc)?(Module)?(Graph)?Launch(?!HostFunc)\w*")),
    (_BEGIN, re.compile(r"(cuda|cu|hip)StreamBeginCapture\w*")),
    (_END, re.compile(r"(cuda|cu|hip)StreamEndCapture\w*")),
)


class Recorded(NamedTuple):
    """Processes and ends of recorded operations, and processes and starts of their calls, ns."""

    pid: Ints
    end: Ints
    calling_pid: Ints
    called: Ints


def count_unrecorded(
    builder: ReportBuilder, launched: npt.NDArray[np.bool_], recorded: Recorded
) -> None:
    """Warn of launches without a recorded kernel.  `launched` marks calls with recorded work.

    Launches that failed or were captured into a graph have none, nor have those at the end of the
    capture whose kernels were still queued.
    """
    path = builder.directory / f"{_CALLS}.parquet"
    kinds = np.concatenate([np.zeros(0, np.int8), *_kinds(path)])
    lost = (kinds == _LAUNCH) & ~launched
    if not lost.any():
        return
    wanted = lost | (kinds >= _BEGIN)
    rows = read_rows(path, ["pid", "start_ns", "end_ns", "return_value", "correlation_id"], wanted)
    pid, start = ints(rows["pid"]), ints(rows["start_ns"])
    end = ints(rows["end_ns"], missing=NONE)
    kind = kinds[wanted]
    missing = (kind == _LAUNCH) & (ints(rows["return_value"]) == 0)
    missing &= ints(rows["correlation_id"]) != 0
    for process in np.unique(pid[missing]):
        own = pid == process
        begins, ends = start[own & (kind == _BEGIN)], end[own & (kind == _END)]
        captured = open_at(start, begins, ends[ends != NONE])
        last_call = recorded.called[recorded.calling_pid == process].max(initial=NONE)
        last_end = recorded.end[recorded.pid == process].max(initial=NONE)
        queued = (start > last_call) & (start <= last_end)
        missing[own & (captured | queued)] = False
    if count := int(np.count_nonzero(missing)):
        total = int(np.count_nonzero((kinds == _LAUNCH) & launched)) + count
        text = f"the kernels of {count:,} of {total:,} launches were not recorded"
        builder.miss(text, count, total)


def _kinds(path: Path) -> Iterator[npt.NDArray[np.int8]]:
    """Yield what the calls of each row group are."""
    with pq.ParquetFile(path, read_dictionary=["name"]) as file:
        for group in range(file.num_row_groups):
            for names in file.read_row_group(group, columns=["name"])["name"].chunks:
                kinds = [_kind(name) for name in names.dictionary.to_pylist()]
                # The index of a call without a name, NONE, finds the last element.
                known = np.array([*kinds, _OTHER], np.int8)
                yield known[ints(names.indices, missing=NONE)]


def _kind(name: str | None) -> int:
    return next((kind for kind, known in _NAMES if known.fullmatch(name or "")), _OTHER)
