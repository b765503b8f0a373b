"""Reads what runs and reports measured, and projects it to another GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from perfpipe.analysis.gate.project.projection import Links, project_alone, project_step
from perfpipe.analysis.gate.project.scaling import Ratios, Span, Use, figure, ratios
from perfpipe.analysis.gate.project.totals import (
    CAPTURE,
    DEVICE_COPY,
    HOST_COPY,
    HOST_PARTS,
    ITERATION,
    KERNELS,
    PEER_COPY,
    STEP,
    KernelTime,
    Whole,
)
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.errors import InputError
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.specs import GpuSpec, find_spec

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = (
    *("step_parts", "_step_kernels", "_profiled_roofs", "_windowed_kernels", "_analysed_launches"),
    "step_times",
    *(
        "_host_work",
        "_used_gpus",
        "kernel_names",
        "kernel_roofs",
        "kernel_bottleneck",
        "kernel_sol",
    ),
    "kernel_occupancy",
)

#: The timing method that measures the GPU alone; others include launch overhead.
_GPU_ONLY = "queued"


def gpu_of(con: DuckDBPyConnection, reports: Sequence[str]) -> GpuSpec:
    """Return the GPU of reports; raises InputError for several models, or an unknown one."""
    sql = f"SELECT DISTINCT gpu, sm_count FROM _used_gpus WHERE report_id IN {in_list(reports)}"
    names = sorted(rows_of(con, sql), key=str)
    counted = {name for name, sms in names if sms is not None}
    found: dict[str, GpuSpec] = {}
    for name, sms in names:
        # One profiler names a GPU with its SM count, another without.
        if sms is None and name in counted:
            continue
        spec = find_spec(name, sms)
        if spec is None:
            what = f"{name} with {sms} SMs" if sms else name
            raise InputError(f"{what}: no vendor peaks are known ('perfpipe gpu' lists the GPUs)")
        found[spec.key] = spec
    if not found:
        raise InputError("these reports do not name their GPU")
    if len(found) > 1:
        several = ", ".join(spec.name for spec in found.values())
        raise InputError(f"several GPU models ({several}): select the runs of one of them")
    return next(iter(found.values()))


def links_of(before: GpuSpec, after: GpuSpec) -> Links:
    """Return how communication and copies change, by the vendor's figures of both GPUs."""
    if before.key == after.key:
        return Links(1.0, 1.0, 1.0, 1.0)
    pcie = _factor(before.pcie_gbs, after.pcie_gbs)
    between = _factor(before.nvlink_gbs, after.nvlink_gbs)
    if before.nvlink_gbs is None and after.nvlink_gbs is None:
        between = pcie
    return Links(between, pcie, between, figure(before, "bandwidth") / figure(after, "bandwidth"))


