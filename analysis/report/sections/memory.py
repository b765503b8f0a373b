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
    "Memory",
    (
        *LAUNCH,
        Col("dram_bytes_per_s", "DRAM", "bandwidth"),
        Col("l2_read_bytes", "L2 to L1", "bytes", detail=True),
        Col("l2_write_bytes", "L1 to L2", "bytes", detail=True),
        Col("l1_hit_pct", "L1 hit", "pct", "%"),
        Col("l2_hit_pct", "L2 hit", "pct", "%"),
        Col("sectors_per_load", "Sectors per load", "number"),
        Col("load_bytes_per_sector", "Bytes used per sector", "number", "of 32"),
        Col("global_excess_pct", "Uncoalesced", "pct", "%"),
        Col("shared_conflict_pct", "Bank conflicts", "pct", "%"),
        Col("shared_load_conflict_ways", "Ways", "number", detail=True),
        Col("spill_requests", "Spills", "int"),
        Col("atomic_requests", "Atomics", "int"),
        Col("compression_success_pct", "Compressed", "pct", "%", detail=True),
    ),
)

MEMORY_OP_SUMMARY = GpuTable(
    "memory_op_summary",
    "Copies and memsets",
    (
        *GPU,
        Col("operation", "Operation"),
        Col("src_kind", "From"),
        Col("dst_kind", "To"),
        Col("count", "Count", "int"),
        Col("total_ns", "Time", "ns"),
        Col("bytes", "Bytes", "bytes"),
        Col("bytes_per_s", "Bandwidth", "bandwidth", detail=True),
        Col("link_pct", "Bandwidth", "pct", "% of link peak"),
        Col("covered_pct", "Overlapped", "pct", "%"),
    ),
    order="total_ns DESC, operation, src_kind, dst_kind",
)

CUDA_GPU_MEM_TIME_SUM = ReportTable(
    "cuda_gpu_mem_time_sum",
    "Memory operations",
    (
        Col("operation", "Operation"),
        LABEL,
        Col("time_pct", "Time", "pct", "%"),
        Col("total_time_ns", "Total", "ns"),
        Col("count", "Calls", "int"),
        *DURATIONS,
    ),
    order="total_time_ns DESC, operation, report_id",
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
