"""Operators with their shapes, matrix products by size, layers of kernels in CUDA graphs."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, Col, GpuTable, Missing, SectionSpec

OPERATOR_GEMMS = GpuTable(
    "operator_gemms",
    "Matrix products by M, N, K",
    (
        Col("operator", "Operator"),
        *GPU,
        Col("batch", "Batch", "int", detail=True),
        Col("m", "M", "int"),
        Col("n", "N", "int"),
        Col("k", "K", "int"),
        Col("dtype", "Data type"),
        Col("calls", "Calls", "int"),
        Col("time_ns", "GPU time", "ns"),
        Col("share_pct", "Share", "pct", "% of all operations"),
        Col("mean_ns", "Mean", "ns"),
        Col("flop_per_s", "FLOP rate", "flops"),
        Col("pct_of_peak", "FLOP rate", "pct", "% of dense peak"),
        Col("longest", "Kernel", detail=True),
    ),
    order="rank",
    key="{m} x {n} x {k} {share_pct} of the GPU time",
)

OPERATOR_SHAPES = GpuTable(
    "operator_shapes",
    "Operators by input shapes",
    (
        Col("operator", "Operator"),
        *GPU,
        Col("shapes", "Shapes of inputs"),
        Col("types", "Data types of inputs", detail=True, hover_of="shapes"),
        Col("calls", "Calls", "int"),
        Col("launches", "Launches", "int"),
        Col("time_ns", "GPU time", "ns"),
        Col("share_pct", "Share", "pct", "% of all operations"),
        Col("mean_ns", "Mean", "ns"),
        Col("longest", "Longest kernel", detail=True),
    ),
    order="rank",
    key="{operator} {share_pct} of the GPU time",
)

_UNKNOWN = """coalesce(path, CASE reason
    WHEN 'no_creation' THEN '(created before the capture began)'
    ELSE '(created outside of NVTX ranges)'
END)"""

GRAPH_RANGES = GpuTable(
    "graph_ranges",
    "Kernels in CUDA graphs by the range that captured them",
    (
        Col("path", "NVTX range at capture", sql=_UNKNOWN),
        *GPU,
        Col("nodes", "Graph nodes", "int"),
        Col("launches", "Launches", "int"),
        Col("time_ns", "GPU time", "ns"),
        Col("share_pct", "Share", "pct", "% of kernels in graphs"),
        Col("longest", "Longest kernel"),
    ),
    order="time_ns DESC, path",
    key="{nodes} nodes, {time_ns}",
)

SECTION = SectionSpec(
    "operators",
    "Operators and graphs",
    Missing(
        "no operators with shapes and no CUDA graph nodes",
        torch="profile with torch.profiler and record_shapes=True",
        nsys="trace the nodes of graphs with nsys --cuda-graph-trace=node",
    ),
    (OPERATOR_GEMMS, OPERATOR_SHAPES, GRAPH_RANGES),
)
