"""Writes timelines as Chrome trace events (JSON), for ui.perfetto.dev."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

#: The columns of a slice, in the order that `write_trace` expects: a prefix that identifies the
#: timeline, then columns of the view _timeline_slices.
COLUMNS = (
    "source", "process", "row_name", "kind", "name", "start_ns", "dur_ns", "nested", "pid",
    "correlation_id", "api_tid", "api_start_ns", "detail",
)  # fmt: skip

#: Kinds of GPU operations, which run on streams.
_GPU = frozenset({"kernel", "memcpy", "memset", "graph", "um"})

Event = dict[str, Any]
Process = tuple[str, str]


def write_trace(
    slices: Iterable[tuple[Any, ...]], file: TextIO, clocks: Mapping[str, str] | None = None
) -> int:
    """Write slices of COLUMNS, sorted by start, outer ones first; return their number.

    `clocks` states how the times of each source were set; its processes are labeled with that.

    A viewer nests what overlaps on a row, so GPU operations of one stream that overlap (dependent
    launches, graphs) get rows of their own.  They are tied to their calls by flow events, and
    ranges that need not nest become asynchronous ones.  Times stay exact: microseconds with
    three decimals.
    """
    rows = _Rows()
    count = 0
    file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    for values in slices:
        for event in _events(dict(zip(COLUMNS, values, strict=True)), count, rows):
            _put(file, event)
        count += 1
    for event in rows.names(clocks or {}):
        _put(file, event)
    # The format allows no comma after the last event, so something always follows.
    file.write('{"ph":"M","name":"trace_end","pid":0,"tid":0,"ts":0}\n]}\n')
    return count


@dataclass
class _Rows:
    """Numbers processes (source and name) and their rows in the order in which they appear."""

    processes: dict[Process, int] = field(default_factory=dict)
    rows: dict[tuple[Process, str], int] = field(default_factory=dict)
    ends: dict[tuple[Process, str], int] = field(default_factory=dict)

    def free(self, process: Process, row: str, start_ns: int, end_ns: int) -> str:
        """Return the first row of that name on which nothing runs at the start."""
        name, number = row, 1
        while self.ends.get((process, name), start_ns) > start_ns:
            number += 1
            name = f"{row} ({number})"
        self.ends[process, name] = end_ns
        return name

    def place(self, process: Process, row: str) -> Event:
        return {
            "pid": self.processes.setdefault(process, len(self.processes) + 1),
            "tid": self.rows.setdefault((process, row), len(self.rows) + 1),
        }

    def names(self, clocks: Mapping[str, str]) -> Iterable[Event]:
        for (source, name), number in self.processes.items():
            args = {"name": source + name}
            yield {"ph": "M", "name": "process_name", "pid": number, "args": args}
            if clock := clocks.get(source):
                labels = {"labels": f"clock: {clock}"}
                yield {"ph": "M", "name": "process_labels", "pid": number, "args": labels}
            # GPUs stand above the processes that drive them.
            order = {"sort_index": int(name.startswith("Process"))}
            yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": order}
        for process, row in self.rows:
            named = {"ph": "M", "name": "thread_name", "args": {"name": row}}
            yield named | self.place(process, row)


def _events(slice_: dict[str, Any], number: int, rows: _Rows) -> Iterable[Event]:
    process = (slice_["source"], slice_["process"])
    row, start = slice_["row_name"], slice_["start_ns"]
    if slice_["kind"] in _GPU:
        row = rows.free(process, row, start, start + slice_["dur_ns"])
    place = rows.place(process, row)
    event = place | {
        "name": slice_["name"] or "(no name)",
        "cat": slice_["kind"],
        "ts": start,
    }
    told = {"correlation": slice_["correlation_id"], "detail": slice_["detail"] or None}
    args = {key: value for key, value in told.items() if value is not None}
    if args:
        event["args"] = args
    if slice_["kind"] == "mark":
        yield event | {"ph": "i", "s": "t"}
    elif slice_["nested"]:
        yield event | {"ph": "X", "dur": slice_["dur_ns"]}
    else:
        yield event | {"ph": "b", "id": number}
        yield event | {"ph": "e", "id": number, "ts": start + slice_["dur_ns"]}
    if slice_["api_start_ns"] is not None:
        calling = (slice_["source"], f"Process {slice_['pid']}")
        caller = rows.place(calling, f"Thread {slice_['api_tid']} CUDA")
        flow = {"name": "launch", "cat": "launch", "id": number}
        yield caller | flow | {"ph": "s", "ts": slice_["api_start_ns"]}
        yield place | flow | {"ph": "f", "bp": "e", "ts": start}


def _put(file: TextIO, event: Event) -> None:
    times = "".join(
        f',"{key}":{_microseconds(event.pop(key))}' for key in ("ts", "dur") if key in event
    )
    body = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    file.write(f"{body[:-1]}{times}}},\n")


def _microseconds(ns: int) -> str:
    """Return nanoseconds as microseconds, digit by digit.

    >>> _microseconds(-1500), _microseconds(2**53 + 1)
    ('-1.500', '9007199254740.993')
    """
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"
