"""Kernel time by what the kernels do."""

from __future__ import annotations

from analysis.report.declare import GPU, Col, GpuTable, SectionSpec

KERNEL_CATEGORIES = GpuTable(
    "kernel_categories",
    "Kernel time by category",
    (
        *GPU,
        Col("category", "Category", sql="replace(category, '_', ' ')"),
        Col("time_ns", "Time", "ns"),
        Col("share_pct", "Share", "pct", "% of kernel time"),
        Col("launches", "Launches", "int"),
        Col("kernels", "Kernels", "int"),
        Col("mean_ns", "Mean", "ns"),
        Col("longest", "Longest kernel"),
        Col("longest_pct", "Its share", "pct", "% of category"),
    ),
    order="time_ns DESC, category",
    figure="kernel_categories",
)

SECTION = SectionSpec(
    "categories",
    "Kernel categories",
    "no kernels on a timeline; collect one with nsys profile --trace=cuda,nvtx",
    (KERNEL_CATEGORIES,),
)
