"""The tables of a report on timelines: where the GPU's time went, and what the host did."""

from __future__ import annotations

from dataclasses import dataclass

from perfpipe.viewmodel import Kind

Spec = tuple[tuple[str, str, Kind, str], ...]

_WHICH: Spec = (("label", "Configuration", "text", ""), ("device", "GPU", "int", ""))


@dataclass(frozen=True)
class TimelineTable:
    """A table on timelines: `where` and `order` are SQL over its view.

    Its rows are of GPUs, in the order of configurations and then `order`; else of whole reports.
    """

    view: str
    title: str
    columns: Spec
    order: str
    where: str = "true"
    per_gpu: bool = True

    def sql(self, columns: Spec, chosen: str) -> str:
        """Return the query of some columns for the reports in `chosen`, a SQL list."""
        names = ", ".join(column for column, *_ in columns)
        gpus = "position NULLS LAST, label, report_id, device, " if self.per_gpu else ""
        return f"""
            SELECT {names} FROM {self.view} JOIN _labels USING (report_id)
            WHERE report_id IN {chosen} AND {self.where}
            ORDER BY {gpus}{self.order}
        """


TIMELINE_TABLES = (
    TimelineTable(
        "gpu_time_budget",
        "Where the GPU's time went",
        (
            *_WHICH,
            ("category", "Category", "text", ""),
            ("time_ns", "Time", "ns", ""),
            ("share_pct", "Share", "pct", "%"),
            ("note", "Note", "text", ""),
        ),
        "time_ns DESC, category",
        "time_ns > 0",
    ),
    TimelineTable(
        "step_summary",
        "Steps",
        (
            *_WHICH,
            ("steps", "Steps", "int", ""),
            ("mean_ns", "Mean", "ns", ""),
            ("p50_ns", "Median", "ns", ""),
            ("p95_ns", "95 %", "ns", ""),
            ("cv_pct", "Spread", "number", "% of mean"),
            ("first_ns", "First", "ns", ""),
            ("first_loading_ns", "of it loading code", "ns", ""),
            ("array_to_string(outliers, ', ') AS outliers", "Outliers", "text", ""),
        ),
        "steps",
    ),
    TimelineTable(
        "step_shares",
        "Where the time of each step went",
        (
            *_WHICH,
            ("step", "Step", "text", ""),
            ("step_ns", "Length", "ns", ""),
            ("compute_pct", "Compute", "pct", "%"),
            ("communication_pct", "Communication", "pct", "%"),
            ("transfer_pct", "Transfer", "pct", "%"),
            ("sync_pct", "Sync", "pct", "%"),
            ("launch_gap_pct", "Launch gap", "pct", "%"),
            ("launch_api_pct", "Launch API", "pct", "%"),
            ("queued_pct", "Queued", "pct", "%"),
            ("host_pct", "Host", "pct", "%"),
            ("profiler_overhead_pct", "Profiler overhead", "pct", "%"),
            ("edge_pct", "Edge", "pct", "%"),
            ("unattributed_pct", "Unattributed", "pct", "%"),
        ),
        "step_index",
    ),
    TimelineTable(
        "step_mfu",
        "Model FLOP utilisation of steps",
        (
            *_WHICH,
            ("step", "Step", "text", ""),
            ("step_ns", "Length", "ns", ""),
            ("mfu_pct", "MFU", "pct", "%"),
        ),
        "step_index",
    ),
    TimelineTable(
        "gpu_metrics_sum",
        "Sampled GPU metrics",
        (
            *_WHICH,
            ("scope", "While", "text", ""),
            ("name", "Step", "text", ""),
            ("time_ns", "Time", "ns", ""),
            ("sm_active_pct", "SMs active", "pct", "%"),
            ("sm_issue_pct", "Issue slots", "pct", "%"),
            ("tensor_active_pct", "Tensor pipes", "pct", "%"),
            ("dram_read_pct", "DRAM read", "pct", "%"),
            ("dram_write_pct", "DRAM write", "pct", "%"),
        ),
        "scope DESC, time_ns DESC, name",
        "scope <> 'range' AND sampled_ns > 0",
    ),
    TimelineTable(
        "gpu_idle_sizes",
        "Idle time by length of the interval",
        (
            *_WHICH,
            ("size", "Length", "text", ""),
            ("cause", "Cause", "text", ""),
            ("count", "Intervals", "int", ""),
            ("time_ns", "Time", "ns", ""),
            ("share_pct", "Share", "pct", "%"),
        ),
        "size_index, time_ns DESC, cause",
    ),
    TimelineTable(
        "gpu_idle_gaps",
        "Longest idle intervals",
        (
            *_WHICH,
            ("dur_ns", "Length", "ns", ""),
            ("cause", "Cause", "text", ""),
            ("next_name", "Before", "text", ""),
            ("coalesce(nvtx_path, nvtx_range) AS nvtx", "NVTX", "text", ""),
            ("sync_name", "Waited in", "text", ""),
            ("os_call", "OS call", "text", ""),
        ),
        "rank",
        "rank <= 10",
    ),
    TimelineTable(
        "launch_summary",
        "Launching",
        (
            *_WHICH,
            ("calls", "Calls", "int", ""),
            ("launches_per_ms", "Rate", "number", "per ms"),
            ("api_med_ns", "API, median", "ns", ""),
            ("queue_med_ns", "Queue, median", "ns", ""),
            ("short_kernels_pct", "Kernels < 10 us", "pct", "%"),
            ("launch_overhead_ns", "Launch overhead", "ns", ""),
            ("graphs_save_pct", "CUDA graphs save at most", "pct", "%"),
        ),
        "calls",
    ),
    TimelineTable(
        "comm_overlap",
        "Communication and overlap",
        (
            *_WHICH,
            ("communication_ns", "Communication", "ns", ""),
            ("overlapped_ns", "Behind compute", "ns", ""),
            ("exposed_ns", "Exposed", "ns", ""),
            ("overlap_pct", "Overlap", "pct", "%"),
        ),
        "communication_ns",
        "communication_ns > 0",
    ),
    TimelineTable(
        "nccl_collectives",
        "Collectives",
        (
            *_WHICH,
            ("operation", "Kernel", "text", ""),
            ("collective", "Operation", "text", ""),
            ("count", "Calls", "int", ""),
            ("total_ns", "Total", "ns", ""),
            ("med_ns", "Median", "ns", ""),
            ("min_ns", "Min", "ns", ""),
            ("max_ns", "Max", "ns", ""),
            ("bytes", "Bytes", "bytes", ""),
            ("bus_bytes_per_s", "Bus bandwidth", "bandwidth", ""),
        ),
        "total_ns DESC, operation, collective",
    ),
    TimelineTable(
        "rank_skew",
        "Ranks",
        (
            *_WHICH,
            ("rank", "Rank", "int", ""),
            ("collectives", "Collectives", "int", ""),
            ("transfer_ns", "Transfer", "ns", ""),
            ("waiting_ns", "Waiting", "ns", ""),
            ("waiting_pct", "Waiting", "pct", "%"),
            ("last_pct", "Last to arrive", "pct", "%"),
            ("straggler", "Straggler", "text", ""),
        ),
        "rank",
    ),
    TimelineTable(
        "memory_op_summary",
        "Copies and memsets",
        (
            *_WHICH,
            ("operation", "Operation", "text", ""),
            ("src_kind", "From", "text", ""),
            ("dst_kind", "To", "text", ""),
            ("count", "Count", "int", ""),
            ("total_ns", "Time", "ns", ""),
            ("bytes", "Bytes", "bytes", ""),
            ("bytes_per_s", "Bandwidth", "bandwidth", ""),
            ("link_pct", "Of the link", "pct", "%"),
            ("covered_pct", "Behind kernels", "pct", "%"),
        ),
        "total_ns DESC, operation, src_kind, dst_kind",
    ),
)

