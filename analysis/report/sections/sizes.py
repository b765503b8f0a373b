"""The configurations of a run: times, rates by size, and what each profiler says."""

from __future__ import annotations

from analysis.report.declare import Col, RunTable, SectionSpec
from analysis.report.scope import Scope
from analysis.rows import rows_of
from analysis.runs import class_change
from perfpipe.database import quote
from perfpipe.viewmodel import Table


def _peaks(scope: Scope, table: Table) -> str:
    """Say whose peaks count."""
    (run_id,) = table.source.reports
    sql = f"SELECT DISTINCT gpu, peak_source FROM run_times WHERE run_id = {quote(run_id)}"
    said = [f"Peaks of {gpu} from {source}." for gpu, source in rows_of(scope.con, sql) if gpu]
    return " ".join(said)


def _change(scope: Scope, table: Table) -> str:
    """Say how the class changes with size."""
    at = {column.name: index for index, column in enumerate(table.columns)}
    return class_change(
        [(row[at["size"]], row[at["bound"]], row[at["subclass"]]) for row in table.rows]
    )


RUN_TIMES = RunTable(
    "run_times",
    "Configurations",
    (
        Col("label", "Configuration"),
        Col("status", "Status"),
        Col("median_ms", "Median", "ms", "ms"),
        Col("min_ms", "Min", "ms", "ms"),
        Col("iterations", "n", "int"),
        Col(
            "tflops",
            "Rate",
            "number",
            "TFLOP/s",
            sql="model_flop_per_s / 1e12",
            doc="FLOPs of the workload file / median time",
        ),
        Col("mfu_pct", "MFU", "pct", "% of dense peak"),
        Col(
            "gbs",
            "Least traffic",
            "number",
            "GB/s",
            sql="effective_bytes_per_s / 1e9",
            doc="bytes of the workload file / median time",
        ),
        Col("max_abs_error", "Largest error", "number"),
        Col(
            "method",
            "Timed by",
            sql="timing_method",
            detail=True,
            doc="queued: the GPU's time alone",
        ),
        Col("sm_mhz", "SM clock", "number", "MHz", detail=True),
        Col("power_w", "Power", "number", "W", detail=True),
        Col(
            "throttled",
            "Held down by",
            sql="throttled_by",
            detail=True,
            doc="what lowered clocks meanwhile",
        ),
    ),
    order="task_index",
    limit=None,
    headline=2,
    told=_peaks,
)

RUN_EFFICIENCY = RunTable(
    "run_efficiency",
    "Sizes",
    (
        Col("label", "Configuration"),
        Col("series", "Line of the figure", detail=True, hover_of="label"),
        Col("size", "Size", "int"),
        Col("size_class", "Group", detail=True),
        Col("model_flop_per_s", "Rate", "flops"),
        Col("mfu_pct", "MFU", "pct", "% of dense peak"),
        Col("hfu_pct", "HFU", "pct", "% of dense peak", detail=True),
        Col("bound", "Bound"),
        Col("subclass", "Where"),
        Col("intensity", "Intensity", "number", "FLOP/B"),
        Col("intensity_band", "Band", detail=True),
        Col("ridge", "Ridge", "number", "FLOP/B"),
        Col("roof", "Roof"),
        Col("sol_pct", "Of the roof", "pct", "%"),
        Col("effective_bytes_per_s", "Effective bandwidth", "bandwidth"),
        Col("actual_bytes_per_s", "Actual bandwidth", "bandwidth"),
        Col("registers", "Registers", "int", "per thread", detail=True),
        Col("smem_per_block", "Shared memory", "bytes", "per block", detail=True),
    ),
    order="size, task_index",
    limit=None,
    figure="sizes",
    told=_change,
)

RUN_AGREEMENT = RunTable(
    "run_agreement",
    "Timing, nsys and ncu of an iteration",
    (
        Col("label", "Configuration"),
        Col("timed_ms", "Timed", "ms", "ms"),
        Col("traced_ms", "nsys", "ms", "ms"),
        Col("traced_span_ms", "nsys, span", "ms", "ms"),
        Col("profiled_ms", "ncu", "ms", "ms"),
        Col("traced_pct", "nsys against timed", "number", "%", sql="round(traced_pct, 1)"),
        Col("profiled_pct", "ncu against timed", "number", "%", sql="round(profiled_pct, 1)"),
        Col("explanation", "Why"),
    ),
    order="task_index",
    where="timed_ms IS NOT NULL AND (traced_ms IS NOT NULL OR profiled_ms IS NOT NULL)",
    limit=None,
)

SECTION = SectionSpec(
    "sizes",
    "Sizes and sweeps",
    "no run of a workload; perfpipe run WORKLOAD.yaml times a sweep",
    (RUN_TIMES, RUN_EFFICIENCY, RUN_AGREEMENT),
)
