"""Collectives, their overlap with compute, and the ranks that wait for each other."""

from __future__ import annotations

from perfpipe.analysis.report.declare import (
    GPU,
    LABEL,
    Col,
    GpuTable,
    JobTable,
    Missing,
    ReportTable,
    SectionSpec,
)

#: Collectives whose arrivals are shown.
_COLLECTIVES = 12

COMM_OVERLAP = GpuTable(
    "comm_overlap",
    "Communication overlap",
    (
        *GPU,
        Col("communication_ns", "Communication", "ns"),
        Col("overlapped_ns", "Overlapped with compute", "ns"),
        Col("exposed_ns", "Exposed communication", "ns"),
        Col("overlap_pct", "Overlapped with compute", "pct", "%"),
    ),
    order="communication_ns",
    where="communication_ns > 0",
    key="{exposed_ns} of {communication_ns} not overlapped",
)

NCCL_COLLECTIVES = GpuTable(
    "nccl_collectives",
    "Collectives",
    (
        *GPU,
        Col("operation", "Kernel"),
        Col("collective", "Operation"),
        Col("count", "Launches", "int"),
        Col("total_ns", "Total", "ns"),
        Col("med_ns", "Median", "ns"),
        Col("min_ns", "Min", "ns", detail=True),
        Col("max_ns", "Max", "ns", detail=True),
        Col("bytes", "Bytes", "bytes"),
        Col("bus_bytes_per_s", "Bus bandwidth", "bandwidth"),
    ),
    order="total_ns DESC, operation, collective",
    key="{operation} {total_ns}",
)

RANK_SKEW = GpuTable(
    "rank_skew",
    "Waiting time of each rank",
    (
        *GPU,
        Col("rank", "Rank", "int"),
        Col("collectives", "Collectives", "int"),
        Col("transfer_ns", "Transfer time", "ns"),
        Col("waiting_ns", "Waiting time", "ns"),
        Col("waiting_pct", "Waiting time", "pct", "% of communication"),
        Col("start_ns", "Waiting time in the first collective", "ns"),
        Col("last_pct", "Arrives last", "pct", "% of collectives"),
        Col("straggler", "Straggler"),
    ),
    order="rank",
)

COLLECTIVE_SIZES = JobTable(
    "collective_sizes",
    "Collectives by message size",
    (
        Col("operation", "Operation"),
        Col("bytes", "Bytes", "bytes"),
        Col("ranks", "Ranks", "int"),
        Col("count", "Calls", "int"),
        Col("transfer_ns", "Median transfer time", "ns"),
        Col("spread_ns", "Median time from first to last arrival", "ns"),
        Col("waiting_ns", "Waiting time of all ranks", "ns"),
        Col("algorithm_bytes_per_s", "Algorithm bandwidth", "bandwidth", detail=True),
        Col("bus_bytes_per_s", "Bus bandwidth", "bandwidth"),
    ),
    order="operation, bytes, ranks, job",
    figure="bandwidths",
)

COLLECTIVE_ARRIVALS = ReportTable(
    "collective_arrivals",
    "When each rank arrives at the collectives with the longest waits",
    (
        Col("collective", "Collective", sql="operation || ' ' || nth"),
        LABEL,
        Col("job", "Job", detail=True, hover_of="collective"),
        Col("rank", "Rank", "int"),
        Col("late_ns", "Arrival after the first rank", "ns"),
        Col("dur_ns", "Time in the collective", "ns"),
        Col("waiting_ns", "Waiting time", "ns"),
        Col("last", "Arrives last", sql="CASE WHEN last THEN 'yes' END"),
        Col("communicator", "Communicator", detail=True),
    ),
    order="job, place, rank",
    where=f"place <= {_COLLECTIVES}",
    figure="arrivals",
)

SECTION = SectionSpec(
    "communication",
    "Communication and ranks",
    Missing(
        "no communication on the timeline",
        nsys="collect all ranks with nsys profile --trace=cuda,nvtx",
        torch="trace all ranks with torch.profiler",
    ),
    (
        COMM_OVERLAP,
        NCCL_COLLECTIVES,
        RANK_SKEW,
        COLLECTIVE_ARRIVALS,
        COLLECTIVE_SIZES,
    ),
)
