"""Builds the view-model of a report from the views of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from perfpipe.analysis.gate.compare.story import Comparison
from perfpipe.analysis.report import facts, findings, nothing, opening, picture, verdicts
from perfpipe.analysis.report.before import Kernels
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.report.sections import SECTIONS
from perfpipe.analysis.rows import rows_of
from perfpipe.database import another, in_list
from perfpipe.picture import Picture
from perfpipe.runrecord import RunRecord
from perfpipe.viewmodel import Fact, Report, Section

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that a report reads.
VIEWS_USED: tuple[str, ...] = (
    *dict.fromkeys(
        (
            *(view for section in SECTIONS for view in section.views),
            *findings.VIEWS,
            *verdicts.VIEWS,
            *facts.VIEWS,
            *nothing.VIEWS,
            *opening.VIEWS,
            *picture.VIEWS,
        )
    ),
)

#: Views that the picture of two sides reads.
PICTURE_VIEWS: tuple[str, ...] = (*picture.VIEWS, *opening.gpus.VIEWS, "reports")

#: Maximum number of findings in a report.
_MOST = 20


def build_report(
    con: DuckDBPyConnection,
    reports: Sequence[str],
    run: RunRecord | None = None,
    compared: Comparison | None = None,
    title: str | None = None,
    both: Picture | None = None,
    left_out: Mapping[str, str] | None = None,
    before: Kernels | None = None,
) -> Report:
    """Build the report of some ingested reports, and of the run they come from, if any.

    `con` is open on `reports` (ids in a store) alone, with the views of VIEWS_USED; every number is
    read from these.  With `compared` the report shows the differences from a baseline; `title` is
    for several runs, `both` the picture of a step of either side.  `left_out` are reports that
    cannot be read, and why; `before` are the kernels of the baseline.
    """
    chosen = tuple(sorted(reports))
    kinds = kinds_of(con, chosen)
    scope = Scope(con, chosen, kinds, run, compared, left_out or {}, before or {})
    # DuckDB plans a query on one core, and most of them take as long to plan as to run.
    with another(con) as second, another(con) as third, ThreadPoolExecutor(2) as pool:
        sections = pool.submit(_sections, replace(scope, con=second))
        found = findings.findings_of(scope)
        statements = tuple(verdicts.statements_of(scope)) or (nothing.no_verdict(scope),)
        first, drawn = opening.opening_of(scope, found, statements[0])
        step = None if both else pool.submit(picture.picture_of, replace(scope, con=third), drawn)
        warnings = facts.warnings_of(scope)
        return Report(
            title=title or facts.title_of(con, chosen, run),
            notice=verdicts.notice_of(scope),
            statements=statements,
            summary=tuple(_summary(scope, warnings)),
            findings=tuple(found[:_MOST]),
            findings_total=len(found),
            nothing_found="" if found else nothing.nothing_of(scope),
            recommendations=tuple(findings.recommendations_of(scope)),
            warnings=tuple(warnings),
            gaps=tuple(facts.gaps_of(con, chosen)),
            provenance=tuple(facts.provenance_of(con, chosen, run)),
            opening=first,
            sections=sections.result(),
            picture=step.result() if step else both,
        )
    raise AssertionError("unreachable")


def _sections(scope: Scope) -> tuple[Section, ...]:
    return tuple(section.section(scope) for section in SECTIONS)


def _summary(scope: Scope, warnings: Sequence[Fact]) -> Iterator[Fact]:
    yield from facts.summary_of(scope)
    yield from scope.compared.sides if scope.compared is not None else ()
    yield from verdicts.search_of(scope)
    if scope.timeline and not scope.profiled:
        yield from facts.notes_of(scope, warnings)
        yield from verdicts.next_step(scope)


def picture_of_sides(con: DuckDBPyConnection, sides: Mapping[str, Sequence[str]]) -> Picture | None:
    """Return the picture of a step of each side, by its name: of its timeline with the longest."""
    every = tuple(sorted(report for reports in sides.values() for report in reports))
    names: dict[str, str] = {}
    for name, reports in sides.items():
        own = Scope(con, tuple(sorted(reports)), kinds_of(con, reports))
        names |= dict.fromkeys(opening.gpus.longest(own), name)
    if len(names) < len(sides):
        return None
    labels = rows_of(
        con, f"SELECT report_id, label FROM _labels WHERE report_id IN {in_list([*names])}"
    )
    if len({label for _, label in labels}) > 1:
        # Names show how the sides differ.
        names = {report: f"{names[report]}: {dict(labels)[report]}" for report in names}
    scope = Scope(con, every, kinds_of(con, every))
    return picture.picture_of(scope, tuple(names), names)


def kinds_of(con: DuckDBPyConnection, chosen: Sequence[str]) -> dict[str, int]:
    """Return how many of some reports there are of each kind."""
    sql = f"SELECT kind, count(*) FROM reports WHERE report_id IN {in_list(chosen)} GROUP BY kind"
    return dict(rows_of(con, sql))
