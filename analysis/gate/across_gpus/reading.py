"""Compares runs on two GPU models with the speedup that their rooflines allow."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.gate.across_gpus.progress import (
    Profiled,
    Reached,
    Work,
    host_share,
    low_clock,
    matched,
    ratio_of,
    reach,
)
from perfpipe.analysis.gate.project import reading
from perfpipe.analysis.gate.project.reading import gpu_of, project
from perfpipe.analysis.gate.project.scaling import Span, Use, ratios
from perfpipe.analysis.gate.project.totals import ITERATION, Whole
from perfpipe.analysis.gate.sides import CAPTURE, STEP, Key, side_of
from perfpipe.analysis.gate.sides import VIEWS as SIDES_VIEWS
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.errors import InputError
from perfpipe.runrecord import RunRecord
from perfpipe.specs import GpuSpec

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = (
    *reading.VIEWS,
    *SIDES_VIEWS,
    *("kernel_features", "kernel_libraries", "kernel_metrics", "kernel_names", "ncu_launches"),
)


@dataclass(frozen=True)
class OneSide:
    """Runs with their reports, or reports alone."""

    runs: Sequence[RunRecord]
    reports: Sequence[str]

    @property
    def labels(self) -> dict[str, str]:
        """The configuration of each report."""
        return {r: task.label for run in self.runs for task in run.tasks for r in task.reports}


@dataclass(frozen=True)
class Across:
    """Two sides on two GPUs: configurations, kernels with the largest loss first, and the rest."""

    gpus: tuple[GpuSpec, GpuSpec]
    works: tuple[Work, ...]
    kernels: tuple[Reached, ...]
    only_before: tuple[Profiled, ...]
    only_after: tuple[Profiled, ...]


def across(con: DuckDBPyConnection, before: OneSide, after: OneSide) -> Across:
    """Compare two sides; raises InputError if they did not run on two GPU models."""
    gpus = gpu_of(con, before.reports), gpu_of(con, after.reports)
    if gpus[0].key == gpus[1].key:
        raise InputError(f"both sides ran on {gpus[0].name}: compare them without --across-gpus")
    to = ratios(*gpus)
    renamed = _renamed(before, after)
    kernels = [profiled(con, side, renamed if side is after else {}) for side in (before, after)]
    pairs, *rest = matched(*kernels)
    reached = [reach(pair, gpus, to) for pair in pairs]
    reached.sort(key=lambda one: (-one.lost_ns * one.pair.after.launches, one.pair.before.name))
    works = _works(con, before, after, gpus, renamed)
    return Across(gpus, tuple(works), tuple(reached), tuple(rest[0]), tuple(rest[1]))


def _renamed(before: OneSide, after: OneSide) -> Mapping[str, str]:
    """Return the names of the second side's configurations; two single ones are the same."""
    labels = [{*side.labels.values()} or {""} for side in (before, after)]
    if len(labels[0]) == len(labels[1]) == 1:
        return {next(iter(labels[1])): next(iter(labels[0]))}
    return {}


def profiled(con: DuckDBPyConnection, side: OneSide, renamed: Mapping[str, str]) -> list[Profiled]:
    """Return the profiled kernels of a side, in launch order of the first of each."""
    chosen = f"report_id IN {in_list(side.reports)}"
    roofs: dict[tuple[str, int], dict[str, tuple[float, float | None]]] = {}
    sql = f"SELECT report_id, launch_id, roof, pct, peak_per_s FROM kernel_roofs WHERE {chosen}"
    for report, launch, roof, pct, peak in rows_of(con, sql):
        roofs.setdefault((report, launch), {})[roof] = (pct, peak)
    groups: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for row in rows_of(con, _KERNELS.format(chosen=chosen)):
        label = side.labels.get(row[0], "")
        key = (renamed.get(label, label), *row[2:5], *row[6:8])
        groups.setdefault(key, []).append(row)
    return [_profiled(key, rows, roofs) for key, rows in groups.items()]


