"""The first screen of profiled kernels without a timeline."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.report.verdicts import of_profiled, profiled_of, verdict_on_kernels
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.units import counted, format_ns
from perfpipe.viewmodel import Fact, Source, Tile

#: Kernels on the first screen.
_ROWS = 10

#: From which share on a verdict is on all of the time.
_ALL_PCT = 99.5

#: Views that are read here.
VIEWS = ("_kernel_verdict", "kernel_sol", "_totals", "_launch_names")


def kernels_of(scope: Scope) -> Part | None:
    """Return what bounds most of the profiled time; None without classified kernels."""
    verdict = _verdict(scope)
    if verdict is None:
        return None
    bound, share, sol = verdict
    source = Source("kernel_bottleneck", scope.reports)
    names = rows_of(
        scope.con,
        f"""
        SELECT DISTINCT short_name FROM _launch_names WHERE report_id IN {in_list(scope.reports)}
        """,
    )
    text = of_profiled(scope, *verdict)
    if len(names) == 1 and share >= _ALL_PCT:
        text = f"{names[0][0]} ({profiled_of(scope)}) is bound by {bound}"
        text += f" and runs at {sol:.0f} % of SOL"
    return Part(Fact("", text, source), tuple(_tiles(scope, source)), "Profiled kernels", _ROWS)


def sol_of(scope: Scope) -> Iterator[Tile]:
    """Yield how close to SOL the kernels of the most frequent bound are."""
    if verdict := _verdict(scope):
        bound, share, sol = verdict
        note = f"for the {share:.0f} % of profiled time that is bound by {bound}"
        yield Tile("SOL", f"{sol:.0f} %", note, Source("kernel_bottleneck", scope.reports))


def _verdict(scope: Scope) -> tuple[str, float, float] | None:
    return verdict_on_kernels(scope) if scope.profiled else None


def _tiles(scope: Scope, source: Source) -> Iterator[Tile]:
    ((launches, profiled_ns, *_),) = rows_of(scope.con, "FROM _totals")
    if profiled_ns:
        yield Tile("Profiled time", format_ns(profiled_ns), counted(launches, "launch"), source)
    yield from sol_of(scope)
    longest = rows_of(
        scope.con,
        f"""
        SELECT short_name, duration_ns, max_sol_pct
        FROM kernel_sol JOIN _launch_names USING (report_id, launch_id)
        WHERE report_id IN {in_list(scope.reports)} AND duration_ns IS NOT NULL
        ORDER BY duration_ns DESC, report_id, launch_id LIMIT 1
        """,
    )
    for name, duration_ns, max_sol in longest:
        at = f", {max_sol:.0f} % of SOL" if max_sol is not None else ""
        yield Tile("Longest kernel", format_ns(duration_ns), f"{name}{at}", source)
