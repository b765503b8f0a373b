"""The bounds of the kernels of a step, and the kernels that were or should be profiled."""

from __future__ import annotations

from perfpipe.analysis.report.declare import (
    GPU,
    LABEL,
    Col,
    GpuTable,
    Missing,
    ReportTable,
    SectionSpec,
)

STEP_BOUNDS = GpuTable(
    "step_bounds",
    "What bounds the kernel time",
    (
        *GPU,
        Col("bound", "Bound"),
        Col("subclass", "Limiter", sql="replace(subclass, '_', ' ')"),
        Col("kernels", "Kernels", "int"),
        Col("time_ns", "GPU time", "ns"),
        Col("share_pct", "Share", "pct", "%"),
        Col("sol_pct", "SOL", "pct", "%"),
        Col("headroom_pct", "SOL headroom", "pct", "% of kernel time"),
    ),
    order="rank",
    profiled=True,
    key="{bound} {share_pct} of the kernel time",
)

STEP_COVERAGE = GpuTable(
    "step_coverage",
    "Profiled share of the kernel time",
    (
        *GPU,
        Col("window_kind", "Window"),
        Col("steps", "Steps", "int"),
        Col("kernel_time_ns", "Kernel time", "ns"),
        Col("configurations", "Kernels", "int"),
        Col("profiled_configurations", "Profiled kernels", "int"),
        Col("profiled_pct", "Profiled share", "pct", "% of kernel time", detail=True),
        Col("communication_pct", "Communication", "pct", "% of kernel time"),
        Col("unprofiled_pct", "Not profiled", "pct", "% of kernel time"),
        Col("coverage_pct", "Profiled, excluding communication", "pct", "%"),
    ),
    order="device",
    profiled=True,
    key="{coverage_pct} profiled",
)

PROFILE_PLAN = ReportTable(
    "profile_plan",
    "Kernels to profile, in order of GPU time",
    (
        Col("name", "Kernel"),
        Col("demangled", "Full name", detail=True, hover_of="name"),
        LABEL,
        Col("grid", "Grid", "text", "blocks"),
        Col("block", "Block", "text", "threads"),
        Col("instances", "Variants", "int", detail=True),
        Col("launches", "Launches", "int"),
        Col("time_ns", "GPU time", "ns"),
        Col("share_pct", "Share", "pct", "%"),
        Col("cumulative_pct", "Cumulative share", "pct", "%"),
    ),
    order="report_id, rank",
    where="chosen",
)

SECTION = SectionSpec(
    "bounds",
    "What bounds the kernels",
    Missing("no timeline with kernels", nsys="collect one with nsys profile --trace=cuda,nvtx"),
    (STEP_BOUNDS, STEP_COVERAGE, PROFILE_PLAN),
)
