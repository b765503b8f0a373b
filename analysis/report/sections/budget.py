"""The time budget of each GPU and of each step."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, Col, GpuTable, Missing, SectionSpec

GPU_TIME_BUDGET = GpuTable(
    "gpu_time_budget",
    "GPU time budget",
    (
        *GPU,
        Col("category", "Category"),
        Col("time_ns", "Time", "ns"),
        Col("share_pct", "Share", "pct", "%"),
        Col("note", "Note", detail=True, hover_of="category"),
    ),
    order="time_ns DESC, category",
    where="time_ns > 0",
    figure="time_budget",
    headline=3,
    key="{category} {share_pct}",
)

STEP_SUMMARY = GpuTable(
    "step_summary",
    "Steps",
    (
        *GPU,
        Col("process_id", "Process", "int", detail=True),
        Col("steps", "Steps", "int"),
        Col("mean_ns", "Mean step", "ns"),
        Col("p50_ns", "Median step", "ns"),
        Col("p95_ns", "p95", "ns"),
        Col("cv_pct", "StdDev", "number", "% of mean"),
        Col("first_ns", "First step", "ns"),
        Col("first_loading_ns", "Loading in first step", "ns"),
        Col("outliers", "Outliers", sql="array_to_string(outliers, ', ')"),
    ),
    order="process_id",
    key="{steps} steps, median {p50_ns}, p95 {p95_ns}",
)

LOOPS = GpuTable(
    "loops",
    "Loops",
    (
        *GPU,
        Col("process_id", "Process", "int", detail=True),
        Col("loop", "Loop (--step)", "int"),
        Col("name", "One iteration", sql="concat(repeat('- ', level - 1), unit)"),
        Col("role", "Role"),
        Col("iterations", "Iterations", "int"),
        Col("usual", "In each outer iteration", "number"),
        Col("median_ns", "Median time", "ns"),
        Col("launches", "Launches", "number"),
        Col("share_pct", "GPU time after start-up", "pct", "%"),
        Col("why", "Reason", detail=True, hover_of="role"),
    ),
    order="process_id, loop",
    key="{iterations} iterations of {median_ns}",
)

STEP_SHARES = GpuTable(
    "step_shares",
    "Step time budget",
    (
        *GPU,
        Col("process_id", "Process", "int", detail=True),
        Col("step", "Step"),
        Col("step_ns", "Duration", "ns"),
        Col("compute_pct", "Compute", "pct", "%"),
        Col("communication_pct", "Communication", "pct", "%"),
        Col("migration_pct", "Migration", "pct", "%"),
        Col("transfer_pct", "Transfer", "pct", "%"),
        Col("other_process_pct", "Only other processes", "pct", "%", detail=True),
        Col("sync_pct", "Sync", "pct", "%"),
        Col("launch_gap_pct", "Launch gap", "pct", "%"),
        Col("launch_api_pct", "Launch API", "pct", "%"),
        Col("queued_pct", "Queued", "pct", "%"),
        Col("kernel_gap_pct", "Kernel gap", "pct", "%"),
        Col("device_wait_pct", "Device wait", "pct", "%"),
        Col("building_pct", "Kernel building", "pct", "%"),
        Col("no_work_pct", "Waiting for work", "pct", "%"),
        Col("loading_pct", "Loading", "pct", "%"),
        Col("host_pct", "Host-bound", "pct", "%"),
        Col("profiler_overhead_pct", "Profiler overhead", "pct", "%", detail=True),
        Col("edge_pct", "Window edges", "pct", "%", detail=True),
        Col("unattributed_pct", "Unattributed", "pct", "%"),
    ),
    order="process_id, step_index",
    figure="steps",
)

STARTUP_CAUSES = GpuTable(
    "startup_causes",
    "Start-up time by cause",
    (
        *GPU,
        Col("cause", "Host activity"),
        Col("calls", "Calls or ranges", "int"),
        Col("time_ns", "Time", "ns"),
        Col("share_pct", "Share", "pct", "%"),
    ),
    order="cause = 'everything else', time_ns DESC, cause",
    key="{cause} {time_ns}",
)

STEP_MFU = GpuTable(
    "step_mfu",
    "MFU by step",
    (
        *GPU,
        Col("step", "Step"),
        Col("step_ns", "Duration", "ns"),
        Col("mfu_pct", "MFU", "pct", "%"),
    ),
    order="step_index",
)

GPU_METRICS_SUM = GpuTable(
    "gpu_metrics_sum",
    "Sampled GPU metrics",
    (
        *GPU,
        Col("scope", "Scope"),
        Col("name", "Step"),
        Col("time_ns", "Time", "ns"),
        Col("sm_active_pct", "SMs active", "pct", "%"),
        Col("sm_issue_pct", "Issue slots", "pct", "%"),
        Col("tensor_active_pct", "Tensor pipes", "pct", "%"),
        Col("dram_read_pct", "DRAM read", "pct", "%"),
        Col("dram_write_pct", "DRAM write", "pct", "%"),
    ),
    order="scope DESC, time_ns DESC, name",
    where="scope <> 'range' AND sampled_ns > 0",
)

SECTION = SectionSpec(
    "budget",
    "Time budget",
    Missing("no timeline", nsys="collect one with nsys profile --trace=cuda,nvtx"),
    (
        GPU_TIME_BUDGET,
        LOOPS,
        STEP_SUMMARY,
        STEP_SHARES,
        STARTUP_CAUSES,
        STEP_MFU,
        GPU_METRICS_SUM,
    ),
)
