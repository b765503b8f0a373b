"""Builds the view-model of a report from the views of a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analysis import runs
from analysis.comparison import Comparison
from analysis.report import facts, findings, timeline
from analysis.report.declare import Scope
from analysis.report.sections import SECTIONS
from analysis.rows import in_list, rows_of
from analysis.tuning import story
from perfpipe.viewmodel import Fact, Report, Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Sentences of a search that stand in the verdict; the others are facts of the summary.
_TOLD = 3

#: Views that a report reads.
VIEWS_USED: tuple[str, ...] = (
    *dict.fromkeys(
        (
            *(view for section in SECTIONS for part in section.parts for view in part.views),
            *findings.VIEWS,
            *timeline.VIEWS,
            *facts.VIEWS,
            *runs.VIEWS,
        )
    ),
)


def build_report(
    con: DuckDBPyConnection,
    reports: Sequence[str],
    run: dict[str, Any] | None = None,
    compared: Comparison | None = None,
    title: str | None = None,
) -> Report:
    """Build the report of some ingested reports, and of the run that gave them, if any.

    `reports` are ids in the store that `con` is open on; every number is read from its views.
    With `compared` the report tells how they differ from a baseline; `title` is for several runs.
    """
    chosen = tuple(sorted(reports))
    scope = Scope(con, chosen, _kinds(con, chosen), run, compared)
    kinds = scope.kinds
    launches = findings.classified(con, chosen)
    found = timeline.timeline_findings(con, chosen) + findings.kernel_findings(launches)
    statements = [
        Fact("", text, Source(view, chosen))
        for text, view in (
            (timeline.timeline_verdict(con, chosen), "timeline_bottleneck"),
            (findings.verdict(launches), "kernel_bottleneck"),
        )
        if text
    ]
    advice = timeline.timeline_recommendations(con, chosen)
    advice += findings.recommendations(con, chosen)
    more: list[Fact] = []
    if compared is not None:
        statements = [*compared.statements, *statements]
        more += compared.sides
    if scope.history is not None and run is not None:
        source = Source("tuning", (run["run_id"],))
        told = story(scope.history)
        statements = [*(Fact("", text, source) for text in told[:_TOLD]), *statements]
        if told[_TOLD:]:
            more.append(Fact("The search", " ".join(told[_TOLD:]), source))
    elif run is not None and (text := runs.reach(con, run["run_id"])):
        source = Source("run_efficiency", (run["run_id"],))
        statements = [Fact("", text, source), *statements]
    warnings = facts.warnings_of(con, chosen)
    if scope.timeline and not scope.profiled:
        more += facts.notes_of(con, chosen, warnings)
        if text := timeline.next_step(con, chosen):
            more.append(Fact("Next", text, Source("timeline_bottleneck", chosen)))
    return Report(
        title=title or facts.title_of(con, chosen, run),
        notice=facts.notice_of(run),
        statements=tuple(statements) or (facts.no_verdict(scope),),
        summary=tuple(facts.summary_of(con, chosen, kinds, run) + more),
        sections=tuple(section.section(scope) for section in SECTIONS),
        findings=tuple(found[:20]),
        findings_total=len(found),
        nothing_found=facts.nothing_of(scope) if not found else "",
        recommendations=tuple(replace(item, priority=n + 1) for n, item in enumerate(advice)),
        warnings=tuple(warnings),
        gaps=tuple(facts.gaps_of(con, chosen)),
        provenance=tuple(facts.provenance_of(con, chosen, run)),
    )


def _kinds(con: DuckDBPyConnection, chosen: Sequence[str]) -> dict[str, int]:
    sql = f"SELECT kind, count(*) FROM reports WHERE report_id IN {in_list(chosen)} GROUP BY kind"
    return dict(rows_of(con, sql))
