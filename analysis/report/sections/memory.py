"""Memory traffic of kernels, copies and memsets."""

from __future__ import annotations

from perfpipe.analysis.report.declare import (
    DURATIONS,
    GPU,
    LABEL,
    LAUNCH,
    Col,
    GpuTable,
    LaunchTable,
    Missing,
    ReportTable,
    SectionSpec,
)

KERNEL_MEMORY = LaunchTable(
    "kernel_memory",
    "Memory traffic of profiled kernels",
    (
        *LAUNCH,
        Col("dram_bytes_per_s", "DRAM bandwidth", "bandwidth"),
        Col("l2_read_bytes", "Traffic from L2 to L1", "bytes", detail=True),
        Col("l2_write_bytes", "Traffic from L1 to L2", "bytes", detail=True),
        Col("l1_hit_pct", "L1 hit rate", "pct", "%"),
        Col("l2_hit_pct", "L2 hit rate", "pct", "%"),
        Col("sectors_per_load", "Sectors per load", "number"),
        Col("load_bytes_per_sector", "Bytes used per sector", "number", "of 32"),
        Col("global_excess_pct", "Uncoalesced access", "pct", "% of sectors"),
        Col("shared_conflict_pct", "Bank conflicts", "pct", "% of wavefronts"),
        Col("shared_load_conflict_ways", "Bank-conflict degree", "number", detail=True),
        Col("spill_requests", "Spill instructions", "int"),
        Col("atomic_requests", "Global atomics", "int"),
        Col(
            "compression_success_pct", "L2 compression success", "pct", "% of sectors", detail=True
        ),
    ),
)

MEMORY_OP_SUMMARY = GpuTable(
    "memory_op_summary",
    "Copies and memsets",
    (
        *GPU,
        Col("operation", "Operation"),
        Col("src_kind", "Source memory"),
        Col("dst_kind", "Destination memory"),
        Col("count", "Operations", "int"),
        Col("total_ns", "Time", "ns"),
        Col("bytes", "Bytes", "bytes"),
        Col("bytes_per_s", "Bandwidth", "bandwidth", detail=True),
        Col("link_pct", "Bandwidth", "pct", "% of link peak"),
        Col("covered_pct", "Overlap with kernels", "pct", "%"),
    ),
    order="total_ns DESC, operation, src_kind, dst_kind",
    key="{operation} {total_ns}",
)

CUDA_GPU_MEM_TIME_SUM = ReportTable(
    "cuda_gpu_mem_time_sum",
    "Memory operations",
    (
        Col("operation", "Operation"),
        LABEL,
        Col("time_pct", "Time", "pct", "%"),
        Col("total_time_ns", "Total", "ns"),
        Col("count", "Operations", "int"),
        *DURATIONS,
    ),
    order="total_time_ns DESC, operation, report_id",
    key="{operation} {total_time_ns}",
)

SECTION = SectionSpec(
    "memory",
    "Memory",
    Missing("no memory counters", ncu="collect them with ncu --section MemoryWorkloadAnalysis"),
    (
        KERNEL_MEMORY,
        MEMORY_OP_SUMMARY,
        CUDA_GPU_MEM_TIME_SUM,
    ),
)
