"""The kernels: headroom, speed of light, NVIDIA's rules, throughput, activity over time."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report.declare import (
    GPU,
    KERNEL,
    LABEL,
    LAUNCH,
    LONG,
    NAMED_KERNEL,
    Col,
    Given,
    GpuTable,
    LaunchTable,
    Missing,
    ReportTable,
    SectionSpec,
)
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.views import views
from perfpipe.database import in_list
from perfpipe.units import counted
from perfpipe.viewmodel import Column, Source, Table

#: Kernels for which NVIDIA's rules are compared.
_COMPARED = 20


def _texts(values: str) -> str:
    """Return a list of numbers as text, in SQL."""
    return f"array_to_string({values}, ' ')"


KERNEL_HEADROOM = ReportTable(
    "kernel_headroom",
    "SOL headroom by kernel: time from the timeline, SOL from ncu",
    (
        *NAMED_KERNEL,
        LABEL,
        Col("grid", "Grid", "text", "blocks", detail=True),
        Col("block", "Block", "text", "threads", detail=True),
        Col("instances", "Launches", "int"),
        Col("total_time_ns", "GPU time", "ns"),
        Col("time_pct", "Share", "pct", "%"),
        Col("max_sol_pct", "Max SOL", "pct", "%"),
        Col("headroom_pct", "SOL headroom", "pct", "% of kernel time"),
    ),
    order="headroom_ns DESC NULLS LAST, total_time_ns DESC, name, grid, block",
    profiled=True,
    kernels=True,
    limit=LONG,
    key="{kernel} {time_pct} of the kernel time, SOL {max_sol_pct}",
)

KERNEL_SOL = LaunchTable(
    "kernel_sol",
    "Profiled kernels",
    (
        KERNEL,
        Col("kernel_demangled", "Full name", detail=True, hover_of="kernel_name"),
        Col("launch_id", "Launch", "int"),
        LABEL,
        Col("library", "Library", detail=True),
        Col("duration_ns", "Duration", "ns"),
        Col(
            "share_pct",
            "Share",
            "pct",
            "% of profiled time",
            sql="100 * duration_ns / sum(duration_ns) OVER ()",
            doc="share of the launch in the duration of all profiled launches",
        ),
        Col("headroom_ns", "SOL headroom", "ns"),
        Col("bound", "Bound"),
        Col("subclass", "Limiter", sql="replace(subclass, '_', ' ')"),
        Col("cause", "Cause", sql="replace(cause, '_', ' ')"),
        Col("confidence", "Confidence", detail=True),
        Col("explanation", "Explanation", detail=True, hover_of="bound"),
        Col("compute_sol_pct", "Compute SOL", "pct", "%"),
        Col("memory_sol_pct", "Memory SOL", "pct", "%"),
        Col("dram_sol_pct", "DRAM throughput", "pct", "%", detail=True),
        Col("l2_sol_pct", "L2 throughput", "pct", "%", detail=True),
        Col("l1_sol_pct", "L1/TEX throughput", "pct", "%", detail=True),
        Col("shared_sol_pct", "Shared-memory throughput", "pct", "%", detail=True),
        Col("achieved_occupancy_pct", "Occupancy", "pct", "%"),
        Col("waves", "Waves", "number", detail=True),
        Col("registers", "Registers", "int", detail=True),
        Col("sm_clock_hz", "SM clock", "hz", detail=True),
        Col("grid", "Grid", detail=True),
        Col("block", "Block", detail=True),
        Col("nvtx_path", "NVTX", detail=True),
        Col("ncu_verdict", "NVIDIA's verdict", detail=True),
    ),
    joined=("kernel_bottleneck", "kernel_libraries"),
    limit=LONG,
    figure="speed_of_light",
    headline=4,
    key="{kernel_name} {duration_ns}, bound by {bound}",
)


def _agreeing(scope: Scope, _: Table) -> str:
    """Return how many results of NVIDIA's rules agree with perfpipe; these have no rows."""
    sql = f"""
        SELECT count(*) FILTER (agrees), count(*) FROM kernel_rule_comparison
        WHERE report_id IN {in_list(scope.reports)}
    """
    ((agree, total),) = rows_of(scope.con, sql)
    return (
        f"perfpipe agrees with {agree:,} of {counted(total, 'result')}. The rows list the "
        f"differences in the longest launches of up to {_COMPARED} kernels."
    )


KERNEL_RULE_COMPARISON = LaunchTable(
    "kernel_rule_comparison",
    "NVIDIA's rules that differ from perfpipe's findings",
    (
        *LAUNCH,
        Col("rule", "Rule"),
        Col("title", "Rule result"),
        Col("message", "Message", detail=True, hover_of="rule"),
        Col("nvidia_pct", "NVIDIA's estimate", "pct", "% of time"),
        Col("speedup_kind", "Scope", detail=True),
        Col("limiter", "perfpipe's limiter"),
        Col("gain_pct", "perfpipe's bound", "pct", "% of time"),
        Col("explanation", "Why they differ"),
    ),
    where="NOT agrees",
    order="nvidia_pct DESC NULLS LAST, rule, title",
    longest=_COMPARED,
    told=_agreeing,
)

