"""The instructions and source lines with the most stalls and excess."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LAUNCH, Col, LaunchTable, Missing, SectionSpec

KERNEL_HOTSPOTS = LaunchTable(
    "kernel_hotspots",
    "Source hot spots: top ten instructions and lines of each kernel",
    (
        *LAUNCH,
        Col("kind", "Kind"),
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
)

_CODE = "CASE WHEN closed THEN replace(library, '_', ' ') ELSE 'yours' END"

KERNEL_EXCESS = LaunchTable(
    "kernel_excess",
    "Excess by source line: the three worst lines for each problem",
    (
        *LAUNCH,
        Col("library", "Code", sql=_CODE, doc="library of the kernel, or yours"),
        Col("problem", "Problem", sql="replace(problem, '_', ' ')"),
        Col("excess_pct", "Excess", "pct", "% of the kernel's total"),
        Col("share_pct", "Here", "pct", "% of the excess"),
        Col("excess", "Count", "int"),
        Col("unit", "Unit"),
        Col("file", "File", sql="parse_filename(file)"),
        Col("line", "Line", "int"),
        Col("text", "Source line", detail=True, hover_of="line"),
        Col("sass", "Instruction"),
        Col("pc", "Offset", "int", "bytes", detail=True),
        Col("counted", "Total", "int", detail=True),
    ),
    order="excess_pct DESC, problem, rank",
    # Instructions stand in for lines where these are unknown.
    joined=("kernel_libraries",),
    where="rank <= 3 AND (kind = 'line' OR line IS NULL) AND notable",
    longest=10,
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
