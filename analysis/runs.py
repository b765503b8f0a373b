"""The configurations of a run: time, rate and share of the vendor's peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpipe.query import quote
from perfpipe.runrecord import GpuState, RunRecord
from perfpipe.specs import find_spec
from perfpipe.units import words
from perfpipe.viewmodel import Column, Source, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = ("run_efficiency",)

_MEDIAN = "median time of an iteration, measured without a profiler"

_COLUMNS = (
    Column("label", "Configuration", "text"),
    Column("status", "Status", "text"),
    Column("median_ms", "Median", "ms", "ms", _MEDIAN),
    Column("min_ms", "Min", "ms", "ms", "shortest iteration"),
    Column("iterations", "n", "int", "", "timed iterations"),
    Column("tflops", "Rate", "number", "TFLOP/s", "FLOPs of the workload file / median time"),
    Column("mfu_pct", "MFU", "pct", "% of dense peak", "rate / vendor's dense peak of that type"),
    Column("gbs", "Least traffic", "number", "GB/s", "bytes of the workload file / median time"),
    Column("max_abs_error", "Largest error", "number", "", "against the program's reference"),
    Column("method", "Timed by", "text", "", "queued: the GPU's time alone", core=False),
    Column("sm_mhz", "SM clock", "number", "MHz", "median while it was timed", core=False),
    Column("power_w", "Power", "number", "W", "median while it was timed", core=False),
    Column("throttled", "Held down by", "text", "", "what lowered clocks meanwhile", core=False),
)


def task_table(run: RunRecord, device: tuple[str | None, int | None]) -> Table:
    """Return the table of a run's configurations.

    MFU = workload FLOPs / median time / vendor dense peak; NULL without FLOPs or a known GPU.
    """
    name, sms = device
    spec = find_spec(name, sms) if name else None
    rows = []
    for task in run.tasks:
        state = task.gpu_state or GpuState()
        times, median = task.times_ms, task.median_ms
        rate = task.flops / median / 1e9 if median and task.flops else None
        peak = spec.dense.get(task.dtype) if spec and task.dtype else None
        rows.append(
            (
                task.label,
                task.status if task.error is None else f"{task.status}: {task.error}",
                median,
                min(times) if times else None,
                len(times) or None,
                rate,
                100 * rate / peak if rate and peak else None,
                task.bytes / median / 1e6 if median and task.bytes else None,
                task.validation.max_abs_error if task.validation else None,
                task.timing_method,
                state.sm_mhz,
                state.power_w,
                ", ".join(state.throttled_by or ()) or None,
            )
        )
    peak_of = f"; peaks of {spec.name} from {spec.source}" if spec else ""
    doc = f"Time of each configuration, measured without a profiler{peak_of}."
    return Table(
        "Configurations",
        doc,
        _COLUMNS,
        tuple(rows),
        len(rows),
        Source("run.json", (run.run_id,)),
    )


def reach(con: DuckDBPyConnection, run_id: str) -> str | None:
    """Return a sentence on how near to the vendor's peaks a run comes; None where work is unknown.

    Of the roof where the workload file states operations and bytes, else MFU.
    """
    rows = con.execute(
        "SELECT short_label, sol_pct, e.mfu_pct FROM run_efficiency AS e "
        "JOIN run_tasks USING (run_id, task_index) "
        f"WHERE run_id = {quote(run_id)} ORDER BY task_index"
    ).fetchall()
    for at, what in ((1, "of the vendor's peak"), (2, "MFU")):
        known = [(row[at], row[0]) for row in rows if row[at] is not None]
        if not known:
            continue
        low, high = min(known), max(known)
        if len(known) == 1:
            return f"Timed without a profiler: {low[0]:.1f} % {what}"
        return (
            f"Timed without a profiler: {low[0]:.1f} % ({low[1]}) to {high[0]:.1f} % ({high[1]}) "
            f"{what}"
        )
    return None


def class_change(classes: list[tuple[int | None, str | None, str | None]]) -> str:
    """Return a sentence on how the class changes with size, for (size, bound, subclass) rows.

    >>> class_change([(512, "latency", "small_grid"), (8192, "compute", "tensor")])
    'With size the class changes: latency (small grid) at 512, compute (tensor) from 8192.'
    """
    by_size: dict[int, set[str]] = {}
    for size, bound, subclass in classes:
        if size is not None and bound is not None:
            name = f"{bound} ({words(subclass)})" if subclass else bound
            by_size.setdefault(size, set()).add(name)
    steps: list[tuple[list[int], str]] = []
    for size in sorted(by_size):
        name = " or ".join(sorted(by_size[size]))
        if steps and steps[-1][1] == name:
            steps[-1][0].append(size)
        else:
            steps.append(([size], name))
    if len(by_size) < 2:
        return ""
    if len(steps) == 1:
        return f"The class is the same at every size: {steps[0][1]}."
    parts = [
        f"{name} {'from' if sizes is steps[-1][0] else 'at'} "
        + (
            f"{sizes[0]}"
            if sizes is steps[-1][0] or len(sizes) == 1
            else f"{sizes[0]} to {sizes[-1]}"
        )
        for sizes, name in steps
    ]
    return f"With size the class changes: {', '.join(parts)}."
