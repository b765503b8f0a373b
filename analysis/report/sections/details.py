"""A card for each kernel with much SOL headroom, like ncu's Details page."""

from __future__ import annotations

from perfpipe.analysis.report.cards import VIEWS, Part, cards_of
from perfpipe.analysis.report.declare import Cards, Col, Missing, SectionSpec

#: Techniques and lines of a card.
_TECHNIQUES, _LINES = 4, 8

_PARTS = (
    Part(
        "SOL breakdown",
        "kernel_sol_breakdown",
        (
            Col("side", "Compute or memory"),
            Col("part", "Unit", sql="replace(part, '_', ' ')"),
            Col("metric", "Metric", sql=r"regexp_replace(metric, '\.avg\..*$', '')"),
            Col("pct", "Throughput", "pct", "% of peak"),
        ),
        "side, rank",
        "rank <= 6",
    ),
    Part(
        "Traffic by memory level",
        "kernel_memory_levels",
        (
            Col("level", "Level", sql="CASE level WHEN 'shared' THEN level ELSE upper(level) END"),
            Col("read_bytes", "Read", "bytes"),
            Col("write_bytes", "Written", "bytes"),
            Col("bytes_per_s", "Bandwidth", "bandwidth"),
            Col("hit_pct", "Hit rate", "pct", "%"),
            Col("sol_pct", "Throughput", "pct", "% of peak"),
            Col("excess_pct", "Excess traffic", "pct", "%"),
        ),
        "place",
    ),
    Part(
        "Warp states",
        "kernel_stalls",
        (
            Col("reason", "Warp state", sql="replace(reason, '_', ' ')"),
            Col("family", "Stall group"),
            Col("cycles", "Cycles", "number", "per issued instruction"),
            Col("pct", "Share", "pct", "% of warp latency"),
            Col("samples_pct", "Share", "pct", "% of samples"),
        ),
        "coalesce(pct, samples_pct) DESC NULLS LAST, reason",
        "coalesce(pct, samples_pct) >= 0.05",
    ),
    Part(
        "Blocks that fit on an SM",
        "kernel_occupancy",
        (
            Col("resource", "Resource"),
            Col("blocks", "Blocks", "int", "per SM"),
            Col("limits", "Limiter", sql="CASE WHEN blocks = blocks_per_sm THEN 'yes' END"),
        ),
        "blocks, resource",
        "blocks IS NOT NULL",
        "UNPIVOT (SELECT report_id, launch_id, blocks_per_sm, limit_warps AS warps, "
        'limit_blocks AS slots, limit_registers AS registers, limit_shared_mem AS "shared memory", '
        "limit_barriers AS barriers, limit_clusters AS clusters FROM kernel_occupancy) "
        'ON warps, slots, registers, "shared memory", barriers, clusters '
        "INTO NAME resource VALUE blocks",
    ),
    Part(
        "NVIDIA's rules",
        "kernel_rules",
        (
            Col("title", "Rule result", sql="coalesce(title, rule)"),
            Col("speedup_pct", "Estimated speedup", "pct", "% of time"),
            Col("message", "Message", "lines"),
        ),
        "secondary, speedup_pct DESC NULLS LAST, rule, title",
        "type IN ('OPT', 'WRN')",
    ),
    Part(
        "perfpipe's techniques",
        "kernel_findings",
        (
            Col("technique", "Technique"),
            Col("gain_pct", "Largest possible gain", "pct", "% of time"),
            Col("floor", "Assumption"),
            Col("difficulty", "Difficulty"),
        ),
        "rank",
        f"rank <= {_TECHNIQUES} AND NOT coalesce(secondary, false)",
    ),
    Part(
        "Source lines with the most stalls",
        "kernel_hotspots",
        (
            Col("place", "Line", sql="parse_filename(file) || ':' || line"),
            Col("text", "Source"),
            Col("stall_pct", "Share", "pct", "% of stall samples"),
            Col("top_reason", "Top stall", sql="replace(top_reason, '_', ' ')"),
        ),
        "rank",
        "kind = 'line' AND line > 0",
        most=_LINES,
    ),
    Part(
        "Instructions with the most stalls",
        "kernel_hotspots",
        (
            Col("pc", "Offset", "int", "bytes"),
            Col("sass", "SASS"),
            Col("line", "Line", "int"),
            Col("stall_pct", "Share", "pct", "% of stall samples"),
            Col("top_reason", "Top stall", sql="replace(top_reason, '_', ' ')"),
        ),
        "rank",
        "kind = 'sass'",
        most=_LINES,
    ),
)

SECTION = SectionSpec(
    "details",
    "Kernel details",
    Missing("no profiled kernels", ncu="collect them with ncu --set full"),
    cards=Cards(
        lambda scope: cards_of(scope, _PARTS),
        (*(part.view for part in _PARTS), *VIEWS),
        "The longest launch of each kernel, for the kernels with the most SOL headroom. Click a "
        "kernel in a table or in the picture to open it here.",
    ),
)
