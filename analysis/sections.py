"""The sections of a report in reading order, and what to collect for those that are empty."""

from __future__ import annotations

from collections.abc import Iterable

from perfpipe.viewmodel import Section, Table

#: (id, title, views of its tables, what to collect).
_SECTIONS = (
    (
        "budget",
        "Time budget",
        "gpu_time_budget step_summary step_shares step_mfu gpu_metrics_sum",
        "no timeline; collect one with nsys profile --trace=cuda,nvtx",
    ),
    (
        "kernels",
        "Kernels",
        "kernel_headroom kernel_sol kernel_summary cuda_gpu_kern_sum",
        "no kernels; collect a timeline with nsys, or kernels with ncu --set basic",
    ),
    (
        "roofline",
        "Roofline",
        "kernel_roofline",
        "no counted operations; collect them with ncu --section SpeedOfLight_RooflineChart, and "
        "SpeedOfLight_HierarchicalTensorRooflineChart for tensor cores",
    ),
    (
        "stalls",
        "Stalls",
        "kernel_stalls",
        "no warp states; collect them with ncu --section WarpStateStats",
    ),
    (
        "occupancy",
        "Occupancy",
        "kernel_occupancy kernel_occupancy_what_if",
        "no occupancy; collect it with ncu --section Occupancy --section LaunchStats",
    ),
    (
        "memory",
        "Memory",
        "kernel_memory memory_op_summary cuda_gpu_mem_time_sum",
        "no memory counters; collect them with ncu --section MemoryWorkloadAnalysis",
    ),
    (
        "source",
        "Source hot spots",
        "kernel_hotspots kernel_rules",
        "no source counters; collect them with ncu --section SourceCounters --import-source yes",
    ),
    (
        "launches",
        "Idle gaps and launching",
        "gpu_idle_sizes gpu_idle_gaps launch_summary cuda_api_sum",
        "no timeline; collect one with nsys profile --trace=cuda,nvtx",
    ),
    (
        "communication",
        "Communication and ranks",
        "comm_overlap nccl_collectives rank_skew",
        "no communication on the timeline; collect all ranks with nsys profile --trace=cuda,nvtx",
    ),
    (
        "nvtx",
        "NVTX ranges",
        "nvtx_tree nvtx_gpu_proj_sum",
        "no NVTX range launched anything; mark steps and phases with NVTX and collect with "
        "nsys profile --trace=cuda,nvtx",
    ),
    (
        "sizes",
        "Sizes and sweeps",
        "run.json run_efficiency run_agreement",
        "no run of a workload; perfpipe run WORKLOAD.yaml times a sweep",
    ),
    (
        "tuning",
        "Tuning history",
        "tuning",
        "no search; a workload with 'tune' searches its parameters",
    ),
    (
        "regression",
        "Regression against a baseline",
        "comparison",
        "no baseline; perfpipe report RUN --baseline RUN compares runs",
    ),
)


def sections(tables: Iterable[Table]) -> tuple[Section, ...]:
    """Return every section in order, with its tables in the order of its views.

    Tables without rows are left out.
    """
    found = [table for table in tables if table.rows]
    made = []
    for name, title, views, missing in _SECTIONS:
        order = views.split()
        own = [table for table in found if table.source.view in order]
        own.sort(key=lambda table: order.index(table.source.view))
        made.append(Section(name, title, tuple(own), "" if own else missing))
    return tuple(made)
