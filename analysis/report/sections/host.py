"""Code that the host executed while the GPU was idle."""

from __future__ import annotations

from perfpipe.analysis.report.declare import (
    GPU,
    Col,
    GpuTable,
    Missing,
    SectionSpec,
)
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.units import counted, format_ns
from perfpipe.viewmodel import Table

#: Lines and functions of a table, and rows of a tree.
_LINES, _FUNCTIONS, _ROWS = 12, 50, 2_000

_PLACE = "short_source(file) || coalesce(':' || line, '')"
_INTERVAL = Col(
    "interval",
    "95 % interval",
    sql="printf('%.1f\u2013%.1f', low_pct, high_pct)",
    doc="95 % confidence interval of the share",
)


def _recorded(scope: Scope, table: Table) -> str:
    """Return how the stacks were recorded, and how much of the idle time they explain."""
    if not table.rows:
        return ""
    chosen = f"report_id IN {in_list(scope.reports)}"
    recorded = rows_of(
        scope.con,
        f"""
        SELECT source, count(DISTINCT (report_id, pid, tid)), min(period_ns), max(period_ns)
        FROM host_coverage WHERE {chosen} GROUP BY source ORDER BY sum(samples) DESC, source
        """,
    )
    ((samples, missed_pct),) = rows_of(
        scope.con,
        f"""
        SELECT sum(samples), 100 * sum(if(frame = 'not sampled', time_ns, 0)) / sum(time_ns)
        FROM idle_tree WHERE {chosen} AND depth = 0
        """,
    )
    return (
        f"Stacks are from {', '.join(_source(*row) for row in recorded)}. "
        f"{counted(int(samples), 'sample')} of them are from idle time; {missed_pct:.1f} % of the "
        "idle time was not sampled."
    )


def _source(source: str, threads: int, shortest: int | None, longest: int | None) -> str:
    """Return a source of stacks with its threads and the time between samples."""
    periods = dict.fromkeys(format_ns(one) for one in (shortest, longest) if one is not None)
    each = f", every {' to '.join(periods)}" if periods else ""
    return f"{source} ({counted(threads, 'thread')}{each})"


IDLE_TREE = GpuTable(
    "idle_tree",
    "Idle time by stack",
    (
        *GPU,
        Col("frame", "Function"),
        Col("place", "File and line", sql=_PLACE, doc="source file; line, if there is only one"),
        Col("file", "File", detail=True, hover_of="place"),
        Col("depth", "Depth", "int", detail=True),
        Col("kind", "Owner"),
        Col("via", "Via"),
        Col("time_ns", "Idle time", "ns"),
        Col("self_ns", "Self time", "ns"),
        Col("share_pct", "Share", "pct", "% of idle time"),
        Col("samples", "Samples", "int"),
    ),
    order="tree_order",
    told=_recorded,
    limit=_ROWS,
    figure="idle_stacks",
    tree="depth",
    folded=True,
)

#: How much idle time code takes, and how well this is known.
_TIMES = (
    Col("cause", "Cause"),
    Col("self_ns", "Self time", "ns"),
    Col("step_ns", "Self time", "ns", "per step"),
    Col("share_pct", "Share", "pct", "% of idle time"),
    _INTERVAL,
    Col("samples", "Samples", "int"),
)

#: A function, and whether a worker process executes it.
_FUNCTION = "function || coalesce(' (' || via || ')', '')"

IDLE_LINES = GpuTable(
    "idle_hotspots",
    "Idle time by line of the program",
    (
        *GPU,
        Col("place", "Line", sql=f"coalesce({_PLACE}, reason)", doc="line, or why there is none"),
        Col("file", "File", detail=True, hover_of="place"),
        Col("function", "Function", sql=_FUNCTION, doc="function; in a worker process or not"),
        Col("library_function", "Calls"),
        *_TIMES,
    ),
    order="rank",
    where=f"level = 'user' AND rank <= {_LINES}",
    told=lambda *_: f"The table has the {_LINES} lines with the most idle time.",
    key="{place} {share_pct} of the idle time",
)

IDLE_FUNCTIONS = GpuTable(
    "idle_hotspots",
    "Idle time by function of libraries",
    (
        *GPU,
        Col("function", "Function", sql=_FUNCTION, doc="function; in a worker process or not"),
        Col("place", "File", sql="short_source(file)", doc="source file"),
        Col("file", "File", detail=True, hover_of="place"),
        Col("kind", "Owner"),
        *_TIMES,
    ),
    order="rank",
    where=f"level = 'function' AND kind IN ('library', 'python') AND rank <= {_FUNCTIONS}",
    told=lambda *_: "The table has functions of libraries, and of Python itself.",
    folded=True,
    key="{function} {share_pct} of the idle time",
)

HOST_COVERAGE = GpuTable(
    "host_coverage",
    "Sampled threads",
    (
        *GPU,
        Col("pid", "Process", "int"),
        Col("tid", "Thread", "int"),
        Col("source", "Source"),
        Col("samples", "Samples", "int"),
        Col("period_ns", "Time between samples", "ns"),
        Col("covered_pct", "Analyzed windows", "pct", "%"),
        Col("idle_samples", "Samples in idle time", "int"),
        Col("sampled_pct", "Samples in idle time", "pct", "%"),
        Col("idle_pct", "Idle time", "pct", "%"),
        Col("not_sampled_ns", "Idle time not sampled", "ns", detail=True),
    ),
    order="pid, samples DESC, tid, source",
    folded=True,
)

SECTION = SectionSpec(
    "host",
    "Host",
    Missing(
        "no stacks of the host",
        perfpipe="perfpipe run samples them by default",
        nsys="record them with nsys profile --python-sampling=true, and export them with nsys "
        "export --include-blobs=true",
        torch="record them with torch.profiler and with_stack=True",
    ),
    (
        IDLE_TREE,
        IDLE_LINES,
        IDLE_FUNCTIONS,
        HOST_COVERAGE,
    ),
)
