"""Builds the view-model of a report from the views of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.findings import classified, kernel_findings, recommendations, verdict
from analysis.report_facts import (
    device_of,
    gaps_of,
    in_list,
    notice_of,
    provenance_of,
    rows_of,
    summary_of,
    title_of,
    warnings_of,
)
from analysis.runs import task_table
from analysis.views import views
from perfpipe.viewmodel import Column, Kind, Report, Source, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Rows of a table in a report; the rest is said to be cut and can be queried.
ROW_LIMIT = 500

Spec = tuple[tuple[str, str, Kind, str], ...]

_KERNEL_COLUMNS: Spec = (
    ("kernel_name", "Kernel", "text", ""),
    ("kernel_demangled", "Full name", "text", ""),
    ("label", "Configuration", "text", ""),
    ("nvtx_path", "NVTX", "text", ""),
    ("grid", "Grid", "text", "blocks"),
    ("block", "Block", "text", "threads"),
    ("duration_ns", "Duration", "ns", ""),
    ("bound", "Bound", "text", ""),
    ("subclass", "Where", "text", ""),
    ("compute_sol_pct", "Compute SOL", "pct", "%"),
    ("memory_sol_pct", "Memory SOL", "pct", "%"),
    ("dram_sol_pct", "DRAM", "pct", "%"),
    ("l2_sol_pct", "L2", "pct", "%"),
    ("l1_sol_pct", "L1/TEX", "pct", "%"),
    ("achieved_occupancy_pct", "Occupancy", "pct", "%"),
    ("waves", "Waves", "number", "per SM"),
    ("registers", "Registers", "int", "per thread"),
    ("ncu_verdict", "NVIDIA's verdict", "text", ""),
)
_HEADROOM_COLUMNS: Spec = (
    ("name", "Kernel", "text", ""),
    ("label", "Configuration", "text", ""),
    ("grid", "Grid", "text", "blocks"),
    ("block", "Block", "text", "threads"),
    ("instances", "Calls", "int", ""),
    ("total_time_ns", "GPU time", "ns", ""),
    ("time_pct", "Share", "pct", "%"),
    ("max_sol_pct", "Max SOL", "pct", "%"),
    ("headroom_pct", "Headroom", "pct", "% of kernel time"),
)
_STATS: Spec = (
    ("time_pct", "Time", "pct", "%"),
    ("total_time_ns", "Total", "ns", ""),
    ("COUNT", "Calls", "int", ""),
    ("avg_ns", "Mean", "ns", ""),
    ("med_ns", "Median", "ns", ""),
    ("min_ns", "Min", "ns", ""),
    ("max_ns", "Max", "ns", ""),
    ("stddev_ns", "StdDev", "ns", ""),
)
#: What a report is called: the configuration that gave it, else its file.
_LABELS = """
    SELECT
        r.report_id,
        coalesce(
            any_value(t.label ORDER BY t.run_id DESC, t.task_index), any_value(r.source_name)
        ) AS label
    FROM reports AS r
    LEFT JOIN run_tasks AS t ON list_contains(t.reports, r.report_id)
    GROUP BY r.report_id
