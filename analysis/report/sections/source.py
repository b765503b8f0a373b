"""The instructions and lines with most stalls, and NVIDIA's rules."""

from __future__ import annotations

from analysis.report.declare import LAUNCH, Col, LaunchTable, SectionSpec

KERNEL_HOTSPOTS = LaunchTable(
    "kernel_hotspots",
    "Source hot spots, the first ten instructions and lines of each kernel",
    (
        *LAUNCH,
        Col("kind", "Kind"),
        Col("file", "File", detail=True),
        Col("line", "Line", "int", detail=True),
        Col("pc", "Offset", "int", "bytes", detail=True),
        Col("text", "Source line"),
        Col("sass", "Instruction"),
        Col("stall_pct", "Of stall samples", "pct", "%"),
        Col("top_reason", "Mostly"),
        Col("top_reason_pct", "That reason", "pct", "%", detail=True),
    ),
    order="kind, rank",
    where="rank <= 10",
    longest=10,
)

KERNEL_RULES = LaunchTable(
    "kernel_rules",
    "NVIDIA's rules",
    (
        *LAUNCH,
        Col("rule", "Rule"),
        Col("title", "Result"),
        Col("speedup_pct", "Estimate", "pct", "% of time"),
        Col("speedup_kind", "Of"),
        Col("source", "Source"),
        Col("message", "Message", detail=True, hover_of="title"),
    ),
    order="speedup_pct DESC NULLS LAST, rule, title",
    where="type = 'OPT' AND NOT secondary",
    joined=("kernel_sol",),
)

SECTION = SectionSpec(
    "source",
    "Source hot spots",
    "no source counters; collect them with ncu --section SourceCounters --import-source yes",
    (
        KERNEL_HOTSPOTS,
        KERNEL_RULES,
    ),
)
