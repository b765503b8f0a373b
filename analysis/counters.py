"""Counters of profiled kernels that may tell why a kernel changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = ("ncu_launches", "kernel_metrics")

#: Counters: name, and its expression over kernel_metrics.  What a launch was given comes first,
#: then what it did, then how well.
COUNTERS = {
    "registers per thread": "registers",
    "shared memory per block, bytes": "coalesce(smem_static, 0) + smem_dynamic",
    "stack per thread, bytes": "stack_bytes",
    "waves": "waves",
    "theoretical occupancy, %": "theoretical_occupancy_pct",
    "achieved occupancy, %": "achieved_occupancy_pct",
    "instructions": "inst_executed",
    "spill instructions": "spill_requests",
    "threads per instruction": "threads_per_inst",
    "DRAM traffic, bytes": "coalesce(dram_bytes, dram_read_bytes + dram_write_bytes)",
    "L2 sectors": "l2_sectors",
    "global load sectors": "global_load_sectors",
    "global store sectors": "global_store_sectors",
    "shared-memory wavefronts": "shared_wavefronts",
    "shared-memory bank conflicts": "shared_conflicts",
    "L1 hit rate, %": "l1_hit_pct",
    "L2 hit rate, %": "l2_hit_pct",
    "IPC": "ipc_active",
    "compute SOL, %": "compute_sol_pct",
    "memory SOL, %": "memory_sol_pct",
}

#: A kernel: name, grid, block.
Kernel = tuple[str, str, str]


def counters_of(
    con: DuckDBPyConnection, reports: Sequence[str]
) -> Iterator[tuple[str, Kernel, dict[str, float]]]:
    """Yield of each report and kernel (name, grid, block) the medians of its counters."""
    chosen = ", ".join(f'median({sql}) AS "{name}"' for name, sql in COUNTERS.items())
    sql = f"""
        SELECT report_id, kernel_demangled,
            concat_ws(', ', grid_x, grid_y, grid_z), concat_ws(', ', block_x, block_y, block_z),
            {chosen}
        FROM ncu_launches JOIN kernel_metrics USING (report_id, launch_id)
        WHERE report_id IN {in_list(list(reports))}
        GROUP BY ALL ORDER BY ALL
    """
    for report, name, grid, block, *values in rows_of(con, sql):
        known = zip(COUNTERS, values, strict=True)
        yield report, (name, grid, block), {n: float(v) for n, v in known if v is not None}
