"""Builds the view-model of a report from the views of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.findings import kernel_findings, recommendations, verdict
from analysis.runs import task_table
from analysis.views import thresholds, views
from perfpipe.model import tables as stored_tables
from perfpipe.query import quote
from perfpipe.units import format_ns
from perfpipe.viewmodel import Column, Kind, Report, Source, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Rows of a table in a report; the rest is said to be cut and can be queried.
ROW_LIMIT = 500

Spec = tuple[tuple[str, str, Kind, str], ...]

_KERNEL_COLUMNS: Spec = (
    ("kernel_name", "Kernel", "text", ""),
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
#: Columns that only HTML and JSON show.
_DETAIL = frozenset(
    "nvtx_path grid block dram_sol_pct l2_sol_pct l1_sol_pct waves registers min_ns max_ns "
    "stddev_ns ncu_verdict".split()
)
_SUMMARIES = (
    ("cuda_gpu_kern_sum", "Kernels by name", "name", "instances"),
    ("cuda_gpu_mem_time_sum", "Memory operations", "operation", "count"),
    ("cuda_api_sum", "CUDA API calls", "name", "num_calls"),
)


def build_report(
    con: DuckDBPyConnection, reports: Sequence[str], run: dict[str, Any] | None = None
) -> Report:
    """Build the report of some ingested reports, and of the run that gave them, if any.

    `reports` are ids in the store that `con` is open on; every number is read from its views.
    """
    chosen = tuple(sorted(reports))
    kinds = _kinds(con, chosen)
    found = kernel_findings(con, chosen)
    made = []
    if run is not None and run["tasks"]:
        made.append(task_table(run, _device(con, chosen)))
    if kinds.get("ncu"):
        made.append(_kernel_table(con, chosen))
    if kinds.get("nsys"):
        if kinds.get("ncu"):
            made.append(_headroom_table(con, chosen))
        made += [_summary_table(con, chosen, *spec) for spec in _SUMMARIES]
    return Report(
        title=_title(con, chosen, run),
        notice=_notice(run),
        verdict=verdict(con, chosen) or _no_verdict(kinds),
        summary=tuple(_summary(con, chosen, kinds, run)),
        tables=tuple(table for table in made if table.rows),
        findings=tuple(found[:20]),
        findings_total=len(found),
        recommendations=tuple(recommendations(con, chosen)),
        warnings=tuple(_warnings(con, chosen)),
        gaps=tuple(_gaps(con, chosen)),
        provenance=tuple(_provenance(con, chosen, run)),
    )


def in_list(reports: Sequence[str]) -> str:
    """Return a SQL list of report ids."""
    return f"({', '.join(quote(report) for report in reports) or 'NULL'})"


def _rows(con: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return con.execute(sql).fetchall()


def _kinds(con: DuckDBPyConnection, chosen: Sequence[str]) -> dict[str, int]:
    sql = f"SELECT kind, count(*) FROM reports WHERE report_id IN {in_list(chosen)} GROUP BY kind"
    return dict(_rows(con, sql))


def _columns(view: str, spec: Spec) -> tuple[Column, ...]:
    docs = dict(views()[view].columns) if view in views() else {}
    return tuple(
        Column(name, title, kind, unit, docs.get(name, ""), name not in _DETAIL)
        for name, title, kind, unit in spec
    )


def _table(
    con: DuckDBPyConnection, view: str, title: str, spec: Spec, sql: str, chosen: Sequence[str]
) -> Table:
    rows = _rows(con, sql)
    return Table(
        title,
        views()[view].doc,
        _columns(view, spec),
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
    table = _table(con, "kernel_sol", "Profiled kernels", _KERNEL_COLUMNS, sql, chosen)
    docs = views()["kernel_bottleneck"].columns
    columns = tuple(
        column if column.doc else Column(**{**vars(column), "doc": docs.get(column.name, "")})
        for column in table.columns
    )
    return Table(**{**vars(table), "columns": columns})


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
    con: DuckDBPyConnection, chosen: Sequence[str], view: str, title: str, name: str, count: str
) -> Table:
    spec: Spec = (
        (name, title, "text", ""),
        *((c if c != "COUNT" else count, *r) for c, *r in _STATS),
    )  # type: ignore[assignment]
    columns = ", ".join(column for column, *_ in spec)
    sql = f"""
        SELECT {columns} FROM {view} WHERE report_id IN {in_list(chosen)}
        ORDER BY total_time_ns DESC, {name}, report_id
    """
    return _table(con, view, title, spec, sql, chosen)


def _title(con: DuckDBPyConnection, chosen: Sequence[str], run: dict[str, Any] | None) -> str:
    if run is not None:
        return str(run["workload"])
    sql = f"SELECT source_name FROM reports WHERE report_id IN {in_list(chosen)} ORDER BY 1"
    names = [name for (name,) in _rows(con, sql)]
    return names[0] if len(names) == 1 else f"{len(names)} reports"


def _notice(run: dict[str, Any] | None) -> str | None:
    recording = run and run.get("recording")
    if not recording:
        return None
    return (
        f"Replayed from a recording: captured on {recording['gpu']} on {recording['captured_at']}. "
        "Nothing was measured on this machine."
    )


def _no_verdict(kinds: dict[str, int]) -> str:
    if kinds.get("nsys"):
        return "Timeline only: add an ncu report to tell what bounds the kernels"
    return "No verdict: speed-of-light metrics were not collected (ncu --set basic has them)"


def _device(con: DuckDBPyConnection, chosen: Sequence[str]) -> tuple[str | None, int | None]:
    sql = f"""
        SELECT gpu, max(sm_count) FROM reports
        WHERE report_id IN {in_list(chosen)} AND gpu IS NOT NULL
        GROUP BY gpu ORDER BY count(*) DESC, gpu LIMIT 1
    """
    rows = _rows(con, sql)
    return rows[0] if rows else (None, None)


def _summary(
    con: DuckDBPyConnection,
    chosen: Sequence[str],
    kinds: dict[str, int],
    run: dict[str, Any] | None,
) -> list[tuple[str, str]]:
    ids = in_list(chosen)
    gpu, sms = _device(con, chosen)
    facts = [("GPU", f"{gpu}" + (f", {sms} SMs" if sms else ""))] if gpu else []
    if run is not None:
        done = sum(task["status"] == "done" for task in run["tasks"])
        facts.append(("Configurations", f"{done} of {len(run['tasks'])} done"))
    facts.append(("Reports", ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))))
    if kinds.get("ncu"):
        count, time, agree, judged = _rows(
            con,
            f"""
            SELECT count(*), sum(duration_ns), count(*) FILTER (WHERE agrees_with_ncu),
                count(*) FILTER (WHERE agrees_with_ncu IS NOT NULL)
            FROM ncu_launches JOIN kernel_bottleneck USING (report_id, launch_id)
            WHERE report_id IN {ids}
            """,
        )[0]
        facts.append(("Profiled launches", f"{count:,}" + (f", {format_ns(time)}" if time else "")))
        if judged:
            facts.append(("Verdicts equal to NVIDIA's", f"{agree:,} of {judged:,}"))
    if kinds.get("nsys"):
        count, time = _rows(
            con,
            f"SELECT count(*), sum(dur_ns) FROM nsys_kernels WHERE report_id IN {ids}",
        )[0]
        facts.append(
            (
                "Kernels on the timeline",
                f"{count:,}" + (f", {format_ns(time)} in sum" if time else ""),
            )
        )
    return facts


def _warnings(con: DuckDBPyConnection, chosen: Sequence[str]) -> list[str]:
    sql = f"""
        SELECT warning, count(*), any_value(source_name ORDER BY source_name)
        FROM (
            SELECT source_name, unnest(warnings) AS warning
            FROM reports WHERE report_id IN {in_list(chosen)}
        )
        GROUP BY warning ORDER BY 2 DESC, 1
    """
    return [
        f"{warning} ({name}{f' and {count - 1} more' if count > 1 else ''})"
        for warning, count, name in _rows(con, sql)
    ]


def _gaps(con: DuckDBPyConnection, chosen: Sequence[str]) -> list[str]:
    """Return what was not collected, whole tables first; a gap of one format only is left out."""
    sql = f"""
        SELECT table_name, column_name, reason, count(*)
        FROM collection_gaps WHERE report_id IN {in_list(chosen)}
        GROUP BY table_name, column_name, reason
        ORDER BY column_name != '', table_name, column_name, reason
    """
    known = stored_tables()
    lines = []
    for table, column, reason, count in _rows(con, sql):
        what = (
            f"{table}.{column}"
            if column
            else f"{table} ({known[table].doc.split(',')[0].rstrip('.')})"
        )
        lines.append(f"{what}: {reason}" + (f" ({count} reports)" if count > 1 else ""))
    return lines


def _provenance(
    con: DuckDBPyConnection, chosen: Sequence[str], run: dict[str, Any] | None
) -> list[tuple[str, str]]:
    facts = []
    if run is not None:
        facts += [("Run", str(run["run_id"])), ("Collector", str(run["collector"]))]
        recording = run.get("recording")
        if recording:
            tools = ", ".join(f"{name} {version}" for name, version in recording["tools"].items())
            facts.append(("Recording", f"{recording['gpu']}, {recording['captured_at']}, {tools}"))
    facts.append(("Rules", f"thresholds version {_thresholds_version()}"))
    sql = f"""
        SELECT report_id, kind, format, source_name, tool_version, captured_at, command, sha256
        FROM reports WHERE report_id IN {in_list(chosen)} ORDER BY source_name, report_id
    """
    for report_id, kind, form, name, version, captured, command, sha256 in _rows(con, sql):
        parts = [
            f"{kind} {version or ''}".strip(),
            form,
            captured,
            command,
            f"sha256 {sha256[:16]}…",
        ]
        facts.append((f"{name} ({report_id})", "; ".join(p for p in parts if p)))
    return facts


def _thresholds_version() -> str:
    return f"{thresholds()['version']:g}"
