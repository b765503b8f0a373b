"""The configurations of a run: time, throughput and share of the vendor's peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.views import views
from perfpipe.database import quote
from perfpipe.runrecord import GpuState, RunRecord
from perfpipe.specs import find_spec
from perfpipe.units import words
from perfpipe.viewmodel import Column, Kind, Source, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MEDIAN = "median time of an iteration, measured without a profiler"

_COLUMNS = (
    Column("label", "Configuration", "text"),
    Column("status", "Status", "text"),
    Column("median_ms", "Median", "ms", "ms", _MEDIAN),
    Column("min_ms", "Min", "ms", "ms", "shortest iteration"),
    Column("iterations", "n", "int", "", "timed iterations"),
    Column("tflops", "Throughput", "number", "TFLOP/s", "FLOPs of the workload file / median time"),
    Column(
        "mfu_pct", "MFU", "pct", "% of dense peak", "throughput / vendor's dense peak of that type"
    ),
    Column(
        "gbs", "Effective bandwidth", "number", "GB/s", "bytes of the workload file / median time"
    ),
    Column("max_abs_error", "Max. error", "number", "", "against the program's reference"),
    Column("method", "Timed by", "text", "", "queued: GPU time only", core=False),
    Column("sm_mhz", "SM clock", "number", "MHz", "median during timing", core=False),
    Column("power_w", "Power", "number", "W", "median during timing", core=False),
    Column(
        "throttled", "Clock limiter", "text", "", "what lowered clocks during timing", core=False
    ),
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
    """Return a sentence on how close a run comes to the vendor's peaks; None if work is unknown.

    Of the roof if the workload file declares FLOPs and bytes, else MFU.
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


_AGREEMENT: tuple[tuple[str, str, Kind, str], ...] = (
    ("label", "Configuration", "text", ""),
    ("timed_ms", "Timed", "ms", "ms"),
    ("traced_ms", "nsys", "ms", "ms"),
    ("traced_span_ms", "nsys, span", "ms", "ms"),
    ("profiled_ms", "ncu", "ms", "ms"),
    ("round(traced_pct, 1) AS traced_pct", "nsys against timed", "number", "%"),
    ("round(profiled_pct, 1) AS profiled_pct", "ncu against timed", "number", "%"),
    ("explanation", "Why", "text", ""),
)


def agreement_table(con: DuckDBPyConnection, run_id: str) -> Table:
    """Return what timing, nsys and ncu say of the configurations of a run."""
    view = views()["run_agreement"]
    names = ", ".join(name for name, *_ in _AGREEMENT)
    rows = con.execute(
        f"SELECT {names} FROM run_agreement WHERE run_id = {quote(run_id)} "
        "AND timed_ms IS NOT NULL AND (traced_ms IS NOT NULL OR profiled_ms IS NOT NULL) "
        "ORDER BY task_index"
    ).fetchall()
    return Table(
        "Timing, nsys and ncu of an iteration",
        view.doc,
        tuple(
            Column(name := expression.split(" AS ")[-1], title, kind, unit, view.columns[name])
            for expression, title, kind, unit in _AGREEMENT
        ),
        tuple(rows),
        len(rows),
        Source("run_agreement", (run_id,)),
    )


_SIZE_COLUMNS: tuple[tuple[str, str, Kind, str], ...] = (
    ("label", "Configuration", "text", ""),
    ("size", "Size", "int", ""),
    ("size_class", "Group", "text", ""),
    ("model_flop_per_s", "Rate", "flops", ""),
    ("mfu_pct", "MFU", "pct", "% of dense peak"),
    ("hfu_pct", "HFU", "pct", "% of dense peak"),
    ("bound", "Bound", "text", ""),
    ("subclass", "Where", "text", ""),
    ("intensity", "Intensity", "number", "FLOP/B"),
    ("intensity_band", "Band", "text", ""),
    ("ridge", "Ridge", "number", "FLOP/B"),
    ("roof", "Roof", "text", ""),
    ("sol_pct", "Of the roof", "pct", "%"),
    ("effective_bytes_per_s", "Effective bandwidth", "bandwidth", ""),
    ("actual_bytes_per_s", "Actual bandwidth", "bandwidth", ""),
    ("registers", "Registers", "int", "per thread"),
    ("smem_per_block", "Shared memory", "bytes", "per block"),
)
_SIZE_DETAIL = {"size_class", "intensity_band", "registers", "smem_per_block", "hfu_pct"}


def size_table(con: DuckDBPyConnection, run_id: str) -> Table:
    """Return the configurations of a run by size, with a sentence on how the class changes."""
    view = views()["run_efficiency"]
    names = ", ".join(name for name, *_ in _SIZE_COLUMNS)
    rows = con.execute(
        f"SELECT {names} FROM run_efficiency WHERE run_id = {quote(run_id)} "
        "ORDER BY size, task_index"
    ).fetchall()
    at = {name: index for index, (name, *_) in enumerate(_SIZE_COLUMNS)}
    classes = [(row[at["size"]], row[at["bound"]], row[at["subclass"]]) for row in rows]
    columns = tuple(
        Column(name, title, kind, unit, view.columns[name], name not in _SIZE_DETAIL)
        for name, title, kind, unit in _SIZE_COLUMNS
    )
    return Table(
        "Sizes",
        f"{view.doc} {class_change(classes)}".strip(),
        columns,
        tuple(rows),
        len(rows),
        Source("run_efficiency", (run_id,)),
    )


def class_change(classes: list[tuple[int | None, str | None, str | None]]) -> str:
    """Return a sentence on how the bound changes with size, for (size, bound, subclass) rows.

    >>> class_change([(512, "latency", "small_grid"), (8192, "compute", "tensor")])
    'The bound changes with size: latency (small grid) at 512, compute (tensor) from 8192.'
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
        return f"The bound is the same at every size: {steps[0][1]}."
    parts = [
        f"{name} {'from' if sizes is steps[-1][0] else 'at'} "
        + (
            f"{sizes[0]}"
            if sizes is steps[-1][0] or len(sizes) == 1
            else f"{sizes[0]} to {sizes[-1]}"
        )
        for sizes, name in steps
    ]
    return f"The bound changes with size: {', '.join(parts)}."
