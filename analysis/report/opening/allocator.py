"""The first screen of a memory snapshot of PyTorch: what its memory is for at the peak."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report import allocator
from perfpipe.analysis.report.allocator import Peak
from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.scope import Scope
from perfpipe.units import format_bytes
from perfpipe.viewmodel import Fact, Source, Tile

#: Views that are read here.
VIEWS = allocator.VIEWS


def memory_of(scope: Scope) -> Part | None:
    """Return what a memory snapshot shows; None without one."""
    peak = allocator.peak_of(scope)
    if peak is None:
        return None
    source = Source("snapshot_peak", (peak.report,))
    text = " ".join(allocator.sentences(scope))
    lead = "What PyTorch's memory is for, over time"
    return Part(Fact("", text, source), tuple(_tiles(scope, peak, source)), lead)


def _tiles(scope: Scope, peak: Peak, source: Source) -> Iterator[Tile]:
    of = f"of {format_bytes(peak.memory)}" if peak.memory else f"on GPU {peak.device}"
    yield Tile("Peak", format_bytes(peak.bytes), of, source)
    yield Tile("Reserved", format_bytes(peak.reserved), "by the allocator at the peak", source)
    for category, size in allocator.parts_of(scope, peak)[:2]:
        note = f"{100 * size / max(peak.bytes, 1):.0f} % of the peak"
        yield Tile(category.capitalize(), format_bytes(size), note, source)
