"""Occupancy, its limiters, ways to raise it, and losses of products to waves and tiles."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LAUNCH, Col, LaunchTable, Missing, SectionSpec

_PROBLEM = "CASE WHEN batch > 1 THEN batch || ' of ' ELSE '' END || m || ' x ' || n || ' x ' || k"

_FULL = "M x N of the nearest problem that fills all waves and tiles"


def _shape(rows: str, columns: str) -> str:
    return f"{rows} || ' x ' || {columns}"


KERNEL_OCCUPANCY = LaunchTable(
    "kernel_occupancy",
    "Occupancy and its limiters",
    (
        *LAUNCH,
        Col("theoretical_occupancy_pct", "Theoretical occupancy", "pct", "%"),
        Col("achieved_occupancy_pct", "Achieved occupancy", "pct", "%"),
        Col("limiters", "Limiters", sql="array_to_string(limiters, ', ')"),
        Col("blocks_per_sm", "Resident blocks", "int", "per SM"),
        Col("limit_warps", "Block limit: warps", "int", detail=True),
        Col("limit_registers", "Block limit: registers", "int", detail=True),
        Col("limit_shared_mem", "Block limit: shared memory", "int", detail=True),
        Col("limit_barriers", "Block limit: barriers", "int", detail=True),
        Col("limit_clusters", "Block limit: clusters", "int", detail=True),
        Col("next_step", "How to fit more warps"),
        Col("waves", "Waves", "number", detail=True),
        Col("tail_pct", "Partial wave", "pct", "% of time"),
    ),
    joined=("kernel_occupancy_steps",),
    figure="occupancy",
    key="{kernel_name} {achieved_occupancy_pct} achieved, {theoretical_occupancy_pct} in theory",
)

KERNEL_OCCUPANCY_WHAT_IF = LaunchTable(
    "kernel_occupancy_what_if",
    "Occupancy with other register counts, shared-memory sizes and block sizes",
    (
        *LAUNCH,
        Col("resource", "Resource"),
        Col("value", "Value", "int", "registers, bytes or threads"),
        Col("warps_per_sm", "Active warps", "int", "per SM"),
        Col("occupancy_pct", "Occupancy", "pct", "%"),
        Col("gain_pct", "Change in occupancy", "number", "points"),
        Col("current", "Used by this launch", sql="CASE WHEN current THEN 'yes' END"),
    ),
    order="resource, value",
    joined=("kernel_sol",),
    longest=3,
    figure="occupancy_what_if",
)

GEMM_QUANTISATION = LaunchTable(
    "gemm_quantisation",
    "Matrix products: losses to partial waves and tiles",
    (
        *LAUNCH,
        Col(
            "problem",
            "M x N x K",
            sql=_PROBLEM,
            doc="problem size, preceded by the batch size if there is one",
        ),
        Col("problem_source", "Size source", detail=True),
        Col("tile", "Tile", sql=_shape("tile_m", "tile_n"), doc="rows x columns of a tile"),
        Col("tile_source", "Tile source", detail=True),
        Col("blocks", "Blocks", "int"),
        Col("resident_blocks", "Concurrent blocks", "int", detail=True),
        Col("tiles", "Tiles", "int", detail=True),
        Col("waves", "Waves", "number"),
        Col("wave_lost_pct", "Lost to the last wave", "pct", "%"),
        Col("sm_idle_pct", "Measured SM idle time", "pct", "%"),
        Col("padding_pct", "Lost to padding", "pct", "%"),
        Col(
            "larger",
            "Next larger size without losses",
            sql=_shape("larger_m", "larger_n"),
            doc=_FULL,
        ),
        Col(
            "smaller",
            "Next smaller size without losses",
            sql=_shape("smaller_m", "smaller_n"),
            doc=_FULL,
        ),
        Col("wave_reason", "Why waves are unknown", detail=True, hover_of="waves"),
        Col("padding_reason", "Why padding is unknown", detail=True, hover_of="padding_pct"),
    ),
    key="{problem}, {waves} waves",
)

SECTION = SectionSpec(
    "occupancy",
    "Occupancy",
    Missing("no occupancy", ncu="collect it with ncu --section Occupancy --section LaunchStats"),
    (
        KERNEL_OCCUPANCY,
        KERNEL_OCCUPANCY_WHAT_IF,
        GEMM_QUANTISATION,
    ),
)