KERNEL_SUMMARY = LaunchTable(
    "kernel_summary",
    "Throughput of each launch",
    (
        *LAUNCH,
        Col("duration_ns", "Duration", "ns"),
        Col("precision", "Precision"),
        Col("flop_per_s", "Throughput", "flops"),
        Col("pct_of_peak", "Throughput", "pct", "% of peak at measured clock"),
        Col(
            "pct_of_peak_max_clock",
            "Throughput",
            "pct",
            "% of peak at maximum clock",
            detail=True,
        ),
        Col("hfu_pct", "HFU", "pct", "%"),
        Col("mfu_pct", "MFU", "pct", "%"),
        Col("intensity", "Arithmetic intensity", "number", "FLOP/B"),
        Col(
            "model_intensity",
            "Algorithm's intensity",
            "number",
            "FLOP/B",
            detail=True,
        ),
        Col("ridge", "Ridge point", "number", "FLOP/B", detail=True),
        Col("intensity_band", "Intensity band", detail=True),
        Col("attained_pct", "Attained FLOP/s", "pct", "% of the DRAM roofline"),
        Col("dram_bytes_per_s", "DRAM bandwidth", "bandwidth"),
        Col("registers_per_block", "Registers", "int", "per block", detail=True),
        Col("smem_per_block", "Shared memory", "bytes", "per block", detail=True),
    ),
    key="{kernel_name} {flop_per_s}",
)

KERNEL_ACTIVITY = LaunchTable(
    "kernel_activity",
    "Activity of the SMs within a kernel, from PM sampling",
    (
        *LAUNCH,
        Col("samples", "Samples", "int"),
        Col("activity_pct", "Mean activity", "pct", "% of the plateau"),
        Col("ramp_pct", "Ramp-up", "pct", "% of time"),
        Col("bubble_pct", "Bubbles", "pct", "% of time"),
        Col("longest_bubble_ns", "Longest bubble", "ns", detail=True),
        Col("tail_pct", "Tail", "pct", "% of time"),
        Col("phases", "Phases"),
    ),
    where="activity_pct IS NOT NULL",
    key="{kernel_name} {activity_pct} of the plateau",
)

KERNEL_COURSES = LaunchTable(
    "kernel_courses",
    "Activity of units over the duration of a kernel, from PM sampling",
    (
        *LAUNCH,
        Col("unit", "Unit"),
        Col("mean_pct", "Mean activity", "pct", "%"),
        Col("max_pct", "Busiest part", "pct", "%"),
        Col("course", "Activity over time"),
        Col(
            "parts_pct",
            "Activity of each part",
            sql=_texts("parts_pct"),
            detail=True,
            hover_of="course",
        ),
        Col("leads", "Leads", sql=_texts("leads"), detail=True, hover_of="unit"),
        Col("ramp_pct", "Ramp-up", "pct", "% of time", detail=True),
        Col("tail_pct", "Tail", "pct", "% of time", detail=True),
    ),
    order="rank",
    joined=("kernel_activity",),
    # Kernels with the longest idle time of SMs come first.
    first="duration_ns * (100 - activity_pct)",
    figure="courses",
)


def _unsampled(scope: Scope) -> Iterator[Table]:
    """Yield what to collect for kernels with unknown activity over time."""
    if not scope.profiled:
        return
    rows = rows_of(
        scope.con,
        f"""
        SELECT count(*), reason FROM kernel_activity
        WHERE reason IS NOT NULL AND report_id IN {in_list(scope.reports)}
        GROUP BY reason ORDER BY count(*) DESC, reason
        """,
    )
    yield Table(
        "Kernels whose activity over time is unknown",
        views()["kernel_activity"].doc,
        (
            Column("launches", "Launches", "int", "", "number of launches"),
            Column(
                "reason", "Reason, and what to collect", "text", "", "why the activity is unknown"
            ),
        ),
        tuple(rows),
        len(rows),
        Source("kernel_activity", scope.reports),
    )


KERNEL_TREE = GpuTable(
    "kernel_tree",
    "Kernels by category and library",
    (
        Col("kernel", "Kernel", sql="if(name IS NULL, replace(kernel, '_', ' '), kernel)"),
        Col("name", "Full name", detail=True, hover_of="kernel"),
        Col("depth", "Depth", "int", detail=True),
        *GPU,
        Col("library", "Library", sql="replace(library, '_', ' ')"),
        Col("launches", "Launches", "int"),
        Col("time_ns", "GPU time", "ns"),
        Col("share_pct", "Share", "pct", "% of kernel time"),
        Col("mean_ns", "Mean", "ns"),
        Col("sol_pct", "SOL", "pct", "%"),
        Col("profiled_pct", "Profiled share", "pct", "% of the kernel's time", detail=True),
        Col("bound", "Bound"),
        Col("operators", "Fused operators"),
    ),
    order="place",
    limit=LONG,
    tree="depth",
    key="{kernel} {share_pct} of the kernel time",
)

SECTION = SectionSpec(
    "kernels",
    "Kernels",
    Missing(
        "no kernels",
        nsys="collect a timeline with nsys",
        ncu="profile kernels with ncu --set basic",
    ),
    (
        KERNEL_TREE,
        KERNEL_HEADROOM,
        KERNEL_SOL,
        KERNEL_RULE_COMPARISON,
        KERNEL_SUMMARY,
        KERNEL_ACTIVITY,
        KERNEL_COURSES,
        Given(_unsampled, ("kernel_activity",)),
    ),
)
