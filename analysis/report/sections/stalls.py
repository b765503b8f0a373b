"""Stall reasons of each launch."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LAUNCH, Col, LaunchTable, SectionSpec

KERNEL_STALLS = LaunchTable(
    "kernel_stalls",
    "Stall reasons: top three of each launch",
    (
        *LAUNCH,
        Col("reason", "Reason"),
        Col("family", "Family"),
        Col("cycles", "Cycles per instruction", "number"),
        Col("pct", "Of warp latency", "pct", "%"),
        Col("samples_pct", "Of samples", "pct", "%"),
    ),
    order="rank",
    where="rank <= 3",
    joined=("kernel_sol",),
    figure="stalls",
)

SECTION = SectionSpec(
    "stalls",
    "Stalls",
    "no warp states; collect them with ncu --section WarpStateStats",
    (KERNEL_STALLS,),
)
