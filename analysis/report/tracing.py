"""How much the profiler lengthens the steps or programs of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list, quote
from perfpipe.units import format_ns
from perfpipe.viewmodel import Fact, Source

#: Views that are read here.
VIEWS = ("run_tracing", "_labels")

#: What was longer, and what that makes of the shares, by the basis of the comparison.
_STEP = {
    "step": ("a step", "shares and bounds refer to the untraced step"),
    "GPU time of a step": (
        "the GPU time of a step",
        "shares and bounds refer to the untraced step",
    ),
}


class _Lengthened(NamedTuple):
    """A timeline that tracing lengthened, and by how much."""

    label: str
    profiler: str
    basis: str
    pct: float
    plain_ns: float
    traced_ns: float
    why: str
    timelines: int


def tracing_of(scope: Scope) -> Iterator[Fact]:
    """Yield by how much tracing lengthens steps, where that is more than the threshold.

    Where programs report no times of their own, what the wall time says.
    """
    steps, walls = _found(scope)
    source = Source("run_tracing", scope.reports)
    if steps:
        yield Fact("Tracing", f"{_of_steps(steps)}: {_STEP[steps[0].basis][1]}", source)
    if walls:
        yield Fact("Tracing", _of_programs(walls), source)


def lengthened_of(scope: Scope) -> str | None:
    """Return by how much tracing lengthens steps; None if that is little, or unknown."""
    steps, _ = _found(scope)
    return _of_steps(steps) if steps else None


def _found(scope: Scope) -> tuple[list[_Lengthened], list[_Lengthened]]:
    """Return what tracing lengthened: steps, and programs whose steps are unknown."""
    of_run = f"AND run_id = {quote(scope.run.run_id)}" if scope.run else ""
    sql = f"""
        WITH known AS (
            SELECT t.* EXCLUDE (label), l.label
            FROM run_tracing AS t
            JOIN _labels AS l USING (report_id)
            WHERE report_id IN {in_list(scope.reports)} AND basis IS NOT NULL {of_run}
            QUALIFY row_number() OVER (PARTITION BY report_id, device ORDER BY run_id DESC) = 1
        )
        SELECT
            label, profiler, basis, lengthened_pct,
            CASE basis WHEN 'wall time' THEN 1e9 * plain_wall_s ELSE 1e6 * plain_step_ms END,
            CASE basis
                WHEN 'wall time' THEN 1e9 * coalesce(traced_wall_s, launch_wall_s)
                ELSE 1e6 * traced_step_ms
            END,
            why,
            count(*) OVER (PARTITION BY basis = 'wall time')
        FROM known
        QUALIFY notable
        ORDER BY lengthened_pct DESC, label, report_id, device
    """
    found = [_Lengthened(*row) for row in rows_of(scope.con, sql)]
    steps = [one for one in found if one.basis in _STEP]
    return steps, [one for one in found if one.basis not in _STEP]


def _of_steps(found: Sequence[_Lengthened]) -> str:
    most = found[0]
    what, _ = _STEP[most.basis]
    low, high = f"{found[-1].pct:.0f}", f"{most.pct:.0f}"
    percent = f"{high} %" if low == high else f"{low} to {high} %"
    where = f" on {len(found)} of {most.timelines} timelines" if most.timelines > 1 else ""
    where += f", most for {most.label}" if found[1:] else f" ({most.label})" if where else ""
    times = f"{format_ns(most.plain_ns)} untraced, {format_ns(most.traced_ns)} traced"
    return f"Tracing lengthened {what} by {percent}{where} ({times})"


def _of_programs(found: Sequence[_Lengthened]) -> str:
    most = found[0]
    times = f"{format_ns(most.traced_ns)} under {most.profiler}, {format_ns(most.plain_ns)} without"
    where = (
        f" in {most.label}, the most affected of {most.timelines} timelines"
        if most.timelines > 1
        else ""
    )
    return (
        f"The program took {times} (+{most.pct:.0f} %){where}: idle shares may be overstated; the "
        f"effect on a single step is unknown ({most.why})"
    )