def _factor(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else before / after


def project(
    con: DuckDBPyConnection,
    runs: Sequence[RunRecord],
    reports: Sequence[str],
    before: GpuSpec,
    after: GpuSpec,
) -> list[Whole]:
    """Project each configuration: its timeline, else its iteration, else its profiled kernels."""
    to, links = ratios(before, after), links_of(before, after)
    tasks = [task for run in runs for task in run.tasks]
    owned = {report for task in tasks for report in task.reports}
    groups: list[tuple[str, TaskResult | None, Sequence[str]]] = [
        (task.label, task, task.reports) for task in tasks if task.done
    ]
    loose = [report for report in reports if report not in owned]
    if loose:
        groups.append(("", None, loose))
    found: list[Whole] = []
    for label, task, own in groups:
        found += _of_configuration(con, label, task, own, to, links)
    return found


def _of_configuration(
    con: DuckDBPyConnection,
    label: str,
    task: TaskResult | None,
    reports: Sequence[str],
    to: Ratios,
    links: Links,
) -> Iterable[Whole]:
    wholes = [_of_timeline(con, label, report, to, links) for report in _timelines(con, reports)]
    if wholes:
        return wholes
    kernels = _profiled(con, reports)
    if task is not None and task.median_ms is not None:
        queued = task.timing_method == _GPU_ONLY
        now = task.median_ms * 1e6
        return [project_alone(label, ITERATION, now, kernels, to, launches=not queued)]
    if not kernels:
        return []
    now = math.fsum(kernel.time_ns for kernel in kernels)
    return [project_alone(label, KERNELS, now, kernels, to)]


def _timelines(con: DuckDBPyConnection, reports: Sequence[str]) -> list[str]:
    sql = f"SELECT DISTINCT report_id FROM step_parts WHERE report_id IN {in_list(reports)}"
    return sorted(report for (report,) in rows_of(con, sql))


def _of_timeline(
    con: DuckDBPyConnection, label: str, report: str, to: Ratios, links: Links
) -> Whole:
    rows = rows_of(
        con, f"SELECT part, time_ns, coalesce(steps, gpus) FROM step_parts {_of(report)}"
    )
    kind = STEP if any(part == STEP for part, *_ in rows) else CAPTURE
    times = {part: time for part, time, _ in rows if part not in (STEP, CAPTURE)}
    count = rows[0][2]
    kernels = _window_kernels(con, report, count)
    copies: dict[str, float] = {}
    sql = f"""
        SELECT name, sum(end_ns - start_ns) FROM _analysed_launches
        {_of(report)} AND kind IN ('memcpy', 'memset') AND NOT is_migration(name)
        GROUP BY name ORDER BY name
    """
    for name, time in rows_of(con, sql):
        kind_of_copy = _copy(name)
        copies[kind_of_copy] = copies.get(kind_of_copy, 0.0) + float(time)
    # Host times and steps cover all GPUs of the report.
    sql = f"SELECT sum(least_ns), sum(most_ns), sum(waits) FROM _host_work {_of(report)}"
    ((least, most, waits),) = rows_of(con, sql)
    ratio = _untraced(con, report) if kind == STEP else 1.0
    times = _shortened(times, ratio)
    host = None if least is None else Span(least / count * ratio, most / count * ratio)
    # With less than one wait in two steps, steps do not wait.
    ahead = waits is not None and 2 * waits < count
    return project_step(label, kind, times, kernels, copies, host, to, links, runs_ahead=ahead)


def _untraced(con: DuckDBPyConnection, report: str) -> float:
    """Return the time of a step without the profiler, of its time under the profiler; 1 if unknown.

    The GPU with the longest steps decides.
    """
    sql = f"""
        SELECT plain_ns / traced_ns FROM step_times {_of(report)} AND plain_ns IS NOT NULL
        ORDER BY traced_ns DESC, device LIMIT 1
    """
    return next((float(ratio) for (ratio,) in rows_of(con, sql)), 1.0)


def _shortened(times: Mapping[str, float], ratio: float) -> dict[str, float]:
    """Return the parts of a step that takes another time: the work of the GPU stays the same."""
    work = math.fsum(time for part, time in times.items() if part not in HOST_PARTS)
    idle = math.fsum(times.values()) - work
    left = max(ratio * (work + idle) - work, 0.0)
    scale = left / idle if idle > 0 else 1.0
    return {part: time * scale if part in HOST_PARTS else time for part, time in times.items()}


def _copy(name: str) -> str:
    """Return the kind of a copy, by nsys's name.

    >>> [_copy(f"[CUDA {n}]") for n in ("memcpy Host-to-Device", "memcpy Peer-to-Peer", "memset")]
    ['host', 'peer', 'device']
    """
    if "Host" in name:
        return HOST_COPY
    return PEER_COPY if "Peer" in name else DEVICE_COPY


def _of(report: str) -> str:
    return f"WHERE report_id = '{report}'"


def _window_kernels(con: DuckDBPyConnection, report: str, count: int) -> list[KernelTime]:
    """Return the kernels of a timeline's window, per step; profiled or not."""
    roofs: dict[tuple[str, str, str], dict[str, float]] = {}
    fitting: dict[tuple[str, str, str], int | None] = {}
    sql = f"SELECT key, grid, block, roof, pct, blocks_per_sm FROM _profiled_roofs {_of(report)}"
    for key, grid, block, roof, pct, fit in rows_of(con, sql):
        if pct is not None:
            roofs.setdefault((key, grid, block), {})[roof] = pct
        fitting[key, grid, block] = fit
    sql = f"""
        SELECT demangled, grid, block, key, bound, subclass, sum(time_ns)
        FROM _step_kernels {_of(report)} AND NOT communication
        GROUP BY demangled, grid, block, key, bound, subclass ORDER BY ALL
    """
    rows = rows_of(con, sql)
    if not rows:
        # No profile belongs to this timeline.
        sql = f"""
            SELECT demangled, concat_ws(',', grid_x, grid_y, grid_z),
                concat_ws(',', block_x, block_y, block_z), NULL, NULL, NULL, sum(dur_ns)
            FROM _windowed_kernels {_of(report)} AND inside
                AND NOT is_communication(name, coalesce(demangled, name))
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        """
        rows = rows_of(con, sql)
    found = []
    names = _short_names(con)
    for name, grid, block, key, bound, subclass, time in rows:
        own = roofs.get((key, grid, block), {}) if key is not None else {}
        use = Use(bound, subclass, own, _blocks(grid), fitting.get((key, grid, block)))
        found.append(KernelTime(names.get(name, name), grid, block, float(time) / count, use))
    return found


def _profiled(con: DuckDBPyConnection, reports: Sequence[str]) -> list[KernelTime]:
    """Return the profiled launches of reports by name, grid and block, with their total time."""
    chosen = f"WHERE report_id IN {in_list(reports)}"
    roofs: dict[tuple[str, int], dict[str, float]] = {}
    for report, launch, roof, pct in rows_of(
        con, f"SELECT report_id, launch_id, roof, pct FROM kernel_roofs {chosen}"
    ):
        roofs.setdefault((report, launch), {})[roof] = pct
    sql = f"""
        SELECT report_id, launch_id, kernel_demangled, grid, block, duration_ns, bound, subclass,
            blocks_per_sm
        FROM kernel_sol
        JOIN kernel_bottleneck USING (report_id, launch_id)
        JOIN kernel_occupancy USING (report_id, launch_id)
        {chosen} AND duration_ns IS NOT NULL ORDER BY report_id, launch_id
    """
    names = _short_names(con)
    return [
        KernelTime(
            names.get(name, name), grid, block, time, Use(bound, subclass, use, _blocks(grid), fit)
        )
        for report, launch, name, grid, block, time, bound, subclass, fit in rows_of(con, sql)
        for use in (roofs.get((report, launch), {}),)
    ]


def _short_names(con: DuckDBPyConnection) -> dict[str, str]:
    """Return the short names of kernels by their full ones."""
    return dict(rows_of(con, "SELECT demangled, min(short_name) FROM kernel_names GROUP BY 1"))


def _blocks(grid: str) -> int:
    """Return the number of blocks of a grid: '8,2,1' has 16."""
    return math.prod(int(size) for size in grid.split(",") if size)
