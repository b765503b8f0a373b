"""The configurations of a run: times, throughput by size, agreement of the profilers."""

from __future__ import annotations

from perfpipe.analysis.report.declare import Col, Missing, RunTable, SectionSpec
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.runs import class_change
from perfpipe.database import quote
from perfpipe.viewmodel import Table


def _peaks(scope: Scope, table: Table) -> str:
    """Return a sentence on the source of the peaks."""
    (run_id,) = table.source.reports
    sql = f"SELECT DISTINCT gpu, peak_source FROM run_times WHERE run_id = {quote(run_id)}"
    said = [f"Peaks of the {gpu}: {source}." for gpu, source in rows_of(scope.con, sql) if gpu]
    return " ".join(said)


def _change(scope: Scope, table: Table) -> str:
    """Return a sentence on how the bound changes with size."""
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
        Col("iterations", "Timed iterations", "int"),
        Col(
            "tflops",
            "Throughput",
            "number",
            "TFLOP/s",
            sql="model_flop_per_s / 1e12",
            doc="FLOPs declared in the workload file / median time",
        ),
        Col("mfu_pct", "MFU", "pct", "% of dense peak"),
        Col(
            "gbs",
            "Effective bandwidth",
            "number",
            "GB/s",
            sql="effective_bytes_per_s / 1e9",
            doc="bytes declared in the workload file / median time",
        ),
        Col("max_abs_error", "Largest error", "number"),
        Col(
            "method",
            "Timing method",
            sql="timing_method",
            detail=True,
            doc="queued (GPU time only), events (includes launch overhead), or observed (perfpipe "
            "timed the steps)",
        ),
        Col("sm_mhz", "SM clock", "number", "MHz", detail=True),
        Col("power_w", "Power", "number", "W", detail=True),
        Col("step_energy_j", "Energy per step", "number", "J", detail=True),
        Col("energy_j", "Energy per execution", "number", "J", detail=True),
        Col("mean_power_w", "Average power", "number", "W", detail=True),
        Col(
            "throttled",
            "Clock limiter",
            sql="throttled_by",
            detail=True,
            doc="reason for reduced clocks during timing",
        ),
    ),
    order="task_index",
    limit=None,
    headline=2,
    told=_peaks,
    key="{label} {median_ms}",
)

RUN_EFFICIENCY = RunTable(
    "run_efficiency",
    "Problem sizes",
    (
        Col("label", "Configuration"),
        Col("series", "Series", detail=True, hover_of="label"),
        Col("dtype", "Data type", detail=True),
        Col("size", "Size", "int"),
        Col("size_class", "Size group", detail=True),
        Col("model_flop_per_s", "Throughput", "flops"),
        Col("peak_flop_per_s", "Dense peak", "flops", detail=True),
        Col("mfu_pct", "MFU", "pct", "% of dense peak"),
        Col("hfu_pct", "HFU", "pct", "% of dense peak", detail=True),
        Col("bound", "Bound"),
        Col("subclass", "Limiter"),
        Col("intensity", "Arithmetic intensity", "number", "FLOP/B"),
        Col("intensity_band", "Intensity band", detail=True),
        Col("ridge", "Ridge point", "number", "FLOP/B"),
        Col("roof", "Roof"),
        Col("memory_level", "Memory level", detail=True),
        Col("sol_pct", "Share", "pct", "% of the roof"),
        Col("effective_bytes_per_s", "Effective bandwidth", "bandwidth"),
        Col("actual_bytes_per_s", "Actual bandwidth", "bandwidth"),
        Col("library", "Library", detail=True),
        Col("registers", "Registers", "int", "per thread", detail=True),
        Col("smem_per_block", "Shared memory", "bytes", "per block", detail=True),
    ),
    order="size, task_index",
    limit=None,
    figure="sizes",
    told=_change,
    key="{label} {model_flop_per_s}",
)

RUN_AGREEMENT = RunTable(
    "run_agreement",
    "Iteration time without a profiler, under nsys and under ncu",
    (
        Col("label", "Configuration"),
        Col("timed_ms", "Time without a profiler", "ms", "ms"),
        Col("traced_ms", "GPU operations under nsys", "ms", "ms"),
        Col("traced_span_ms", "GPU time span under nsys", "ms", "ms"),
        Col("profiled_ms", "Kernels under ncu", "ms", "ms"),
        Col("traced_pct", "Difference under nsys", "number", "%", sql="round(traced_pct, 1)"),
        Col("profiled_pct", "Difference under ncu", "number", "%", sql="round(profiled_pct, 1)"),
        Col("explanation", "Explanation"),
    ),
    order="task_index",
    where="timed_ms IS NOT NULL AND (traced_ms IS NOT NULL OR profiled_ms IS NOT NULL)",
    limit=None,
)

SECTION = SectionSpec(
    "sizes",
    "Problem sizes",
    Missing("no run of a workload", perfpipe="time a sweep with perfpipe run WORKLOAD.yaml"),
    (RUN_TIMES, RUN_EFFICIENCY, RUN_AGREEMENT),
)