_KERNELS = """
    SELECT
        s.report_id,
        s.launch_id,
        coalesce(s.nvtx_path, ''),
        kernel_key(s.kernel_demangled),
        coalesce(n.short_name, s.kernel_name),
        s.duration_ns,
        s.grid,
        s.block,
        b.bound,
        b.subclass,
        o.blocks_per_sm,
        f.category,
        k.library,
        k.closed,
        f.flop,
        o.theoretical_occupancy_pct,
        o.limiters,
        s.waves,
        s.sm_clock_hz,
        f.features,
        CASE
            WHEN m.tma_load_inst > 0 OR m.tma_pipe_pct > 0 THEN true
            WHEN m.tma_load_inst = 0 OR m.tma_pipe_pct = 0 THEN false
        END
    FROM kernel_sol AS s
    JOIN kernel_bottleneck AS b USING (report_id, launch_id)
    JOIN kernel_occupancy AS o USING (report_id, launch_id)
    JOIN kernel_features AS f USING (report_id, launch_id)
    JOIN kernel_libraries AS k USING (report_id, launch_id)
    JOIN kernel_metrics AS m USING (report_id, launch_id)
    LEFT JOIN kernel_names AS n
        ON n.report_id = s.report_id AND n.demangled = s.kernel_demangled AND n.name = s.kernel_name
    WHERE s.{chosen} AND s.duration_ns > 0
    ORDER BY s.report_id, s.launch_id
"""


def _profiled(
    key: tuple[str, ...],
    rows: Sequence[tuple[Any, ...]],
    roofs: Mapping[tuple[str, int], Mapping[str, tuple[float, float | None]]],
) -> Profiled:
    longest = max(rows, key=lambda row: row[5])
    own = roofs.get((longest[0], longest[1]), {})
    blocks = 1
    for size in key[4].split(","):
        blocks *= int(size)
    use = Use(
        longest[8], longest[9], {roof: pct for roof, (pct, _) in own.items()}, blocks, longest[10]
    )
    label, nvtx, kernel_key, name, grid, block = key
    category, library, closed, flop, occupancy, limiters, waves, clock, features, tma = longest[11:]
    return Profiled(
        label,
        nvtx,
        kernel_key,
        name,
        grid,
        block,
        len(rows),
        statistics.median(row[5] for row in rows),
        use,
        category,
        library,
        closed,
        flop,
        occupancy,
        tuple(limiters or ()),
        waves,
        clock,
        own.get("l2", (0.0, None))[1],
        tuple(features or ()),
        tma,
    )


def _works(
    con: DuckDBPyConnection,
    before: OneSide,
    after: OneSide,
    gpus: tuple[GpuSpec, GpuSpec],
    renamed: Mapping[str, str],
) -> list[Work]:
    """Compare the times of each configuration with a projection of the first side."""
    sides = [side_of(con, side.runs, side.reports) for side in (before, after)]
    wholes = project(con, before.runs, before.reports, *gpus)
    found = []
    for part in (ITERATION, STEP, CAPTURE):
        for key, own in sorted(sides[0].measured.items()):
            if key.part != part:
                continue
            there = next((k for k in sides[1].measured if _same(k, key, renamed)), None)
            if there is None:
                continue
            times = [statistics.median(x.medians) for x in (own, sides[1].measured[there])]
            whole = next((w for w in wholes if (w.label, w.kind) == (key.label, part)), None)
            possible = _possible(whole)
            ratio = ratio_of(*times)
            got = None if possible is None or ratio is None else 100 * ratio / possible.high
            clocks = [_clock(one.sm_mhz) for one in (own, sides[1].measured[there])]
            held = [*low_clock(clocks[0], clocks[1], gpus)]
            held += host_share(*(_budget(s, k) for s, k in zip(sides, (key, there), strict=True)))
            if whole is not None and whole.host_decides:
                held.append("the host takes longer to issue a step than the GPU takes to run it")
            reason = None if possible else _why(whole)
            old, new = times
            found.append(Work(key.label, part, old, new, possible, got, tuple(held), reason))
    return found


def _same(key: Key, other: Key, renamed: Mapping[str, str]) -> bool:
    return key._replace(label=renamed.get(key.label, key.label)) == other


def _budget(side: Any, key: Key) -> dict[str, float]:
    """Return the parts of a step's budget, ns."""
    return {
        own.part: statistics.median(measured.medians)
        for own, measured in side.measured.items()
        if own[:2] == key[:2] and own.part not in (ITERATION, STEP, CAPTURE) and not own.kernel
    }


def _possible(whole: Whole | None) -> Span | None:
    """Return the speedup that a projection allows; None if parts of it are unknown."""
    if whole is None or whole.faster is None or whole.known_ns < 0.99 * whole.now_ns:
        return None
    return whole.faster


def _why(whole: Whole | None) -> str:
    if whole is None:
        return "no timeline and no profile show its parts"
    unknown = [part.reason for part in whole.parts if part.span is None and part.reason]
    return unknown[0] if unknown else "unknown"


def _clock(clocks: Sequence[float | None]) -> float | None:
    known = [mhz for mhz in clocks if mhz]
    return statistics.median(known) if known else None
