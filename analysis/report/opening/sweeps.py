"""The first screen of a sweep: the most important choice, the best and worst points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from perfpipe.analysis.report.opening import steps
from perfpipe.analysis.report.opening.gpus import reports_of
from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import quote
from perfpipe.units import format_ns, format_rate
from perfpipe.viewmodel import Fact, Source, Tile

#: Views that are read here.
VIEWS = ("run_contrasts", "run_efficiency", "run_times")

#: Sizes of a series that are compared with each other.
_CURVE = 2

_LEVELS = {"dram": "DRAM bandwidth", "l2": "L2 bandwidth"}


class Point(NamedTuple):
    """A configuration and how close it comes to its roof."""

    task: int
    label: str
    series: str
    size: int | None
    dtype: str | None
    ms: float
    flop_per_s: float | None
    bytes_per_s: float | None
    roof: str | None
    level: str | None
    sol_pct: float | None
    mfu_pct: float | None
    sm_mhz: float | None
    limiter: str | None
    bound: str | None
    subclass: str | None

    @property
    def pct(self) -> float | None:
        """Share of the applicable roof, %; MFU if only FLOPs are declared."""
        return self.sol_pct if self.sol_pct is not None else self.mfu_pct

    @property
    def of(self) -> str:
        """What that is a share of."""
        if self.sol_pct is None:
            return f"of the {self.dtype} peak (MFU)"
        return f"of {_LEVELS[self.level or 'dram']}" if self.memory else f"of the {self.dtype} peak"

    @property
    def memory(self) -> bool:
        """Whether memory is its roof."""
        return self.sol_pct is not None and self.roof == "memory"

    @property
    def rate(self) -> str:
        """How much it does a second, by its roof."""
        if self.memory and self.bytes_per_s:
            return format_rate(self.bytes_per_s, "B/s")
        return (
            format_rate(self.flop_per_s, "FLOP/s") if self.flop_per_s else format_ns(self.ms * 1e6)
        )


class Contrast(NamedTuple):
    """Two configurations that differ in one parameter, and by how much in time."""

    parameter: str
    fast: str
    slow: str
    fast_index: int
    slow_index: int
    fast_ms: float
    slow_ms: float
    ratio: float


def points_of(scope: Scope) -> list[Point]:
    """Return the timed configurations of a run, smallest first."""
    if scope.run is None:
        return []
    sql = f"""
        SELECT
            task_index, short_label, series, size, e.dtype, e.median_ms, e.model_flop_per_s,
            e.effective_bytes_per_s, roof, memory_level, sol_pct, e.mfu_pct, t.sm_mhz,
            t.throttled_by, bound, subclass
        FROM run_efficiency AS e
        JOIN run_times AS t USING (run_id, task_index)
        JOIN (SELECT run_id, task_index, short_label FROM run_tasks) USING (run_id, task_index)
        WHERE run_id = {quote(scope.run.run_id)} AND e.median_ms > 0
        ORDER BY size, task_index
    """
    return [Point(*row) for row in rows_of(scope.con, sql)]


def point_of(scope: Scope, index: int) -> Point | None:
    """Return a configuration; None if it was not timed."""
    return next((point for point in points_of(scope) if point.task == index), None)


def reach_of(scope: Scope, index: int) -> Iterator[Tile]:
    """Yield how close a configuration comes to its roof."""
    point = point_of(scope, index)
    if point is not None and point.pct is not None:
        note = f"{point.of}: {point.rate}"
        yield Tile("Share of peak", f"{point.pct:.3g} %", note, _source(scope))


def sweep_of(scope: Scope) -> Part | None:
    """Return how the configurations of a run compare; None for fewer than two."""
    points = points_of(scope)
    if len(points) < 2:
        return None
    curve = _curve(points)
    contrast = _contrast(scope)
    by_index = {point.task: point for point in points}
    if contrast is None and not curve:
        return None
    lead = "Problem sizes" if curve else ""
    if contrast is None:
        fact = Fact("", _of_curve(curve), _source(scope))
        return Part(fact, tuple(_along(scope, curve)), lead)
    slow, fast = (steps.of_task(scope, i) for i in (contrast.slow_index, contrast.fast_index))
    text = f"{_of_contrast(contrast)}{steps.why_slow(slow, contrast.slow)}"
    tiles = [*_contrasted(scope, contrast, by_index)]
    tiles += _along(scope, curve)[1:2]
    if slow and not curve:
        busy = steps.busy_tile(slow)
        tiles.append(replace(busy, note=f"{busy.note} ({contrast.slow})"))
    drawn = reports_of((*slow, *fast))
    return Part(Fact("", text, _source(scope)), tuple(tiles), lead, reports=() if curve else drawn)


def _source(scope: Scope) -> Source:
    return Source("run_efficiency", (scope.run.run_id,) if scope.run else ())


def _curve(points: Sequence[Point]) -> list[Point]:
    """Return the series with most sizes, if it has enough of them, and its work is known."""
    series: dict[str, list[Point]] = {}
    for point in points:
        if point.size is not None and point.pct is not None:
            series.setdefault(point.series, []).append(point)
    longest = max(series.values(), key=lambda own: len({p.size for p in own}), default=[])
    return longest if len({p.size for p in longest}) >= _CURVE else []


def _contrast(scope: Scope) -> Contrast | None:
    """Return the choice with the largest effect, if it is a notable one."""
    if scope.run is None:
        return None
    sql = f"""
        SELECT parameter, fast_value, slow_value, fast_index, slow_index, fast_ms, slow_ms, ratio
        FROM run_contrasts
        WHERE run_id = {quote(scope.run.run_id)} AND rank = 1
            AND ratio >= {thresholds()["opening.contrast_times"]}
    """
    return next((Contrast(*row) for row in rows_of(scope.con, sql)), None)


def _of_contrast(contrast: Contrast) -> str:
    """Return the effect of a choice."""
    fast, slow = (f"{contrast.parameter}={v}" for v in (contrast.fast, contrast.slow))
    return (
        f"{fast} is {contrast.ratio:.3g} times faster than {slow}: "
        f"{format_ns(contrast.fast_ms * 1e6)} instead of {format_ns(contrast.slow_ms * 1e6)}"
    )


def _of_curve(curve: Sequence[Point]) -> str:
    """Return where a curve peaks, how far it falls after the peak, and why."""
    best = max(curve, key=lambda point: point.pct or 0)
    last, first = curve[-1], curve[0]
    text = (
        f"{best.dtype} peaks at {best.rate} ({best.pct:.0f} % {_brief(best)}) at size {best.size}"
    )
    if (best.pct or 0) - (last.pct or 0) >= thresholds()["opening.falls_points"]:
        return f"{text} and falls to {last.pct:.1f} % at size {last.size}{_held_down(last)}"
    return f"{text}; size {first.size} reaches {first.pct:.1f} %"


def _brief(point: Point) -> str:
    return point.of if point.memory else "of peak"


def _held_down(point: Point) -> str:
    """Return the clock limiter of a configuration, with its clock; else its bound."""
    if point.limiter:
        clock = f", {point.sm_mhz:,.0f} MHz" if point.sm_mhz else ""
        return f": {point.limiter}{clock}"
    return f": bound by {point.bound}" if point.bound else ""


def _contrasted(scope: Scope, contrast: Contrast, points: dict[int, Point]) -> Iterator[Tile]:
    source = Source("run_contrasts", _source(scope).reports)
    for name, index, ms in (
        ("Fastest", contrast.fast_index, contrast.fast_ms),
        ("Slowest", contrast.slow_index, contrast.slow_ms),
    ):
        point = points.get(index)
        reached = f"; {point.pct:.3g} % {point.of}" if point and point.pct is not None else ""
        label = point.label if point else ""
        yield Tile(name, format_ns(ms * 1e6), f"{label}{reached}", source)


def _along(scope: Scope, curve: Sequence[Point]) -> list[Tile]:
    """Return the best, worst and last point of a curve, without duplicates."""
    if not curve:
        return []
    best = max(curve, key=lambda point: point.pct or 0)
    worst = min(curve, key=lambda point: point.pct or 0)
    last = curve[-1]
    source = _source(scope)
    tiles = [Tile("Best", f"{best.pct:.3g} %", f"{best.of}: {best.rate}, {best.label}", source)]
    tiles.append(
        Tile("Worst", f"{worst.pct:.3g} %", f"{worst.of}: {worst.rate}, {worst.label}", source)
    )
    if last not in (best, worst):
        note = f"{last.rate}, {last.label}{_held_down(last)}"
        tiles.append(Tile("Largest size", f"{last.pct:.3g} %", note, source))
    return tiles
