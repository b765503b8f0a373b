"""NVTX ranges and their work on the GPU."""

from __future__ import annotations

from analysis.report.declare import LABEL, Col, ReportTable, SectionSpec

NVTX_TREE = ReportTable(
    "nvtx_tree",
    "NVTX ranges as a tree",
    (
        Col("range", "Range", sql="repeat('- ', depth) || range"),
        LABEL,
        Col("instances", "Instances", "int"),
        Col("gpu_time_ns", "GPU time", "ns"),
        Col("own_gpu_time_ns", "of it its own", "ns"),
        Col("share_pct", "Share", "pct", "% of all operations"),
        Col("mean_ns", "Mean", "ns"),
        Col("host_time_ns", "Time on the host", "ns"),
    ),
    order="position NULLS LAST, label, report_id, tree_order",
)

NVTX_GPU_PROJ_SUM = ReportTable(
    "nvtx_gpu_proj_sum",
    "NVTX ranges on the GPU",
    (
        Col("range", "Range"),
        LABEL,
        Col("range_instances", "Instances", "int"),
        Col("total_proj_time_ns", "Span on the GPU", "ns"),
        Col("total_range_time_ns", "Time on the host", "ns"),
        Col("proj_avg_ns", "Mean", "ns"),
        Col("proj_med_ns", "Median", "ns"),
        Col("proj_min_ns", "Min", "ns"),
        Col("proj_max_ns", "Max", "ns"),
        Col("total_gpu_ops", "Launching calls", "int"),
        Col("avg_range_lvl", "Depth", "number"),
    ),
    order="total_proj_time_ns DESC, range, report_id",
)

SECTION = SectionSpec(
    "nvtx",
    "NVTX ranges",
    "no NVTX range launched anything; mark steps and phases with NVTX and "
    "collect with nsys profile --trace=cuda,nvtx",
    (
        NVTX_TREE,
        NVTX_GPU_PROJ_SUM,
    ),
)
