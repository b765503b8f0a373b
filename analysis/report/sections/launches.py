"""Idle intervals of the GPU, and launching calls."""

from __future__ import annotations

from perfpipe.analysis.report.declare import (
    DURATIONS,
    GPU,
    LABEL,
    Col,
    GpuTable,
    Missing,
    ReportTable,
    SectionSpec,
)

GPU_IDLE_SIZES = GpuTable(
    "gpu_idle_sizes",
    "Idle time by interval length",
    (
        *GPU,
        Col("size", "Interval length"),
        Col("cause", "Cause"),
        Col("count", "Intervals", "int"),
        Col("time_ns", "Time", "ns"),
        Col("share_pct", "Share", "pct", "%"),
    ),
    order="size_index, time_ns DESC, cause",
    figure="idle_time",
)

IDLE_CAUSES = GpuTable(
    "idle_causes",
    "Idle time by cause and location",
    (
        *GPU,
        Col("cause", "Cause"),
        Col("kind", "Activity type"),
        Col("name", "Activity"),
        Col("nvtx_range", "NVTX range"),
        Col("count", "Intervals", "int"),
        Col("time_ns", "Time", "ns"),
        Col("share_pct", "Share", "pct", "% of idle time"),
    ),
    order="rank",
    where="rank <= 12",
)

GPU_IDLE_GAPS = GpuTable(
    "gpu_idle_gaps",
    "Longest idle intervals",
    (
        *GPU,
        Col("dur_ns", "Duration", "ns"),
        Col("cause", "Cause"),
        Col("next_name", "Next operation"),
        Col("nvtx", "NVTX", sql="coalesce(nvtx_path, nvtx_range)"),
        Col("during_range", "Host range"),
        Col("sync_name", "Synchronizing call"),
        Col("api_call", "CUDA call", detail=True),
        Col("os_call", "OS runtime call"),
        Col("other_thread", "Other thread's activity", detail=True),
    ),
    order="rank",
    where="rank <= 10",
    key="longest {dur_ns}: {cause}",
)

LAUNCH_SUMMARY = GpuTable(
    "launch_summary",
    "Kernel launches",
    (
        *GPU,
        Col("calls", "Launching calls", "int"),
        Col("launches_per_ms", "Launching calls", "number", "per ms"),
        Col("api_med_ns", "Median launching call", "ns"),
        Col("queue_med_ns", "Median queue time", "ns"),
        Col("short_kernels_pct", "Kernels < 10 us", "pct", "%"),
        Col("launch_overhead_ns", "Launch overhead", "ns"),
        Col("graphs_save_pct", "Saved by CUDA graphs", "pct", "%"),
    ),
    order="calls",
    key="{calls} launching calls, median {api_med_ns}",
)

SMALL_READBACKS = GpuTable(
    "small_readbacks",
    "Small copies to the host",
    (
        *GPU,
        Col("copies", "Copies", "int"),
        Col("per_step", "Copies per step", "number"),
        Col("calls_pct", "Share", "pct", "% of launching calls"),
        Col("max_bytes", "Largest copy", "bytes"),
        Col("idle_ns", "GPU idle time after the copies", "ns"),
        Col("share_pct", "GPU idle time after the copies", "pct", "%"),
    ),
    order="copies DESC",
    key="{copies} copies",
)

CUDA_API_SUM = ReportTable(
    "cuda_api_sum",
    "CUDA API calls",
    (
        Col("name", "Function"),
        LABEL,
        Col("time_pct", "Time", "pct", "%"),
        Col("total_time_ns", "Total", "ns"),
        Col("num_calls", "Calls", "int"),
        *DURATIONS,
    ),
    order="total_time_ns DESC, name, report_id",
    key="{name} {time_pct} of the time",
)

SECTION = SectionSpec(
    "launches",
    "Idle gaps and launch overhead",
    Missing("no timeline", nsys="collect one with nsys profile --trace=cuda,nvtx"),
    (
        GPU_IDLE_SIZES,
        IDLE_CAUSES,
        GPU_IDLE_GAPS,
        LAUNCH_SUMMARY,
        SMALL_READBACKS,
        CUDA_API_SUM,
    ),
)