"""
#: Columns that are shown when the pointer rests on another one.
_HOVER = {"kernel_demangled": "kernel_name"}

#: Columns that only HTML and JSON show.
_DETAIL = frozenset(
    "kernel_demangled nvtx_path grid block dram_sol_pct l2_sol_pct l1_sol_pct waves registers "
    "min_ns max_ns stddev_ns ncu_verdict".split()
)
_SUMMARIES = (
    ("cuda_gpu_kern_sum", "Kernels by name", "Kernel", "name", "instances"),
    ("cuda_gpu_mem_time_sum", "Memory operations", "Operation", "operation", "count"),
    ("cuda_api_sum", "CUDA API calls", "Function", "name", "num_calls"),
)


def build_report(
    con: DuckDBPyConnection, reports: Sequence[str], run: dict[str, Any] | None = None
) -> Report:
    """Build the report of some ingested reports, and of the run that gave them, if any.

    `reports` are ids in the store that `con` is open on; every number is read from its views.
    """
    chosen = tuple(sorted(reports))
    kinds = _kinds(con, chosen)
    launches = classified(con, chosen)
    found = kernel_findings(launches)
    made = []
    if run is not None and run["tasks"]:
        made.append(task_table(run, device_of(con, chosen)))
    if kinds.get("ncu"):
        made.append(_kernel_table(con, chosen))
    if kinds.get("nsys"):
        if kinds.get("ncu"):
            made.append(_headroom_table(con, chosen))
        made += [_summary_table(con, chosen, *spec) for spec in _SUMMARIES]
    return Report(
        title=title_of(con, chosen, run),
        notice=notice_of(run),
        verdict=verdict(launches) or _no_verdict(kinds),
        summary=tuple(summary_of(con, chosen, kinds, run)),
        tables=tuple(table for table in made if table.rows),
        findings=tuple(found[:20]),
        findings_total=len(found),
        recommendations=tuple(recommendations(launches)),
        warnings=tuple(warnings_of(con, chosen)),
        gaps=tuple(gaps_of(con, chosen)),
        provenance=tuple(provenance_of(con, chosen, run)),
    )


def _kinds(con: DuckDBPyConnection, chosen: Sequence[str]) -> dict[str, int]:
    sql = f"SELECT kind, count(*) FROM reports WHERE report_id IN {in_list(chosen)} GROUP BY kind"
    return dict(rows_of(con, sql))


def _columns(spec: Spec, *described_by: str) -> tuple[Column, ...]:
    """Return the columns, each with the meaning that the first of the views gives it."""
    docs = {k: doc for view in reversed(described_by) for k, doc in views()[view].columns.items()}
    return tuple(
        Column(
            name, title, kind, unit, docs.get(name, ""), name not in _DETAIL, _HOVER.get(name, "")
        )
        for name, title, kind, unit in spec
    )


def _table(
    con: DuckDBPyConnection,
    view: str,
    title: str,
    spec: Spec,
    sql: str,
    chosen: Sequence[str],
    *joined: str,
) -> Table:
    rows = rows_of(con, sql)
    return Table(
        title,
        views()[view].doc,
        _columns(spec, view, *joined),
        tuple(rows[:ROW_LIMIT]),
        len(rows),
        Source(view, tuple(chosen)),
    )


def _kernel_table(con: DuckDBPyConnection, chosen: Sequence[str]) -> Table:
    names = ", ".join(name for name, *_ in _KERNEL_COLUMNS)
    sql = f"""
        SELECT {names}
        FROM kernel_sol
        JOIN kernel_bottleneck USING (report_id, launch_id)
        JOIN ({_LABELS}) USING (report_id)
        WHERE report_id IN {in_list(chosen)}
        ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id
    """
    title = "Profiled kernels"
    return _table(con, "kernel_sol", title, _KERNEL_COLUMNS, sql, chosen, "kernel_bottleneck")


def _headroom_table(con: DuckDBPyConnection, chosen: Sequence[str]) -> Table:
    names = ", ".join(name for name, *_ in _HEADROOM_COLUMNS)
    sql = f"""
        SELECT {names}
        FROM kernel_headroom JOIN ({_LABELS}) USING (report_id)
        WHERE report_id IN {in_list(chosen)}
        ORDER BY headroom_ns DESC NULLS LAST, total_time_ns DESC, name, grid, block
    """
    title = "Where optimising pays: timeline joined with profiled kernels"
    return _table(con, "kernel_headroom", title, _HEADROOM_COLUMNS, sql, chosen)


def _summary_table(
    con: DuckDBPyConnection,
    chosen: Sequence[str],
    view: str,
    title: str,
    what: str,
    name: str,
    count: str,
) -> Table:
    statistics: Spec = tuple(
        (count if column == "COUNT" else column, title, kind, unit)
        for column, title, kind, unit in _STATS
    )
    spec: Spec = ((name, what, "text", ""), ("label", "Configuration", "text", ""), *statistics)
    columns = ", ".join(column for column, *_ in spec)
    sql = f"""
        SELECT {columns} FROM {view} JOIN ({_LABELS}) USING (report_id)
        WHERE report_id IN {in_list(chosen)}
        ORDER BY total_time_ns DESC, {name}, report_id
    """
    return _table(con, view, title, spec, sql, chosen)


def _no_verdict(kinds: dict[str, int]) -> str:
    if kinds.get("nsys"):
        return "Timeline only: add an ncu report to tell what bounds the kernels"
    return "No verdict: speed-of-light metrics were not collected (ncu --set basic has them)"
