"""Stacks of processes that nsys does not sample, in tables that perfpipe adds to an nsys export.

nsys samples Python processes that were started by exec.  `perfpipe run` samples processes that were
forked, such as the workers of a DataLoader, with py-spy.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.ingest.frames import Frame, Stack
from perfpipe.ingest.host_stacks import HostStacks, Samples
from perfpipe.ingest.nsys.export import Export

SOURCE = "py-spy"

#: The added tables: intervals in which a thread had a stack, and the frames of stacks.
SAMPLES, FRAMES = "PERFPIPE_HOST_SAMPLES", "PERFPIPE_HOST_FRAMES"

_SAMPLE_COLUMNS = ("start", "end", "pid", "tid", "stackId")
_FRAME_COLUMNS = ("stackId", "depth", "function", "file", "line")

_SCHEMA = f"""
CREATE TABLE {SAMPLES} (
    start INTEGER NOT NULL, "end" INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL,
    stackId INTEGER NOT NULL
);
CREATE TABLE {FRAMES} (
    stackId INTEGER NOT NULL, depth INTEGER NOT NULL, function TEXT NOT NULL, file TEXT,
    line INTEGER, PRIMARY KEY (stackId, depth)
);
"""

_SESSION_START = "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME WHERE utcEpochNs > 0"


@dataclass
class ForkedStacks:
    """Intervals of threads with their stacks, as columns; times are those of CLOCK_REALTIME, ns."""

    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    pid: array[int] = field(default_factory=lambda: array("q"))
    tid: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("q"))
    stacks: dict[Stack, int] = field(default_factory=dict)

    def add(self, start_ns: int, end_ns: int, pid: int, tid: int, stack: Stack) -> None:
        """Add an interval in which a thread had a stack."""
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.pid.append(pid)
        self.tid.append(tid)
        self.stack.append(self.stacks.setdefault(stack, len(self.stacks)))

    def __len__(self) -> int:
        return len(self.start_ns)


def add_to_export(stacks: ForkedStacks, database: Path) -> bool:
    """Add the tables to an export to SQLite; return False if it does not say when it began.

    The times of an export count from utcEpochNs.
    """
    with closing(sqlite3.connect(database)) as con:
        try:
            began = con.execute(_SESSION_START).fetchone()
        except sqlite3.OperationalError:
            began = None
        if began is None:
            return False
        con.executescript(_SCHEMA)
        shift = int(began[0])
        con.executemany(
            f"INSERT INTO {SAMPLES} VALUES (?, ?, ?, ?, ?)",
            (
                (start - shift, end - shift, *rest)
                for start, end, *rest in zip(
                    *(stacks.start_ns, stacks.end_ns, stacks.pid, stacks.tid, stacks.stack),
                    strict=True,
                )
            ),
        )
        con.executemany(
            f"INSERT INTO {FRAMES} VALUES (?, ?, ?, ?, ?)",
            (
                (number, depth, frame.function, frame.file, frame.line)
                for stack, number in stacks.stacks.items()
                for depth, frame in enumerate(stack)
            ),
        )
        con.commit()
    return True


def read_forked(export: Export, into: HostStacks) -> None:
    """Add the stacks of these tables, if an export has them."""
    if not export.has_rows(SAMPLES):
        return
    stacks: dict[int, list[Frame]] = {}
    for number, _, function, file, line in _rows(export, FRAMES, _FRAME_COLUMNS, 2):
        stacks.setdefault(number, []).append(Frame(function or "?", file, line))
    numbers = {number: into.number(tuple(frames)) for number, frames in stacks.items()}
    samples = Samples(SOURCE)
    for start, end, pid, tid, number in _rows(export, SAMPLES, _SAMPLE_COLUMNS, 1):
        if number in numbers and end > start:
            samples.trace(start, end, pid, tid, numbers[number])
    into.samples.append(samples)


def _rows(
    export: Export, table: str, columns: tuple[str, ...], order: int
) -> Iterable[tuple[Any, ...]]:
    rows = export.read(table, columns, columns[:order])
    return zip(*(rows[column].to_pylist() for column in columns), strict=True)
