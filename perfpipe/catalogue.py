"""The tables that are made from manifests and run records: their columns, and a row of each."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from perfpipe.database import ColumnSpec
from perfpipe.manifest import Manifest

#: Tables that are made from manifests and run records: name -> (column, type, meaning).
CATALOGUE: dict[str, tuple[ColumnSpec, ...]] = {
    "reports": (
        ("report_id", "VARCHAR", "report"),
        ("run_id", "VARCHAR", "newest run that gave it; NULL when it was ingested by hand"),
        ("kind", "VARCHAR", "ncu, nsys or torch"),
        ("format", "VARCHAR", "format of the input"),
        ("source_name", "VARCHAR", "file name of the input"),
        ("sha256", "VARCHAR", "of the input, decompressed"),
        ("tool_version", "VARCHAR", "version of the profiler"),
        ("export_schema", "VARCHAR", "version of the nsys export schema"),
        ("captured_at", "VARCHAR", "start of the capture, UTC"),
        ("started_ns", "BIGINT", "zero of the report's times, ns since 1970, UTC"),
        ("directory", "VARCHAR", "directory of the input when it was read"),
        ("host", "VARCHAR", "host name"),
        ("command", "VARCHAR", "profiled command"),
        ("gpu", "VARCHAR", "device name"),
        ("sm_count", "BIGINT", "multiprocessors of that device"),
        ("recorded", "BOOLEAN", "whether a run replayed it from a recording"),
        ("warnings", "VARCHAR[]", "what the checks on the way in found"),
    ),
    "runs": (
        ("run_id", "VARCHAR", "run"),
        ("workload", "VARCHAR", "name of the workload"),
        ("collector", "VARCHAR", "ncu, nsys, torch or replay"),
        ("started_at", "VARCHAR", "start, UTC"),
        ("status", "VARCHAR", "done or failed"),
        ("reports", "VARCHAR[]", "reports that it gave"),
    ),
    "run_tasks": (
        ("run_id", "VARCHAR", "run"),
        ("task_index", "BIGINT", "counts the configurations of the run 0.."),
        ("label", "VARCHAR", "parameters as text, such as m=512 n=512"),
        ("status", "VARCHAR", "done or failed"),
        ("error", "VARCHAR", "why it failed"),
        ("median_ms", "DOUBLE", "median time of an iteration without a profiler, ms"),
        ("params", "VARCHAR", "parameters as JSON"),
        ("flops", "DOUBLE", "floating-point operations of an iteration by the workload file"),
        ("bytes", "DOUBLE", "bytes that an iteration must move, by the workload file"),
        ("dtype", "VARCHAR", "type whose peak counts"),
        ("reports", "VARCHAR[]", "reports of this configuration"),
        ("failure", "VARCHAR", "kind: wrong_result, out_of_resources, timeout, crash or profiler"),
        ("generation", "BIGINT", "round of a search, counted from 0; NULL elsewhere"),
        ("timing_method", "VARCHAR", "how it was timed: queued, events or wall clock"),
        ("times_ms", "DOUBLE[]", "samples of all launches in order, ms"),
        ("registers", "BIGINT", "of its Triton kernel, per thread, as compiled"),
        ("spills", "BIGINT", "registers of it that are kept in memory"),
        ("sm_mhz", "DOUBLE", "median clock of the SMs while it was timed, MHz; of the first GPU"),
        ("power_w", "DOUBLE", "median power while it was timed, W; of the first GPU"),
        ("throttled_by", "VARCHAR[]", "what held clocks down while it was timed"),
        ("short_label", "VARCHAR", "those of its parameters that differ within the run, as text"),
    ),
    "launch_work": (
        ("report_id", "VARCHAR", "report"),
        ("kernel", "VARCHAR", "regular expression of full kernel names; NULL for any"),
        ("nvtx", "VARCHAR", "regular expression of NVTX paths; NULL for any"),
        ("flop", "DOUBLE", "floating-point operations of a launch"),
        ("bytes", "DOUBLE", "bytes that it must move at least"),
        ("dtype", "VARCHAR", "type whose peak counts"),
    ),
    "collection_gaps": (
        ("report_id", "VARCHAR", "report"),
        ("table_name", "VARCHAR", "table that is empty or incomplete"),
        ("column_name", "VARCHAR", "column that is NULL throughout; empty for the whole table"),
        ("reason", "VARCHAR", "why"),
    ),
}

CATALOGUE_DOCS = {
    "reports": "Ingested reports, one row each.",
    "runs": "What perfpipe launched or replayed, one row each.",
    "run_tasks": "Configurations of runs, one row each.",
    "launch_work": "Work that 'perfpipe work' stated of launches.",
    "collection_gaps": "What a report does not hold, and why; such values are NULL, never 0.",
}


def run_row(run: dict[str, Any]) -> tuple[Any, ...]:
    """Return the row of `runs` of a run."""
    names = [name for name, _, _ in CATALOGUE["runs"]]
    return tuple(run[name] for name in names)


def task_row(run: dict[str, Any], task: dict[str, Any]) -> tuple[Any, ...]:
    """Return the row of `run_tasks` of a task."""
    times = task["times_ms"]
    kernel = task.get("kernel") or {}
    return (
        run["run_id"],
        task["index"],
        task["label"],
        task["status"],
        task["error"],
        statistics.median(times) if times else None,
        json.dumps(task["params"]),
        task["flops"],
        task["bytes"],
        task["dtype"],
        task["reports"],
        task.get("failure"),
        task.get("generation"),
        task.get("timing_method"),
        times,
        kernel.get("registers"),
        kernel.get("spills"),
        *gpu_state_of(task),
        _short_label(run, task),
    )


def gpu_state_of(
    task: dict[str, Any],
) -> tuple[float | None, float | None, list[str] | None]:
    """Return SM clock (MHz) and power (W), medians of the first GPU, and what held clocks down."""
    state: dict[str, Any] = next(iter((task.get("gpu_state") or {}).get("gpus", [])), {})
    return (
        state.get("sm_mhz", {}).get("median"),
        state.get("power_w", {}).get("median"),
        state.get("throttled_by"),
    )


def _short_label(run: dict[str, Any], task: dict[str, Any]) -> str:
    others = [other["params"] for other in run["tasks"]]
    differing = [
        f"{name}={value}"
        for name, value in task["params"].items()
        if any(params.get(name) != value for params in others)
    ]
    return " ".join(differing) or str(task["label"])


#: Columns of `reports` that runs give; manifests give the others.
_OF_RUNS = ("run_id", "recorded")

MANIFEST_COLUMNS = tuple(spec for spec in CATALOGUE["reports"] if spec[0] not in _OF_RUNS)


def manifest_row(m: Manifest) -> tuple[Any, ...]:
    """Return what `reports` tells of a manifest, in the order of MANIFEST_COLUMNS."""
    facts = m.facts
    return (
        m.report_id,
        m.kind,
        m.format,
        m.source_name,
        m.sha256,
        facts.tool_version,
        facts.export_schema,
        facts.captured_at,
        facts.started_ns,
        str(Path(m.source_path).parent),
        facts.host,
        facts.command,
        facts.gpu,
        facts.sm_count,
        list(m.warnings),
    )


def gap_rows(m: Manifest) -> list[tuple[str, ...]]:
    """Return the rows of `collection_gaps` of a report."""
    return [(m.report_id, gap.table, gap.column, gap.reason) for gap in m.missing]
