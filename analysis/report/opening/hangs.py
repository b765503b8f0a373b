"""The first screen of a job that hangs: which rank the others wait for."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report.hangs import (
    KIND,
    VIEWS,
    Row,
    causes_of,
    ranks_of,
    statements,
    waits_of,
)
from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.scope import Scope
from perfpipe.units import format_ns
from perfpipe.viewmodel import Fact, Source, Tile

__all__ = ["VIEWS", "hang_of"]

#: Calls on the first screen.
_ROWS = 8


def hang_of(scope: Scope) -> Part | None:
    """Return for whom the ranks of a job wait; None without dumps and outputs of RAS."""
    if not scope.kinds.get(KIND):
        return None
    ranks, waits = ranks_of(scope), waits_of(scope)
    said = [*statements(scope, ranks, waits)]
    if not said:
        text = "NCCL RAS reports no difference between ranks."
        return Part(Fact("", text, Source("ras_counts", scope.reports)))
    text = " ".join(fact.text for fact in said)
    tiles = tuple(_tiles(scope, ranks, waits))
    lead = "Calls in which ranks wait" if waits else ""
    return Part(Fact("", text, said[0].source), tiles, lead, _ROWS)


def _tiles(scope: Scope, ranks: list[Row], waits: list[Row]) -> Iterator[Tile]:
    if not ranks:
        return
    source = Source("hang_ranks", scope.reports)
    waiting = sum(row["state"] == "waits" for row in ranks)
    yield Tile("Waiting ranks", f"{waiting:,}", f"of {len(ranks):,} in the process groups", source)
    if lost := sum(row["state"] == "no dump" for row in ranks):
        yield Tile("Ranks without a dump", f"{lost:,}", "their calls are unknown", source)
    known = [row["waited_s"] for row in causes_of(waits) if row["waited_s"] is not None]
    if known:
        note = "from the call to the last modification of the dumps"
        source = Source("hang_waits", scope.reports)
        yield Tile("Waited", format_ns(1e9 * max(known)), note, source)
