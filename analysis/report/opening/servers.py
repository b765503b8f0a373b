"""The first screen of a server under load: latency at the highest rate that it keeps up with."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report import serving
from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.report.serving import Rate
from perfpipe.units import format_ns
from perfpipe.viewmodel import Fact, Source, Tile

#: Views that are read here.
VIEWS = serving.VIEWS

#: Rates on the first screen.
_ROWS = 8


def server_of(scope: Scope) -> Part | None:
    """Return what a server did under load; None without one."""
    chosen = serving.about(scope)
    if chosen is None:
        return None
    source = Source("serving_rates", (chosen.report,))
    text = " ".join(serving.sentences(scope))
    return Part(
        Fact("", text, source), tuple(_tiles(chosen, source)), "Latency against rate", _ROWS
    )


def _tiles(chosen: Rate, source: Source) -> Iterator[Tile]:
    for name, p50, p95 in (
        ("TTFT", chosen.ttft_p50, chosen.ttft_p95),
        ("End to end", chosen.e2e_p50, chosen.e2e_p95),
    ):
        value, of = (p50, "median") if p95 is None else (p95, "p95")
        if value is not None:
            yield Tile(f"{name} {of}", format_ns(1e6 * value), chosen.at, source)
    if chosen.good_per_s is not None:
        note = f"requests that meet {chosen.slo}, {chosen.at}"
        yield Tile("Goodput", f"{chosen.good_per_s:.3g}/s", note, source)
    elif chosen.per_s is not None:
        yield Tile("Throughput", f"{chosen.per_s:.3g}/s", f"requests, {chosen.at}", source)
