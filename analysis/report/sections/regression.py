"""How runs differ from a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analysis.report.declare import Given, SectionSpec
from analysis.report.scope import Scope
from perfpipe.viewmodel import Table


def _compared(scope: Scope) -> Iterator[Table]:
    for table in scope.compared.tables if scope.compared else ():
        yield replace(table, headline=1)


SECTION = SectionSpec(
    "regression",
    "Regression against a baseline",
    "no baseline; perfpipe report RUN --baseline RUN compares runs",
    (Given(_compared),),
)
