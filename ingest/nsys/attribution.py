"""Finds the NVTX ranges that each launching API call lies in: a sweep per thread and domain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.builder import ReportBuilder

_TABLE = "nsys_call_ranges"

#: End of a range that was open when the capture ended, ns.
_STILL_OPEN = np.iinfo(np.int64).max

Ints = npt.NDArray[np.int64]


def write_call_ranges(builder: ReportBuilder) -> None:
    """Write nsys_call_ranges from the launches and ranges of this report that are on disk."""
    if not builder.stored["nsys_nvtx_ranges"].rows or not builder.stored["launches"].rows:
        builder.lacks(_TABLE, "needs NVTX ranges and launching API calls")
        builder.write(_TABLE, {}, 0)
        return
    calls = _calls(builder)
    ranges, domains = _push_pop(builder)
    found: dict[str, list[Ints]] = {"call": [], "range": []}
    call_groups = _groups(calls["pid"], calls["tid"])
    for (pid, tid, _domain), members in _groups(
        ranges["pid"], ranges["tid"], ranges["domain"]
    ).items():
        own = call_groups.get((pid, tid))
        if own is None:
            continue
        inner = innermost(
            calls["start"][own],
            calls["end"][own],
            ranges["start"][members],
            ranges["end"][members],
            ranges["depth"][members],
        )
        inside = inner >= 0
        found["call"].append(own[inside])
        found["range"].append(members[inner[inside]])
    call = np.concatenate([*found["call"], np.empty(0, np.int64)])
    within = np.concatenate([*found["range"], np.empty(0, np.int64)])
    order = np.lexsort((within, calls["start"][call]))
    call, within = call[order], within[order]
    names = domains.take(pa.array(within))
    columns = {
        "pid": calls["pid"][call],
        "tid": calls["tid"][call],
        "correlation_id": calls["correlation_id"][call],
        "domain": names,
        "range_id": ranges["range_id"][within],
    }
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values)
        for name, values in columns.items()
    }
    builder.write(_TABLE, arrays, len(call))


def innermost(start: Ints, end: Ints, range_start: Ints, range_end: Ints, depth: Ints) -> Ints:
    """Return for each call the index of the innermost range that holds it, -1 where none does.

    The ranges are of one thread and domain, nested, ordered by start with outer ones first, and
    `depth` counts the enclosing ones; all times in ns.  The range that started last before a
    call holds it, or an enclosing one does: its parent is the last earlier range one level up.
    O((n + m) log m), whatever the nesting.
    """
    at = np.searchsorted(range_start, start, side="right") - 1
    parent = np.full(len(depth), -1, np.int64)
    for level in range(1, int(depth.max(initial=0)) + 1):
        children, outer = np.flatnonzero(depth == level), np.flatnonzero(depth == level - 1)
        parent[children] = outer[np.searchsorted(outer, children) - 1]
    todo = np.flatnonzero(at >= 0)
    while len(todo):
        todo = todo[range_end[at[todo]] < end[todo]]
        at[todo] = parent[at[todo]]
        todo = todo[at[todo] >= 0]
    return at


def _calls(builder: ReportBuilder) -> dict[str, Ints]:
    names = {"pid": "pid", "tid": "tid", "correlation_id": "correlation_id"}
    names |= {"start": "api_start_ns", "end": "api_end_ns"}
    table = pq.read_table(builder.directory / "launches.parquet", columns=list(names.values()))
    table = table.filter(table["api_start_ns"].is_valid())
    columns = {name: _ints(table[column]) for name, column in names.items()}
    # A call may own many operations.  Process ids have 24 bits, correlation ids 32.
    _, first = np.unique((columns["pid"] << 32) + columns["correlation_id"], return_index=True)
    return {name: values[first] for name, values in columns.items()}


def _push_pop(builder: ReportBuilder) -> tuple[dict[str, Ints], pa.DictionaryArray]:
    path = builder.directory / "nsys_nvtx_ranges.parquet"
    columns = ["pid", "tid", "domain", "start_ns", "end_ns", "depth", "range_id"]
    table = pq.read_table(path, columns=columns, read_dictionary=["domain"])
    table = table.filter(table["depth"].is_valid())
    names = table["domain"].combine_chunks()
    numbers = {
        "pid": _ints(table["pid"]),
        "tid": _ints(table["tid"]),
        "domain": _ints(names.indices, missing=-1),
        "start": _ints(table["start_ns"]),
        "end": _ints(table["end_ns"], missing=_STILL_OPEN),
        "depth": _ints(table["depth"]),
        "range_id": _ints(table["range_id"]),
    }
    return numbers, names


def _groups(*keys: Ints) -> dict[tuple[int, ...], Ints]:
    """Return the indices of each combination of keys, in their order."""
    order = np.lexsort(keys[::-1])
    stacked = np.stack([key[order] for key in keys])
    borders = np.flatnonzero((stacked[:, 1:] != stacked[:, :-1]).any(axis=0)) + 1
    return {
        tuple(int(key[members[0]]) for key in keys): members
        for members in np.split(order, borders)
        if len(members)
    }


def _ints(values: pa.Array | pa.ChunkedArray, missing: int = 0) -> Ints:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    filled = whole.cast(pa.int64()).fill_null(missing)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)
