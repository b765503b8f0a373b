"""Kernel time by category and by library."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, Col, GpuTable, Missing, SectionSpec
from perfpipe.analysis.report.scope import Scope
from perfpipe.viewmodel import Table

_CODE = "CASE WHEN closed THEN 'library' ELSE 'user' END"


def _unknown(scope: Scope, table: Table) -> str:
    """Return a sentence on the time of kernels that no rule matches."""
    at = {column.name: index for index, column in enumerate(table.columns)}
    shares = [row[at["share_pct"]] for row in table.rows if row[at["category"]] == "other"]
    known = [share for share in shares if isinstance(share, float)]
    if not known:
        return ""
    most = "up to " if len(known) > 1 else ""
    return (
        f"Kernels that match no category rule take {most}{max(known):.1f} % of a GPU's kernel time."
    )


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
        Col("longest_pct", "Longest kernel's share", "pct", "% of category"),
    ),
    order="time_ns DESC, category",
    figure="kernel_categories",
    told=_unknown,
    key="{category} {share_pct} of the kernel time",
)

KERNEL_LIBRARY_TIMES = GpuTable(
    "kernel_library_times",
    "Kernel time by library",
    (
        *GPU,
        Col("library", "Library", sql="replace(library, '_', ' ')"),
        Col(
            "code",
            "Code owner",
            sql=_CODE,
            doc="library (you cannot change the code of the kernels) or user (you can)",
        ),
        Col("time_ns", "Time", "ns"),
        Col("share_pct", "Share", "pct", "% of kernel time"),
        Col("launches", "Launches", "int"),
        Col("kernels", "Kernels", "int"),
        Col("longest", "Longest kernel"),
        Col("longest_pct", "Longest kernel's share", "pct", "% of library"),
    ),
    order="time_ns DESC, library",
    key="{library} {share_pct} of the kernel time",
)

SECTION = SectionSpec(
    "categories",
    "Kernel categories",
    Missing("no kernels on a timeline", nsys="collect one with nsys profile --trace=cuda,nvtx"),
    (
        KERNEL_CATEGORIES,
        KERNEL_LIBRARY_TIMES,
    ),
)
