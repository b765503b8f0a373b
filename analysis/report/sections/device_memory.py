"""Memory in use on each GPU over time."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, Col, GpuTable, Missing, SectionSpec

_PARTS = "array_to_string(parts_bytes, ' ')"

DEVICE_MEMORY_PEAK = GpuTable(
    "device_memory_peak",
    "Peak of device memory",
    (
        *GPU,
        Col("peak_bytes", "Peak", "bytes"),
        Col("reserved_bytes", "Peak of held memory", "bytes"),
        Col("peak_pct", "Peak", "pct", "% of GPU memory"),
        Col("peak_ns", "Time of the peak", "ns"),
        Col("step", "Step"),
        Col("nvtx_path", "NVTX ranges"),
        Col("last_bytes", "In use at the end", "bytes"),
        Col("allocations", "Allocations", "int", detail=True),
    ),
    order="device",
    key="peak {peak_bytes}",
)

DEVICE_MEMORY_COURSE = GpuTable(
    "device_memory_course",
    "Device memory over time",
    (
        *GPU,
        Col("kind", "Memory"),
        Col("max_bytes", "Peak", "bytes"),
        Col("start_ns", "Start", "ns"),
        Col("end_ns", "End", "ns"),
        Col("course", "Memory over time"),
        Col("parts_bytes", "Peak of each interval", sql=_PARTS, detail=True, hover_of="course"),
    ),
    order="kind NOT IN ('in use', 'held'), max_bytes DESC, kind",
    figure="device_memory",
)

SECTION = SectionSpec(
    "device_memory",
    "Device memory",
    Missing(
        "no allocations",
        nsys="record them with nsys profile --cuda-memory-usage=true",
        torch="record them with torch.profiler and profile_memory=True",
    ),
    (
        DEVICE_MEMORY_PEAK,
        DEVICE_MEMORY_COURSE,
    ),
)
