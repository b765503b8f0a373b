"""The page of a decision: the first screen of a comparison, and the evidence."""

from __future__ import annotations

from dataclasses import replace

from perfpipe.analysis.gate.compare.story import Comparison
from perfpipe.analysis.gate.decision import Decision, Endpoint, headline
from perfpipe.analysis.report.opening.comparisons import change_of
from perfpipe.analysis.report.sections.regression import tables_of
from perfpipe.picture import Picture
from perfpipe.viewmodel import Fact, Opening, Report, Section, Source, Tile

#: Tiles of the comparison after that of the decision.
_TILES = 3


def with_decision(decision: Decision, comparison: Comparison) -> Comparison:
    """Return a comparison that begins with the decision and the threshold."""
    source = Source("comparison", tuple(fact.text for fact in comparison.sides))
    told = (headline(decision), *decision.sentences, decision.basis)
    facts = (Fact("", text, source) for text in told if text)
    return replace(comparison, statements=(*facts, *comparison.statements))


def page_of(decision: Decision, comparison: Comparison, both: Picture | None = None) -> Report:
    """Return the page of a decision, for the renderers of reports.

    It opens as a report with a baseline does; `both` is the picture of a step of either side.
    """
    source = Source("comparison", tuple(fact.text for fact in comparison.sides))
    missing = "the two sides have no measurement in common"
    tables = tuple(tables_of(comparison))
    section = Section("comparison", "Comparison", tables, "" if tables else missing)
    return Report(
        title="Comparison",
        notice=None,
        statements=with_decision(decision, comparison).statements,
        summary=comparison.sides,
        sections=(section,),
        nothing_found="findings are in the reports of the runs",
        opening=_opening(decision, comparison, source),
        picture=both,
    )


def _opening(decision: Decision, comparison: Comparison, source: Source) -> Opening:
    """Return the opening of a report with a baseline, after the decision."""
    subject = Fact("", " against ".join(fact.text for fact in comparison.sides[::-1]), source)
    action = str(decision.action).capitalize()
    decided = Tile("Decision", action, f"{decision.verdict}; {decision.advice}", source)
    # The tiles and the picture of a change are about time.
    part = change_of(comparison) if decision.endpoint == Endpoint.TIME else None
    if part is None:
        return Opening(subject, Fact("", headline(decision), source), (decided,))
    tiles = (decided, *part.tiles[:_TILES])
    return Opening(subject, part.verdict, tiles, lead=part.lead, first_rows=part.rows)