HEADROOM = TimelineTable(
    "kernel_headroom",
    "Where optimising pays: timeline joined with profiled kernels",
    (
        ("name", "Kernel", "text", ""),
        ("label", "Configuration", "text", ""),
        ("grid", "Grid", "text", "blocks"),
        ("block", "Block", "text", "threads"),
        ("instances", "Calls", "int", ""),
        ("total_time_ns", "GPU time", "ns", ""),
        ("time_pct", "Share", "pct", "%"),
        ("max_sol_pct", "Max SOL", "pct", "%"),
        ("headroom_pct", "Headroom", "pct", "% of kernel time"),
    ),
    "headroom_ns DESC NULLS LAST, total_time_ns DESC, name, grid, block",
    per_gpu=False,
)


def _summary(view: str, title: str, what: str, name: str, count: str) -> TimelineTable:
    """Return the table of a summary of nsys: what is counted, and its statistics."""
    columns: Spec = (
        (name, what, "text", ""),
        ("label", "Configuration", "text", ""),
        ("time_pct", "Time", "pct", "%"),
        ("total_time_ns", "Total", "ns", ""),
        (count, "Calls", "int", ""),
        ("avg_ns", "Mean", "ns", ""),
        ("med_ns", "Median", "ns", ""),
        ("min_ns", "Min", "ns", ""),
        ("max_ns", "Max", "ns", ""),
        ("stddev_ns", "StdDev", "ns", ""),
    )
    order = f"total_time_ns DESC, {name}, report_id"
    return TimelineTable(view, title, columns, order, per_gpu=False)


SUMMARIES = (
    _summary("cuda_gpu_kern_sum", "Kernels by name", "Kernel", "name", "instances"),
    _summary("cuda_gpu_mem_time_sum", "Memory operations", "Operation", "operation", "count"),
    _summary("cuda_api_sum", "CUDA API calls", "Function", "name", "num_calls"),
)

NVTX_TABLES = (
    TimelineTable(
        "nvtx_tree",
        "NVTX ranges as a tree",
        (
            ("repeat('- ', depth) || range AS range", "Range", "text", ""),
            ("label", "Configuration", "text", ""),
            ("instances", "Instances", "int", ""),
            ("gpu_time_ns", "GPU time", "ns", ""),
            ("own_gpu_time_ns", "of it its own", "ns", ""),
            ("share_pct", "Share", "pct", "% of all operations"),
            ("mean_ns", "Mean", "ns", ""),
            ("host_time_ns", "Time on the host", "ns", ""),
        ),
        "position NULLS LAST, label, report_id, tree_order",
        per_gpu=False,
    ),
    TimelineTable(
        "nvtx_gpu_proj_sum",
        "NVTX ranges on the GPU",
        (
            ("range", "Range", "text", ""),
            ("label", "Configuration", "text", ""),
            ("range_instances", "Instances", "int", ""),
            ("total_proj_time_ns", "Span on the GPU", "ns", ""),
            ("total_range_time_ns", "Time on the host", "ns", ""),
            ("proj_avg_ns", "Mean", "ns", ""),
            ("proj_med_ns", "Median", "ns", ""),
            ("proj_min_ns", "Min", "ns", ""),
            ("proj_max_ns", "Max", "ns", ""),
            ("total_gpu_ops", "Launching calls", "int", ""),
            ("avg_range_lvl", "Depth", "number", ""),
        ),
        "total_proj_time_ns DESC, range, report_id",
        per_gpu=False,
    ),
)
