"""The first screen of a program that was running."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.running import KIND, VIEWS, answer_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import records_of
from perfpipe.database import in_list
from perfpipe.units import format_bytes, gpu_name
from perfpipe.viewmodel import Fact, Source, Tile

__all__ = ["VIEWS", "with_running"]

#: Lines of code on the first screen.
_LINES = 10


def with_running(scope: Scope, part: Part | None) -> Part | None:
    """Return the first screen of a program that was running, around that of its timeline."""
    if not scope.kinds.get(KIND):
        return part
    said = answer_of(scope)
    if part is not None:
        text = f"{said}. {part.verdict.text}"
        return replace(part, verdict=replace(part.verdict, text=text))
    fact = Fact("", said, Source("host_code", scope.reports))
    return Part(fact, tuple(_tiles(scope)), "Time of the host by line", _LINES)


def _tiles(scope: Scope) -> Iterator[Tile]:
    chosen = in_list(scope.reports)
    source = Source("gpu_use", scope.reports)
    sql = f"SELECT * FROM gpu_use WHERE report_id IN {chosen} ORDER BY device LIMIT 1"
    for row in records_of(scope.con, sql):
        if row["busy_pct"] is not None:
            name = row["name"] or gpu_name(row["device"])
            yield Tile("GPU busy", f"{row['busy_pct']:.0f} %", f"{name}, all programs", source)
        if row["program_bytes"] is not None:
            note = "largest memory of the program"
            yield Tile("GPU memory", format_bytes(row["program_bytes"]), note, source)
    sql = f"""
        SELECT sum(cpu_pct) AS cpu_pct, max(memory_bytes) AS memory_bytes, sum(threads) AS threads
        FROM process_use WHERE report_id IN {chosen}
    """
    source = Source("process_use", scope.reports)
    for row in records_of(scope.con, sql):
        if row["cpu_pct"] is not None:
            note = f"{row['threads']:,} threads"
            yield Tile("CPU", f"{row['cpu_pct']:.0f} %", f"{note}; 100 % is one core", source)
        if row["memory_bytes"] is not None:
            note = "largest resident memory of a process"
            yield Tile("Host memory", format_bytes(row["memory_bytes"]), note, source)
