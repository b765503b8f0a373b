"""How runs differ from a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfpipe.analysis.gate.compare.story import Comparison
from perfpipe.analysis.report.declare import Given, Missing, SectionSpec
from perfpipe.analysis.report.opening.comparisons import change_table
from perfpipe.analysis.report.scope import Scope
from perfpipe.viewmodel import Table


def tables_of(compared: Comparison) -> Iterator[Table]:
    """Yield the tables of a comparison: the change by category first, then what explains it."""
    yield from change_table(compared)
    for table in compared.tables:
        yield replace(table, headline=1)


def _compared(scope: Scope) -> Iterator[Table]:
    if scope.compared is not None:
        yield from tables_of(scope.compared)


SECTION = SectionSpec(
    "regression",
    "Comparison with a baseline",
    Missing("no baseline", perfpipe="compare runs with perfpipe report RUN --baseline RUN"),
    (Given(_compared),),
)
