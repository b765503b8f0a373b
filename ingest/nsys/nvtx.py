"""NVTX ranges and marks: names, domains, nesting."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.builder import ReportBuilder
from ingest.nsys.export import Export
from ingest.nsys.resolve import Resolver, pid_of, signed, tid_of

#: Event types of NVTX_EVENTS; 70 and 71 are their nvtxt forms.
_STYLES = {34: "Mark", 59: "PushPop", 60: "StartEnd", 70: "PushPop", 71: "StartEnd"}
_DOMAIN_CREATED = 75
_DEFAULT_DOMAIN = 0

#: End of a range that the capture cut off, ns; half the largest integer, so that it can be doubled.
_STILL_OPEN = np.iinfo(np.int64).max // 2

_COLUMNS = (
    "start",
    "end",
    "eventType",
    "category",
    "text",
    "textId",
    "globalTid",
    "endGlobalTid",
    "domainId",
)

Ints = npt.NDArray[np.int64]


def write_nvtx(builder: ReportBuilder, export: Export, resolver: Resolver) -> None:
    """Write nsys_nvtx_ranges in start order, outer ranges before inner ones."""
    table = "nsys_nvtx_ranges"
    rows = export.read("NVTX_EVENTS", _COLUMNS)
    styles = pa.array([*_STYLES], pa.int64())
    kinds = signed(rows["eventType"].combine_chunks())
    domains = _domain_names(rows.filter(pc.equal(kinds, _DOMAIN_CREATED)), resolver)
    rows = rows.filter(pc.is_in(kinds, value_set=styles))
    if not rows.num_rows:
        state = "holds no range" if "NVTX_EVENTS" in export.tables() else "is not in the export"
        builder.lacks(
            table, f"NVTX_EVENTS {state}; annotate the program and trace with --trace=nvtx"
        )
        builder.write(table, {}, 0)
        return
    rows = _in_order(rows)
    column = {name: rows[name].combine_chunks() for name in _COLUMNS}
    start, end = signed(column["start"]), signed(column["end"])
    kind, domain = signed(column["eventType"]), signed(column["domainId"])
    pid, tid = pid_of(column["globalTid"]), tid_of(column["globalTid"])
    style = pc.index_in(kind, value_set=styles)
    style_names = pa.array([*_STYLES.values()]).take(style)
    starts, ends = _ints(start), _ints(end, missing=_STILL_OPEN)
    nested = np.asarray(pc.equal(style_names, "PushPop"))
    by_domain, by_thread = _packed(pid, tid, domain), _packed(pid, tid, None)
    depth, parent = nesting(starts, ends, _ints(by_domain.indices), nested)
    level, enclosing = depth, parent
    if len(by_domain.dictionary) != len(by_thread.dictionary):
        level, enclosing = nesting(starts, ends, _ints(by_thread.indices), nested)
    end_tid = tid_of(column["endGlobalTid"])
    builder.write(
        table,
        {
            "pid": pid,
            "tid": tid,
            "end_tid": pc.if_else(pc.equal(end_tid, tid), pa.scalar(None, pa.int64()), end_tid),
            "domain": _domains_of(pid, domain, domains),
            "name": _names(column, resolver),
            "style": style_names,
            "start_ns": start,
            "end_ns": end,
            "dur_ns": pc.subtract(end, start),
            "category": column["category"],
            "range_id": pa.array(np.arange(rows.num_rows)),
            "depth": depth,
            "parent": parent,
            "level": level,
            "enclosing": enclosing,
        },
        rows.num_rows,
    )


def nesting(
    start: Ints, end: Ints, group: Ints, nested: npt.NDArray[np.bool_]
) -> tuple[pa.Array, pa.Array]:
    """Return depth and parent (index) of each range, NULL where `nested` is false.

    Ranges must be ordered by start, and by falling end among equal starts.  Within one group
    (process, thread, domain) push/pop ranges enclose one another or are apart, so the parent is
    the latest earlier range at one depth less.  A range that ends where another starts does not
    enclose it, but one without length encloses those that follow at the same instant.  All
    times in ns; O(n log n).
    """
    index = np.flatnonzero(nested)
    by_group = index[np.argsort(group[index], kind="stable")]
    depth = np.full(len(start), -1, np.int64)
    parent = np.full(len(start), -1, np.int64)
    for members in np.split(by_group, np.flatnonzero(np.diff(group[by_group])) + 1):
        # Half nanoseconds: a range without length ends half a nanosecond after its start.
        starts = 2 * start[members]
        ends = np.where(end[members] == start[members], starts + 1, 2 * end[members])
        closed = np.searchsorted(np.sort(ends), starts, side="right")
        level = np.arange(len(members)) - closed
        depth[members] = level
        parent[members] = _parents(level, members)
    return pa.array(depth, mask=depth < 0), pa.array(parent, mask=parent < 0)


def _parents(level: Ints, members: Ints) -> Ints:
    parent = np.full(len(level), -1, np.int64)
    for depth in range(1, int(level.max(initial=0)) + 1):
        children = np.flatnonzero(level == depth)
        outer = np.flatnonzero(level == depth - 1)
        parent[children] = members[outer[np.searchsorted(outer, children) - 1]]
    return parent


def _in_order(rows: pa.Table) -> pa.Table:
    """Order by start, outer first; rows that were open at the end of the capture are outermost."""
    start = _ints(signed(rows["start"].combine_chunks()))
    end = _ints(signed(rows["end"].combine_chunks()), missing=_STILL_OPEN)
    thread = _ints(signed(rows["globalTid"].combine_chunks()))
    return rows.take(pa.array(np.lexsort((thread, -end, start))))


def _ints(values: pa.Array, missing: int = 0) -> Ints:
    filled = pc.fill_null(values.cast(pa.int64()), missing)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def _packed(pid: pa.Array, tid: pa.Array | int, domain: pa.Array | None) -> pa.DictionaryArray:
    """Return a dictionary-encoded key of process, thread (or 0) and domain (or any)."""
    thread = tid if isinstance(tid, int) else _ints(tid)
    key = (_ints(pid) << 40) | (thread << 16)
    if domain is not None:
        key |= _ints(domain) & 0xFFFF
    return pa.array(key).dictionary_encode()


def _names(column: dict[str, pa.Array], resolver: Resolver) -> pa.Array:
    text = column["text"].cast(pa.string())
    registered = resolver.strings(column["textId"]).cast(pa.string())
    return pc.coalesce(text, registered).dictionary_encode()


def _domain_names(created: pa.Table, resolver: Resolver) -> dict[tuple[int, int], str]:
    """Return (pid, domain id) -> name; ids mean other domains in other processes."""
    if not created.num_rows:
        return {}
    column = {name: created[name].combine_chunks() for name in created.column_names}
    names = _names(column, resolver).cast(pa.string()).to_pylist()
    pids = pid_of(column["globalTid"]).to_pylist()
    ids = column["domainId"].to_pylist()
    return {(p, d & 0xFFFF): name for p, d, name in zip(pids, ids, names, strict=True)}


def _domains_of(pid: pa.Array, domain: pa.Array, names: dict[tuple[int, int], str]) -> pa.Array:
    keys = _packed(pid, 0, domain)
    labels = []
    for key in keys.dictionary.to_pylist():
        process, number = key >> 40, key & 0xFFFF
        unnamed = None if number == _DEFAULT_DOMAIN else f"domain {number}"
        labels.append(names.get((process, number), unnamed))
    return pa.DictionaryArray.from_arrays(keys.indices, pa.array(labels, pa.string()))
