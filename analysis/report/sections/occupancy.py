"""Occupancy, its limiters, ways to raise it, and losses of products to waves and tiles."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LAUNCH, Col, LaunchTable, Missing, SectionSpec

_PROBLEM = "CASE WHEN batch > 1 THEN batch || ' of ' ELSE '' END || m || ' x ' || n || ' x ' || k"

_FULL = "M x N of the nearest problem with full waves and full tiles"


def _shape(rows: str, columns: str) -> str:
    return f"{rows} || ' x ' || {columns}"


KERNEL_OCCUPANCY = LaunchTable(
    "kernel_occupancy",
    "Occupancy and its limiters",
    (
        *LAUNCH,
        Col("theoretical_occupancy_pct", "Theoretical", "pct", "%"),
        Col("achieved_occupancy_pct", "Achieved", "pct", "%"),
        Col("limiters", "Limiters", sql="array_to_string(limiters, ', ')"),
        Col("blocks_per_sm", "Blocks", "int", "per SM"),
        Col("limit_warps", "Limit: warps", "int", detail=True),
        Col("limit_registers", "Limit: registers", "int", detail=True),
        Col("limit_shared_mem", "Limit: shared memory", "int", detail=True),
        Col("limit_barriers", "Limit: barriers", "int", detail=True),
        Col("limit_clusters", "Limit: clusters", "int", detail=True),
        Col("next_step", "Next step"),
        Col("waves", "Waves", "number", detail=True),
        Col("tail_pct", "Tail", "pct", "%"),
    ),
    joined=("kernel_occupancy_steps",),
    figure="occupancy",
)

KERNEL_OCCUPANCY_WHAT_IF = LaunchTable(
    "kernel_occupancy_what_if",
    "What if: occupancy by registers, shared memory and block size",
    (
        *LAUNCH,
        Col("resource", "Resource"),
        Col("value", "Value", "int", "registers, bytes or threads"),
        Col("warps_per_sm", "Warps", "int", "per SM"),
        Col("occupancy_pct", "Occupancy", "pct", "%"),
        Col("gain_pct", "Change", "number", "points"),
        Col("current", "Current", sql="CASE WHEN current THEN 'now' END"),
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
            doc="problem size, after the batch size if there is one",
        ),
        Col("problem_source", "Size source", detail=True),
        Col("tile", "Tile", sql=_shape("tile_m", "tile_n"), doc="rows x columns of a tile"),
        Col("tile_source", "Tile source", detail=True),
        Col("blocks", "Blocks", "int"),
        Col("resident_blocks", "Concurrent", "int", "blocks", detail=True),
        Col("tiles", "Tiles", "int", detail=True),
        Col("waves", "Waves", "number"),
        Col("wave_lost_pct", "Lost to the last wave", "pct", "%"),
        Col("sm_idle_pct", "SMs idle", "pct", "%, measured"),
        Col("padding_pct", "Lost to padding", "pct", "%"),
        Col("larger", "Next full size", sql=_shape("larger_m", "larger_n"), doc=_FULL),
        Col("smaller", "Previous full size", sql=_shape("smaller_m", "smaller_n"), doc=_FULL),
        Col("wave_reason", "Why waves are unknown", detail=True, hover_of="waves"),
        Col("padding_reason", "Why padding is unknown", detail=True, hover_of="padding_pct"),
    ),
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
