"""Stall reasons of each launch."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LAUNCH, Col, LaunchTable, Missing, SectionSpec

KERNEL_STALLS = LaunchTable(
    "kernel_stalls",
    "Stall reasons: top three of each launch",
    (
        *LAUNCH,
        Col("reason", "Reason"),
        Col("family", "Family"),
        Col("cycles", "Cycles per instruction", "number"),
        Col("pct", "Share", "pct", "% of warp latency"),
        Col("samples_pct", "Share", "pct", "% of samples"),
    ),
    order="rank",
    where="rank <= 3",
    joined=("kernel_sol",),
    figure="stalls",
    key="{kernel_name} {reason} {pct} of the warp latency",
)

SECTION = SectionSpec(
    "stalls",
    "Stalls",
    Missing("no warp states", ncu="collect them with ncu --section WarpStateStats"),
    (KERNEL_STALLS,),
)
