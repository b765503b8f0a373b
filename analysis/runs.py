"""The configurations of a run: time, rate and share of the vendor's peak."""

from __future__ import annotations

import statistics
from typing import Any

from perfpipe.specs import find_spec
from perfpipe.viewmodel import Column, Source, Table

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
)


def task_table(run: dict[str, Any], device: tuple[str | None, int | None]) -> Table:
    """Return the table of a run's configurations.

    MFU = workload FLOPs / median time / vendor dense peak; NULL without FLOPs or a known GPU.
    """
    name, sms = device
    spec = find_spec(name, sms) if name else None
    rows = []
    for task in run["tasks"]:
        times = task["times_ms"]
        median = statistics.median(times) if times else None
        rate = task["flops"] / median / 1e9 if median and task["flops"] else None
        peak = spec.dense.get(task["dtype"]) if spec and task["dtype"] else None
        rows.append(
            (
                task["label"],
                task["status"] if task["error"] is None else f"{task['status']}: {task['error']}",
                median,
                min(times) if times else None,
                len(times) or None,
                rate,
                100 * rate / peak if rate and peak else None,
                task["bytes"] / median / 1e6 if median and task["bytes"] else None,
                (task["validation"] or {}).get("max_abs_error"),
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
        Source("run.json", (run["run_id"],)),
    )
