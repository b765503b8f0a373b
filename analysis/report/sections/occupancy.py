"""Occupancy, what limits it, and what would raise it."""

from __future__ import annotations

from analysis.report.declare import LAUNCH, Col, LaunchTable, SectionSpec

KERNEL_OCCUPANCY = LaunchTable(
    "kernel_occupancy",
    "Occupancy and what limits it",
    (
        *LAUNCH,
        Col("theoretical_occupancy_pct", "Theoretical", "pct", "%"),
        Col("achieved_occupancy_pct", "Achieved", "pct", "%"),
        Col("limiters", "Limited by", sql="array_to_string(limiters, ', ')"),
        Col("blocks_per_sm", "Blocks", "int", "per SM"),
        Col("limit_warps", "Warps allow", "int", detail=True),
        Col("limit_registers", "Registers allow", "int", detail=True),
        Col("limit_shared_mem", "Shared memory allows", "int", detail=True),
        Col("limit_barriers", "Barriers allow", "int", detail=True),
        Col("limit_clusters", "Clusters allow", "int", detail=True),
        Col("next_step", "Next step"),
        Col("waves", "Waves", "number", detail=True),
        Col("tail_pct", "Tail", "pct", "%"),
    ),
    joined=("kernel_occupancy_steps",),
    figure="occupancy",
)

KERNEL_OCCUPANCY_WHAT_IF = LaunchTable(
    "kernel_occupancy_what_if",
    "What if: occupancy with other registers, shared memory or block size",
    (
        *LAUNCH,
        Col("resource", "Changed"),
        Col("value", "To", "int", "registers, bytes or threads"),
        Col("warps_per_sm", "Warps", "int", "per SM"),
        Col("occupancy_pct", "Occupancy", "pct", "%"),
        Col("gain_pct", "Against now", "number", "points"),
        Col("current", "Now", sql="CASE WHEN current THEN 'now' END"),
    ),
    order="resource, value",
    joined=("kernel_sol",),
    longest=3,
    figure="occupancy_what_if",
)

SECTION = SectionSpec(
    "occupancy",
    "Occupancy",
    "no occupancy; collect it with ncu --section Occupancy --section LaunchStats",
    (
        KERNEL_OCCUPANCY,
        KERNEL_OCCUPANCY_WHAT_IF,
    ),
)
