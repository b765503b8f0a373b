"""Counts the launches of which the profiler recorded no kernel."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfpipe.ingest.arrays import NONE, Ints, ints, whole
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import Columns, slices
from perfpipe.ingest.consistency import open_at
from perfpipe.ingest.nsys.operations import Operations
from perfpipe.ingest.stored import row_groups

_CALLS = "nsys_api_calls"
_NO = np.zeros(0, np.int64)

#: Calls that launch kernels or graphs, and those around launches that only record a graph.
_OTHER, _LAUNCH, _BEGIN, _END = range(4)
_NAMES = (
    (_LAUNCH, re.compile(r"(cuda|cu|hip)(Ext|Hcc)?(Module)?(Graph)?Launch(?!HostFunc)\w*")),
    (_BEGIN, re.compile(r"(cuda|cu|hip)StreamBeginCapture\w*")),
    (_END, re.compile(r"(cuda|cu|hip)StreamEndCapture\w*")),
)

#: Which time of a call begins and ends the capture of a graph.
_BORDERS = ((_BEGIN, "start_ns"), (_END, "end_ns"))


def count_unrecorded(
    builder: ReportBuilder,
    launched: npt.NDArray[np.bool_],
    operations: Operations,
    called: tuple[Ints, Ints],
    columns: Columns,
) -> None:
    """Warn of launches without a recorded kernel.

    Launches that failed or were captured into a graph have none, nor have those at the end of the
    capture whose kernels were still queued.  `launched` marks calls with recorded work, `called`
    has the processes and starts of these, ns.
    """
    path = builder.directory / f"{_CALLS}.parquet"
    kinds = columns.new(len(launched), np.int8)
    for some, rows in row_groups(path, ["name"]):
        kinds[some] = _kinds(whole(rows["name"]))
    lost = columns.new(len(launched), bool)
    recorded = 0
    for some in slices(len(kinds)):
        lost[some] = (kinds[some] == _LAUNCH) & ~launched[some]
        recorded += int(np.count_nonzero((kinds[some] == _LAUNCH) & launched[some]))
    if not lost.any():
        return
    known = _keys(path, (kinds == _LAUNCH) & launched)
    begins, ends = (_times(path, kinds, *which) for which in _BORDERS)
    last_call = _latest(*called)
    last_end = _latest(operations.numbers["pid"], operations.numbers["end_ns"])
    count = 0
    wanted = ["pid", "start_ns", "return_value", "correlation_id"]
    for some, rows in row_groups(path, wanted, lost):
        missing = lost[some] & (ints(rows["return_value"]) == 0)
        missing &= ints(rows["correlation_id"]) != 0
        # With backtraces, a call and the one within it have the same id.
        missing &= ~np.isin(_key(rows), known)
        pid, start = ints(rows["pid"])[missing], ints(rows["start_ns"])[missing]
        for process in np.unique(pid).tolist():
            at = start[pid == process]
            captured = open_at(at, begins.get(process, _NO), ends.get(process, _NO))
            queued = (at > last_call.get(process, NONE)) & (at <= last_end.get(process, NONE))
            count += int(np.count_nonzero(~(captured | queued)))
    if count:
        total = recorded + count
        text = f"the kernels of {count:,} of {total:,} launches were not recorded"
        builder.miss(text, count, total)


def _keys(path: Path, wanted: npt.NDArray[np.bool_]) -> Ints:
    """Return process and correlation id of the wanted calls as one number each."""
    parts = [_NO]
    for some, rows in row_groups(path, ["pid", "correlation_id"], wanted):
        parts.append(_key(rows)[wanted[some]])
    return np.concatenate(parts)


def _key(rows: pa.Table) -> Ints:
    return (ints(rows["pid"]) << 32) ^ ints(rows["correlation_id"])


def _times(path: Path, kinds: npt.NDArray[np.int8], kind: int, column: str) -> dict[int, Ints]:
    """Return the known times of a kind of call, by process."""
    found: dict[int, list[Ints]] = {}
    for some, rows in row_groups(path, ["pid", column], kinds == kind):
        own = kinds[some] == kind
        pid, time = ints(rows["pid"])[own], ints(rows[column], missing=NONE)[own]
        for process in np.unique(pid).tolist():
            found.setdefault(process, []).append(time[(pid == process) & (time != NONE)])
    return {process: np.concatenate(parts) for process, parts in found.items()}


def _latest(pids: Ints, times: Ints) -> dict[int, int]:
    """Return the latest time of each process."""
    found: dict[int, int] = {}
    for some in slices(len(pids)):
        processes, place = np.unique(pids[some], return_inverse=True)
        latest = np.full(len(processes), NONE, np.int64)
        np.maximum.at(latest, place, times[some])
        for process, time in zip(processes.tolist(), latest.tolist(), strict=True):
            found[process] = max(found.get(process, NONE), time)
    return found


def _kinds(names: pa.DictionaryArray) -> npt.NDArray[np.int8]:
    """Return what calls are."""
    kinds = [_kind(name) for name in names.dictionary.to_pylist()]
    # The index of a call without a name, NONE, finds the last element.
    known = np.array([*kinds, _OTHER], np.int8)
    return known[ints(names.indices, missing=NONE)]


def _kind(name: str | None) -> int:
    return next((kind for kind, known in _NAMES if known.fullmatch(name or "")), _OTHER)
