"""The tables of critical paths, and of what shorter parts of the steps would save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import create_table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from perfpipe.analysis.critical.parts import Part
    from perfpipe.analysis.critical.path import Segment
    from perfpipe.analysis.critical.reading import Step
    from perfpipe.ingest.arrays import Ints

#: Views that the tables are made of.
NEEDS = frozenset(("_path_steps", "_path_operations", "_path_calls", "_job_ranks"))

#: By how much parts are shorter in the table of gains, as shares of their time.
_SHARES = (0.1, 0.5, 1.0)

#: Categories of the path that have a row in the table of gains for each name, and how many of them.
_NAMED, _MOST_NAMES = ("compute", "communication", "transfer"), 12

#: Ranks of a job whose host work has rows.
_MOST_RANKS = 4

_SEGMENTS = (
    ("job", "VARCHAR", ""),
    ("role", "VARCHAR", ""),
    ("place", "BIGINT", ""),
    ("start_ns", "BIGINT", ""),
    ("dur_ns", "BIGINT", ""),
    ("category", "VARCHAR", ""),
    ("name", "VARCHAR", ""),
    ("report_id", "VARCHAR", ""),
    ("pid", "BIGINT", ""),
    ("device", "BIGINT", ""),
    ("tid", "BIGINT", ""),
    ("op_id", "BIGINT", ""),
    ("next_op_id", "BIGINT", ""),
    ("waits_ns", "BIGINT", ""),
)

_GAINS = (
    ("job", "VARCHAR", ""),
    ("category", "VARCHAR", ""),
    ("name", "VARCHAR", ""),
    ("rank", "BIGINT", ""),
    ("steps", "BIGINT", ""),
    ("step_ns", "DOUBLE", ""),
    ("tenth_ns", "DOUBLE", ""),
    ("half_ns", "DOUBLE", ""),
    ("none_ns", "DOUBLE", ""),
)


def make_path_segments(con: DuckDBPyConnection) -> None:
    """Create the private table of segments of critical paths.

    `report_id`, `pid`, `device` and `tid` say where the segment is.  `op_id` is its operation, and
    `next_op_id` the first operation of the call that follows it.  A collective that all ranks have
    begun is nowhere.  `waits_ns` is how long the GPU of the step waits in a collective meanwhile.
    """
    create_table(con, "_path_segments", _SEGMENTS, [*_segments(con)] if _some(con) else [])


def make_path_gains(con: DuckDBPyConnection) -> None:
    """Create the private table of replayed steps with shorter parts."""
    create_table(con, "_path_gains", _GAINS, [*_gains(con)] if _some(con) else [])


def _some(con: DuckDBPyConnection) -> bool:
    return con.execute("SELECT 1 FROM _path_steps LIMIT 1").fetchone() is not None


def paths_of(step: Step) -> list[Segment]:
    """Return the critical path of a step, last segment first."""
    from perfpipe.analysis.critical.path import categories_of, path_of

    categories = categories_of(step.graph, int(thresholds()["timeline.device_wait_ns"]))
    return path_of(step.graph, categories, step.gpu, step.bounds[0], step.bounds[-1])


def _segments(con: DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    from perfpipe.analysis.critical.reading import steps_in

    for step in steps_in(con, ("median", "slowest")):
        where = _Where(step)
        for place, segment in enumerate(reversed(paths_of(step)), start=1):
            yield (
                step.job,
                step.role,
                place,
                segment.start - step.bounds[0],
                segment.end - segment.start,
                segment.category,
                *where.columns(segment),
                where.waits(segment),
            )


class _Where:
    """Where the segments of a step are: columns of the table."""

    def __init__(self, step: Step) -> None:
        from perfpipe.analysis.critical.events import NONE

        self._step, self._none = step, NONE
        ops = step.graph.operations
        self._first: dict[int, int] = {}
        for operation, call in enumerate(ops.call.tolist()):
            if call != NONE:
                self._first.setdefault(call, operation)
        met, own = step.graph.met, ops.gpu == step.gpu
        waiting = own & (met > ops.start + ops.slack)
        self._begin, self._until = merged(ops.start[waiting], met[waiting])

    def waits(self, segment: Segment) -> int:
        """Return how long the GPU of the step waits for another rank during a segment, ns."""
        low = int(np.searchsorted(self._until, segment.start, side="right"))
        high = int(np.searchsorted(self._begin, segment.end))
        begin = np.maximum(self._begin[low:high], segment.start)
        return int((np.minimum(self._until[low:high], segment.end) - begin).sum())

    def columns(self, segment: Segment) -> tuple[Any, ...]:
        """Return name, report_id, pid, device, tid, op_id and next_op_id."""
        step, count = self._step, len(self._step.graph.operations)
        ops, calls = step.graph.operations, step.graph.calls
        next_ = segment.before
        following = next_ if next_ < count else self._first.get(next_ - count, self._none)
        next_id = None if following == self._none else int(step.operation_ids[following])
        if segment.operation != self._none:
            own = segment.operation
            report, device = step.gpus[int(ops.gpu[own])]
            pid = step.processes[int(ops.process[own])][1]
            if step.graph.met[own] != self._none:
                device, pid = self._none, self._none
            return (
                ops.name[own], report, _known(pid), _known(device), None,
                int(step.operation_ids[own]), next_id,
            )  # fmt: skip
        call = segment.call if segment.call != self._none else max(next_ - count, self._none)
        if call != self._none:
            report, pid, tid = step.threads[int(calls.thread[call])]
            named = segment.call != self._none or segment.category == "sync"
            name = calls.name[call] if named else None
            return (name, report, _known(pid), None, _known(tid), None, next_id)
        if next_ != self._none:
            report, device = step.gpus[int(ops.gpu[next_])]
            pid = step.processes[int(ops.process[next_])][1]
            return (None, report, _known(pid), _known(device), None, None, next_id)
        report, device = step.gpus[step.gpu]
        return (None, report, None, _known(device), None, None, None)


def merged(begin: Ints, until: Ints) -> tuple[Ints, Ints]:
    """Return the union of some intervals, as intervals in order that do not meet."""
    if not len(begin):
        return begin, until
    order = np.argsort(begin, kind="stable")
    begin, until = begin[order], np.maximum.accumulate(until[order])
    first = np.ones(len(begin), bool)
    first[1:] = begin[1:] > until[:-1]
    last = np.append(first[1:], True)
    return begin[first], until[last]


def _known(value: int) -> int | None:
    return None if value == -1 else value


def _gains(con: DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    from perfpipe.analysis.critical.parts import Edges

    ranks = ranks_of(con)
    for step in replayed_steps(con):
        edges = Edges(step, ranks)
        parts = _parts(step, ranks)
        if not parts:
            continue
        found = edges.shorter([[(part, share)] for part in parts for share in _SHARES])
        if found is None:
            continue
        new = iter(found.new_ns)
        for part in parts:
            times = [next(new) for _ in _SHARES]
            # Only the later half of the steps counts: what ran ahead before may hide a little.
            times = [max(times[at:]) for at in range(len(times))]
            yield (
                step.job, part.category, part.name, part.rank, found.steps, found.step_ns, *times,
            )  # fmt: skip


def ranks_of(con: DuckDBPyConnection) -> dict[tuple[str, int], int]:
    """Return the rank of each report and process."""
    rows = con.execute("SELECT DISTINCT report_id, pid, rank FROM _job_ranks").fetchall()
    return {(report, pid): rank for report, pid, rank in rows}


def replayed_steps(con: DuckDBPyConnection) -> Iterator[Step]:
    """Yield what is replayed for each job: several steps, or the typical one if it is alone."""
    from perfpipe.analysis.critical.reading import steps_in

    several = {step.job: step for step in steps_in(con, ("several",))}
    jobs = con.execute("SELECT DISTINCT job FROM _path_steps ORDER BY job").fetchall()
    if any(job not in several for (job,) in jobs):
        for step in steps_in(con, ("median",)):
            several.setdefault(step.job, step)
    for (job,) in jobs:
        if job in several:
            yield several[job]


def _parts(step: Step, ranks: dict[tuple[str, int], int]) -> list[Part]:
    """Return the parts on the critical path of the replayed steps, by their time on it."""
    from perfpipe.analysis.critical.events import NONE
    from perfpipe.analysis.critical.parts import HOST_WORK, Part

    ops, calls = step.graph.operations, step.graph.calls
    categories: Counter[str] = Counter()
    names: Counter[tuple[str, str]] = Counter()
    hosts: Counter[int] = Counter()
    for segment in paths_of(step):
        ns = segment.end - segment.start
        categories[segment.category] += ns
        if segment.operation != NONE and segment.category in _NAMED:
            names[segment.category, ops.name[segment.operation]] += ns
        call = segment.call if segment.call != NONE else segment.before - len(ops)
        if segment.category in ("host", "launch_api", "cuda_call") and call >= 0:
            report, pid, _ = step.threads[int(calls.thread[call])]
            if (report, pid) in ranks:
                hosts[ranks[report, pid]] += ns
    return [
        *(Part(category) for category, _ in categories.most_common() if category != "unattributed"),
        *(Part(category, name) for (category, name), _ in names.most_common(_MOST_NAMES)),
        *(Part(HOST_WORK, None, rank) for rank, _ in hosts.most_common(_MOST_RANKS)),
        *([Part(HOST_WORK)] if {"host", "launch_api"} & categories.keys() else []),
    ]
