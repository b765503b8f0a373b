"""The tables of critical paths, and of what shorter parts of the steps would save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import create_table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from perfpipe.analysis.critical.parts import Part
    from perfpipe.analysis.critical.path import Segment
    from perfpipe.analysis.critical.reading import Step

#: Views that the tables are made of.
NEEDS = frozenset(("_path_steps", "_path_operations", "_path_calls", "_job_ranks"))

#: By how much parts are shorter in the table of gains, as shares of their time.
_SHARES = (0.1, 0.5, 1.0)

#: Categories of the path that have a row in the table of gains for each name, and how many of them.
_NAMED, _MOST_NAMES = ("compute", "communication", "transfer"), 12

#: Ranks of a job whose host work has rows.
_MOST_RANKS = 4

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
    """Create the private table of segments of critical paths; see `segments.columns`."""
    import pyarrow as pa

    from perfpipe.analysis.critical.reading import steps_in
    from perfpipe.analysis.critical.segments import SCHEMA, columns

    parts = [SCHEMA.empty_table()]
    if _some(con):
        parts += [columns(step, paths_of(step)) for step in steps_in(con, ("median", "slowest"))]
    con.from_arrow(pa.concat_tables(parts)).create("_path_segments")


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
