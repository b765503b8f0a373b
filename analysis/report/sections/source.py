"""The instructions and source lines with the most stalls and excess."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LAUNCH, Col, LaunchTable, Missing, SectionSpec

KERNEL_HOTSPOTS = LaunchTable(
    "kernel_hotspots",
    "Instructions and source lines with the most stalls: ten per kernel",
    (
        *LAUNCH,
        Col("kind", "Row type"),
        Col("file", "File", detail=True),
        Col("line", "Line", "int", detail=True),
        Col("pc", "Offset", "int", "bytes", detail=True),
        Col("text", "Source line"),
        Col("sass", "Instruction"),
        Col("stall_pct", "Share", "pct", "% of stall samples"),
        Col("top_reason", "Top stall"),
        Col("top_reason_pct", "Top stall's share", "pct", "%", detail=True),
    ),
    order="kind, rank",
    where="rank <= 10",
    longest=10,
    key="{kernel_name} {stall_pct} of the stall samples at one line",
)

_CODE = "CASE WHEN closed THEN replace(library, '_', ' ') ELSE 'your code' END"

KERNEL_EXCESS = LaunchTable(
    "kernel_excess",
    "Source lines that do unnecessary work: the three worst for each problem",
    (
        *LAUNCH,
        Col("library", "Code owner", sql=_CODE, doc="library of the kernel, or your code"),
        Col("problem", "Problem", sql="replace(problem, '_', ' ')"),
        Col("excess_pct", "Excess of the launch", "pct", "% of its total"),
        Col("share_pct", "This line's share", "pct", "% of the excess"),
        Col("excess", "Excess count", "int"),
        Col("unit", "Unit"),
        Col("file", "File", sql="parse_filename(file)"),
        Col("line", "Line", "int"),
        Col("text", "Source line", detail=True, hover_of="line"),
        Col("sass", "Instruction"),
        Col("pc", "Offset", "int", "bytes", detail=True),
        Col("counted", "Total count", "int", detail=True),
    ),
    order="excess_pct DESC, problem, rank",
    # Instructions stand in for lines where these are unknown.
    joined=("kernel_libraries",),
    where="rank <= 3 AND (kind = 'line' OR line IS NULL) AND notable",
    longest=10,
    key="{kernel_name} {problem}, {excess_pct} too much",
)

SECTION = SectionSpec(
    "source",
    "Source hot spots",
    Missing(
        "no source counters",
        ncu="collect them with ncu --section SourceCounters --import-source yes",
    ),
    (
        KERNEL_HOTSPOTS,
        KERNEL_EXCESS,
    ),
)
