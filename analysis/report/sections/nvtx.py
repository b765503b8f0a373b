"""NVTX ranges and their GPU work."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LABEL, LONG, Col, Missing, ReportTable, SectionSpec

#: Share of the GPU time below which ranges are excluded from the tree, %.
_LEAST_PCT = 0.05

#: Prefixes without information: the default domain, the domain of operators, autograd's wrapper.
_PREFIX = "^(cpu_op)?:(autograd::engine::evaluate_function: )?"

NVTX_TREE = ReportTable(
    "nvtx_tree",
    "GPU time by NVTX range and operator, as a tree",
    (
        Col("range", "Range", sql=f"regexp_replace(range, '{_PREFIX}', '')"),
        Col("path", "Path", detail=True, hover_of="range"),
        Col("depth", "Depth", "int", detail=True),
        LABEL,
        Col("instances", "Instances", "int"),
        Col("gpu_time_ns", "GPU time", "ns"),
        Col("own_gpu_time_ns", "Self time", "ns"),
        Col("share_pct", "Share", "pct", "% of all operations"),
        Col("mean_ns", "Mean", "ns"),
        Col("backward_time_ns", "Backward pass", "ns"),
        Col("host_time_ns", "Host time", "ns"),
    ),
    order="position NULLS LAST, label, report_id, tree_order",
    where=f"share_pct >= {_LEAST_PCT}",
    told=lambda *_: f"Ranges below {_LEAST_PCT} % of the GPU time are excluded.",
    limit=LONG,
    figure="icicle",
    tree="depth",
    key="{range} {share_pct} of the GPU time",
)

NVTX_GPU_PROJ_SUM = ReportTable(
    "nvtx_gpu_proj_sum",
    "NVTX ranges projected onto the GPU",
    (
        Col("range", "Range"),
        LABEL,
        Col("range_instances", "Instances", "int"),
        Col("total_proj_time_ns", "Time span on the GPU", "ns"),
        Col("total_range_time_ns", "Host time", "ns"),
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
    Missing(
        "no NVTX range launched GPU work",
        nsys="mark steps and phases with NVTX and collect with nsys profile --trace=cuda,nvtx",
        torch="mark them with torch.profiler.record_function",
    ),
    (
        NVTX_TREE,
        NVTX_GPU_PROJ_SUM,
    ),
)
