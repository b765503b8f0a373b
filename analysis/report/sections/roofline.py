"""Throughput over arithmetic intensity at each memory level."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LAUNCH, Col, LaunchTable, Missing, SectionSpec

KERNEL_ROOFLINE = LaunchTable(
    "kernel_roofline",
    "Roofline",
    (
        *LAUNCH,
        Col("precision", "Precision"),
        Col("level", "Level"),
        Col("bound", "Bound"),
        Col("intensity", "Arithmetic intensity", "number", "FLOP/B"),
        Col("flop_per_s", "Throughput", "flops"),
        Col("attainable_flop_per_s", "Attainable FLOP/s", "flops", detail=True),
        Col("attained_pct", "Attained share of the roof", "pct", "%"),
        Col("roof", "Roof"),
        Col("peak_flop_per_s", "Peak at measured clock", "flops", detail=True),
        Col("peak_flop_per_s_max_clock", "Peak at maximum clock", "flops", detail=True),
        Col("peak_flop_per_s_nominal", "Vendor's peak", "flops", detail=True),
        Col("bytes_per_s", "Bandwidth", "bandwidth", detail=True),
        Col("peak_bytes_per_s", "Peak bandwidth", "bandwidth", detail=True),
        Col("bandwidth_pct", "Bandwidth", "pct", "% of peak"),
        Col("duration_ns", "Duration", "ns"),
        Col("note", "Note", detail=True, hover_of="level"),
    ),
    order="attained_pct DESC NULLS LAST, level",
    where="precision != 'none' AND (intensity IS NOT NULL OR level = 'dram')",
    joined=("kernel_bottleneck",),
    figure="roofline",
    key="{kernel_name} {flop_per_s}, {attained_pct} of the {level} roof",
)

SECTION = SectionSpec(
    "roofline",
    "Roofline",
    Missing(
        "no FLOP counters",
        ncu="collect them with ncu --section SpeedOfLight_RooflineChart, and "
        "SpeedOfLight_HierarchicalTensorRooflineChart for tensor cores",
    ),
    (KERNEL_ROOFLINE,),
)
