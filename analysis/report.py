"""Builds the view-model of a report from the views of a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.comparison import Comparison
from analysis.findings import classified, kernel_findings, recommendations, verdict
from analysis.history import history_of_run
from analysis.kernel_tables import DETAIL, KERNELS, TABLES, KernelTable, Spec, views_used
from analysis.report_facts import (
    device_of,
    gaps_of,
    in_list,
    no_verdict,
    notes_of,
    nothing_of,
    notice_of,
    provenance_of,
    rows_of,
    summary_of,
    title_of,
    warnings_of,
)
from analysis.runs import agreement_table, reach, size_table, task_table
from analysis.search_story import story
from analysis.sections import sections
from analysis.timeline import (
    next_step,
    timeline_findings,
    timeline_recommendations,
    timeline_verdict,
)
from analysis.timeline_tables import (
    HEADROOM,
    NVTX_TABLES,
    SUMMARIES,
    TIMELINE_TABLES,
    TimelineTable,
)
from analysis.tuning_tables import tuning_tables
from analysis.views import views
from perfpipe.runrecord import RunRecord
from perfpipe.viewmodel import Column, Fact, Report, Source, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Rows of the tables of kernels, and of all others; the rest is said to be cut and can be queried.
ROW_LIMIT, DETAIL_LIMIT = 500, 200

#: Views whose tables list the kernels.
_LISTS = ("kernel_sol", "kernel_headroom", "cuda_gpu_kern_sum")

#: Sentences of a search that stand in the verdict; the others are facts of the summary.
_TOLD = 3

#: Columns that are shown when the pointer rests on another one.
_HOVER = {
    "kernel_demangled": "kernel_name",
    "explanation": "bound",
    "message": "title",
    "note": "level",
}

#: Columns that only HTML and JSON show.
_DETAIL = DETAIL | {"min_ns", "max_ns", "stddev_ns", "profiler_overhead_pct", "edge_pct"}

#: Views that a report reads, named in one text.
VIEWS_USED = " ".join(
    (
        views_used((KERNELS, *TABLES)),
        "_labels kernel_findings kernel_bottleneck kernel_headroom kernel_gaps run_efficiency",
        "run_agreement timeline_bottleneck timeline_findings",
        *(table.view for table in (*TIMELINE_TABLES, *SUMMARIES, *NVTX_TABLES)),
    )
)


def build_report(
    con: DuckDBPyConnection,
    reports: Sequence[str],
    run: RunRecord | None = None,
    compared: Comparison | None = None,
    title: str | None = None,
) -> Report:
    """Build the report of some ingested reports, and of the run that gave them, if any.

    `reports` are ids in the store that `con` is open on; every number is read from its views.
    With `compared` the report tells how they differ from a baseline; `title` is for several runs.
    """
    chosen = tuple(sorted(reports))
    kinds = _kinds(con, chosen)
    timeline = kinds.get("nsys", 0) + kinds.get("torch", 0)
    launches = classified(con, chosen)
    found = timeline_findings(con, chosen) + kernel_findings(launches)
    statements = [
        Fact("", text, Source(view, chosen))
        for text, view in (
            (timeline_verdict(con, chosen), "timeline_bottleneck"),
            (verdict(launches), "kernel_bottleneck"),
        )
        if text
    ]
    advice = timeline_recommendations(con, chosen) + recommendations(con, chosen)
    made: list[Table] = []
    more: list[Fact] = []
    if compared is not None:
        made += compared.tables
        statements = [*compared.statements, *statements]
        more += compared.sides
    if run is not None and run.tasks:
        made.append(task_table(run, device_of(con, chosen)))
        made.append(size_table(con, run.run_id))
        made.append(agreement_table(con, run.run_id))
        history = history_of_run(run)
        if history.trials:
            source = Source("tuning", (run.run_id,))
            made += tuning_tables(history, source)
            told = story(history)
            statements = [*(Fact("", text, source) for text in told[:_TOLD]), *statements]
            if told[_TOLD:]:
                more.append(Fact("The search", " ".join(told[_TOLD:]), source))
        elif text := reach(con, run.run_id):
            source = Source("run_efficiency", (run.run_id,))
            statements = [Fact("", text, source), *statements]
    warnings = warnings_of(con, chosen)
    if timeline and not kinds.get("ncu"):
        more += notes_of(con, chosen, warnings)
        if text := next_step(con, chosen):
            more.append(Fact("Next", text, Source("timeline_bottleneck", chosen)))
    if timeline:
        made += [_view_table(con, chosen, table) for table in TIMELINE_TABLES]
    if kinds.get("ncu") and timeline:
        made.append(_view_table(con, chosen, HEADROOM))
    if kinds.get("ncu"):
        made += [_view_table(con, chosen, table) for table in (KERNELS, *TABLES)]
    if timeline:
        made += [_view_table(con, chosen, table) for table in (*SUMMARIES, *NVTX_TABLES)]
    return Report(
        title=title or title_of(con, chosen, run),
        notice=notice_of(run),
        statements=tuple(statements) or (Fact("", no_verdict(kinds), Source("reports", chosen)),),
        summary=tuple(summary_of(con, chosen, kinds, run) + more),
        sections=sections(made),
        findings=tuple(found[:20]),
        findings_total=len(found),
        nothing_found=nothing_of(kinds) if not found else "",
        recommendations=tuple(replace(item, priority=n + 1) for n, item in enumerate(advice)),
        warnings=tuple(warnings),
        gaps=tuple(gaps_of(con, chosen)),
        provenance=tuple(provenance_of(con, chosen, run)),
    )


def _kinds(con: DuckDBPyConnection, chosen: Sequence[str]) -> dict[str, int]:
    sql = f"SELECT kind, count(*) FROM reports WHERE report_id IN {in_list(chosen)} GROUP BY kind"
    return dict(rows_of(con, sql))


def _columns(spec: Spec, *described_by: str) -> tuple[Column, ...]:
    """Return the columns, each with the meaning that the first of the views gives it."""
    docs = {k: doc for view in reversed(described_by) for k, doc in views()[view].columns.items()}
    made = []
    for expression, title, kind, unit in spec:
        name = expression.split(" AS ")[-1]
        doc, hover = docs.get(name, ""), _HOVER.get(name, "")
        made.append(Column(name, title, kind, unit, doc, name not in _DETAIL, hover))
    return tuple(made)


def _table(
    con: DuckDBPyConnection,
    view: str,
    title: str,
    spec: Spec,
    sql: str,
    chosen: Sequence[str],
    *joined: str,
) -> Table:
    limit = ROW_LIMIT if view in _LISTS else DETAIL_LIMIT
    rows = rows_of(con, f"{sql} LIMIT {limit + 1}")
    total = len(rows)
    if total > limit:
        ((total,),) = rows_of(con, f"SELECT count(*) FROM ({sql})")
    return Table(
        title,
        views()[view].doc,
        _columns(spec, view, *joined),
        tuple(rows[:limit]),
        total,
        Source(view, tuple(chosen)),
    )


def _view_table(
    con: DuckDBPyConnection, chosen: Sequence[str], table: KernelTable | TimelineTable
) -> Table:
    columns = _labelled(table.columns, chosen)
    sql = table.sql(columns, in_list(chosen))
    joined = table.joined if isinstance(table, KernelTable) else ()
    known = (name for name in (*joined, "kernel_sol") if name in views())
    return _table(con, table.view, table.title, columns, sql, chosen, *known)


def _labelled(spec: Spec, chosen: Sequence[str]) -> Spec:
    """Return the columns without what a report is called, where there is only one."""
    return spec if len(chosen) > 1 else tuple(column for column in spec if column[0] != "label")
