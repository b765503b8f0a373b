"""The kernels of a baseline, beside those of a report: the same metrics of the same kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.units import format_ns, format_rate
from perfpipe.viewmodel import Column, Source, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that the metrics are read from.
VIEWS = ("kernel_sol", "kernel_occupancy", "kernel_memory", "_launch_names")

#: Metrics of a launch: column, name, and kind.
_METRICS = (
    ("duration_ns", "Duration", "ns"),
    ("compute_sol_pct", "Compute SOL", "pct"),
    ("memory_sol_pct", "Memory SOL", "pct"),
    ("dram_bytes_per_s", "DRAM bandwidth", "bandwidth"),
    ("l1_hit_pct", "L1 hit rate", "pct"),
    ("l2_hit_pct", "L2 hit rate", "pct"),
    ("achieved_occupancy_pct", "Achieved occupancy", "pct"),
    ("theoretical_occupancy_pct", "Theoretical occupancy", "pct"),
    ("registers", "Registers per thread", "count"),
    ("smem_allocated", "Shared memory per block", "count"),
    ("global_excess_pct", "Uncoalesced access", "pct"),
    ("shared_conflict_pct", "Bank conflicts", "pct"),
)

_COLUMNS = (
    Column("metric", "Metric", "text"),
    Column("before", "Baseline", "text", "", "value of the longest launch in the baseline"),
    Column("now", "Now", "text", "", "value of this launch"),
    Column("change_pct", "Change", "change", "%", "(now - baseline) / baseline"),
)

#: Metrics of the longest launch of each kernel, by its short name; None for one not collected.
Kernels = Mapping[str, Mapping[str, float | None]]


def kernels_of(con: DuckDBPyConnection, reports: Sequence[str]) -> Kernels:
    """Return the metrics of the longest launch of each kernel, by its short name."""
    names = [name for name, _, _ in _METRICS]
    found = rows_of(
        con,
        f"""
        SELECT short_name, {", ".join(names)}
        FROM kernel_sol AS s
        JOIN _launch_names USING (report_id, launch_id)
        JOIN (SELECT report_id, launch_id, smem_allocated FROM kernel_occupancy)
            USING (report_id, launch_id)
        JOIN (
            SELECT report_id, launch_id, dram_bytes_per_s, l1_hit_pct, l2_hit_pct,
                global_excess_pct, shared_conflict_pct
            FROM kernel_memory
        ) USING (report_id, launch_id)
        WHERE report_id IN {in_list(reports)}
        QUALIFY row_number() OVER (
            PARTITION BY short_name ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id
        ) = 1
        """,
    )
    return {kernel: dict(zip(names, values, strict=True)) for kernel, *values in found}


def beside(
    before: Mapping[str, float | None], now: Mapping[str, float | None], source: Source
) -> Table:
    """Return the metrics of a kernel beside those of the baseline, where both are known."""
    rows = []
    for name, title, kind in _METRICS:
        old, new = before.get(name), now.get(name)
        if old is not None and new is not None:
            change = 100 * (new - old) / old if old else None
            rows.append((title, _said(old, kind), _said(new, kind), change))
    return Table("Compared with the baseline", "", _COLUMNS, tuple(rows), len(rows), source)


def _said(value: float, kind: str) -> str:
    if kind == "ns":
        return format_ns(value)
    if kind == "bandwidth":
        return format_rate(value, "B/s")
    return f"{value:.1f} %" if kind == "pct" else f"{value:,.0f}"
