"""The tables of a report on profiled kernels: each a view, with what the launch is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfpipe.viewmodel import Kind

#: (column, title, kind, unit).
Spec = tuple[tuple[str, str, Kind, str], ...]

_WHICH: Spec = (
    ("kernel_name", "Kernel", "text", ""),
    ("launch_id", "Launch", "int", ""),
    ("label", "Configuration", "text", ""),
)


@dataclass(frozen=True)
class KernelTable:
    """A table of launches: `where` and `order` are SQL over its view.

    What is largest by `first` comes first.  With `longest` only that many kernels are in it, each
    by its longest launch.
    """

    view: str
    title: str
    columns: Spec
    where: str = "true"
    order: str = ""
    joined: tuple[str, ...] = ()
    longest: int = 0
    first: str = "duration_ns"

    def sql(self, columns: Spec, chosen: str) -> str:
        """Return the query of some columns for the reports in `chosen`, a SQL list."""
        names = ", ".join(column for column, *_ in columns)
        joins = " ".join(f"JOIN {view} USING (report_id, launch_id)" for view in self.joined)
        if "kernel_sol" not in (self.view, *self.joined):
            joins += (
                " JOIN (SELECT report_id, launch_id, duration_ns FROM kernel_sol) "
                "USING (report_id, launch_id)"
            )
        order = f", {self.order}" if self.order else ""
        where = self.where
        if self.longest:
            where += f" AND (report_id, launch_id) IN ({_longest(self.longest, chosen)})"
        return f"""
            SELECT {names}
            FROM {self.view} {joins} JOIN _labels USING (report_id)
            WHERE report_id IN {chosen} AND {where}
            ORDER BY {self.first} DESC NULLS LAST, report_id, launch_id{order}
        """


def _longest(count: int, chosen: str) -> str:
    """Return the query of the longest launch of each of some kernels."""
    return f"""
        SELECT report_id, launch_id FROM (
            SELECT report_id, launch_id, duration_ns
            FROM kernel_sol
            WHERE report_id IN {chosen}
            QUALIFY row_number() OVER (
                PARTITION BY kernel_name, registers
                ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id
            ) = 1
        )
        ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id LIMIT {count}
    """


KERNELS = KernelTable(
    "kernel_sol",
    "Profiled kernels",
    (
        ("kernel_name", "Kernel", "text", ""),
        ("kernel_demangled", "Full name", "text", ""),
        ("launch_id", "Launch", "int", ""),
        ("label", "Configuration", "text", ""),
        ("duration_ns", "Duration", "ns", ""),
        ("headroom_ns", "Headroom", "ns", ""),
        ("bound", "Bound", "text", ""),
        ("subclass", "Where", "text", ""),
        ("cause", "Why", "text", ""),
        ("confidence", "Confidence", "text", ""),
        ("explanation", "Explanation", "text", ""),
        ("compute_sol_pct", "Compute SOL", "pct", "%"),
        ("memory_sol_pct", "Memory SOL", "pct", "%"),
        ("dram_sol_pct", "DRAM", "pct", "%"),
        ("l2_sol_pct", "L2", "pct", "%"),
        ("l1_sol_pct", "L1/TEX", "pct", "%"),
        ("shared_sol_pct", "Shared", "pct", "%"),
        ("achieved_occupancy_pct", "Occupancy", "pct", "%"),
        ("waves", "Waves", "number", ""),
        ("registers", "Registers", "int", ""),
        ("sm_clock_hz", "SM clock", "hz", ""),
        ("grid", "Grid", "text", ""),
        ("block", "Block", "text", ""),
        ("nvtx_path", "NVTX", "text", ""),
        ("ncu_verdict", "NVIDIA's verdict", "text", ""),
    ),
    joined=("kernel_bottleneck",),
    first="headroom_ns",
)

TABLES = (
    KernelTable(
        "kernel_summary",
        "Rates",
        (
            *_WHICH,
            ("duration_ns", "Duration", "ns", ""),
            ("precision", "Precision", "text", ""),
            ("flop_per_s", "Rate", "flops", ""),
            ("pct_of_peak", "Of peak, measured clock", "pct", "%"),
            ("pct_of_peak_max_clock", "Of peak, maximum clock", "pct", "%"),
            ("hfu_pct", "HFU: of vendor's peak", "pct", "%"),
            ("mfu_pct", "MFU", "pct", "%"),
            ("intensity", "Intensity", "number", "FLOP/B"),
            ("model_intensity", "Intensity of the algorithm", "number", "FLOP/B"),
            ("ridge", "Ridge", "number", "FLOP/B"),
            ("intensity_band", "Band", "text", ""),
            ("attained_pct", "Of the DRAM roofline", "pct", "%"),
            ("dram_bytes_per_s", "DRAM", "bandwidth", ""),
            ("registers_per_block", "Registers", "int", "per block"),
            ("smem_per_block", "Shared memory", "bytes", "per block"),
        ),
    ),
    KernelTable(
        "kernel_roofline",
        "Roofline",
        (
            *_WHICH,
            ("precision", "Precision", "text", ""),
            ("level", "Level", "text", ""),
            ("bound", "Bound", "text", ""),
            ("intensity", "Intensity", "number", "FLOP/B"),
            ("flop_per_s", "Rate", "flops", ""),
            ("attainable_flop_per_s", "Attainable", "flops", ""),
            ("attained_pct", "Attained", "pct", "%"),
            ("roof", "Roof", "text", ""),
            ("peak_flop_per_s", "Peak, measured clock", "flops", ""),
            ("peak_flop_per_s_max_clock", "Peak, maximum clock", "flops", ""),
            ("peak_flop_per_s_nominal", "Peak, vendor", "flops", ""),
            ("bytes_per_s", "Traffic", "bandwidth", ""),
            ("peak_bytes_per_s", "Bandwidth", "bandwidth", ""),
            ("bandwidth_pct", "Of bandwidth", "pct", "%"),
            ("duration_ns", "Duration", "ns", ""),
            ("note", "Note", "text", ""),
        ),
        where="precision != 'none' AND (intensity IS NOT NULL OR level = 'dram')",
        order="flop_per_s DESC",
        joined=("kernel_bottleneck",),
    ),
    KernelTable(
        "kernel_stalls",
        "Stall reasons, the largest three of each launch",
        (
            *_WHICH,
            ("reason", "Reason", "text", ""),
            ("family", "Family", "text", ""),
            ("cycles", "Cycles per instruction", "number", ""),
            ("pct", "Of warp latency", "pct", "%"),
            ("samples_pct", "Of samples", "pct", "%"),
        ),
        where="rank <= 3",
        order="rank",
        joined=("kernel_sol",),
    ),
    KernelTable(
        "kernel_occupancy",
        "Occupancy and what limits it",
        (
            *_WHICH,
            ("theoretical_occupancy_pct", "Theoretical", "pct", "%"),
            ("achieved_occupancy_pct", "Achieved", "pct", "%"),
            ("array_to_string(limiters, ', ') AS limiters", "Limited by", "text", ""),
            ("blocks_per_sm", "Blocks", "int", "per SM"),
            ("limit_warps", "Warps allow", "int", ""),
            ("limit_registers", "Registers allow", "int", ""),
            ("limit_shared_mem", "Shared memory allows", "int", ""),
            ("limit_barriers", "Barriers allow", "int", ""),
            ("limit_clusters", "Clusters allow", "int", ""),
            ("next_step", "Next step", "text", ""),
            ("waves", "Waves", "number", ""),
            ("tail_pct", "Tail", "pct", "%"),
        ),
        joined=("kernel_occupancy_steps",),
    ),
    KernelTable(
        "kernel_occupancy_what_if",
        "What if: occupancy with other registers, shared memory or block size",
        (
            *_WHICH,
            ("resource", "Changed", "text", ""),
            ("value", "To", "int", "registers, bytes or threads"),
            ("warps_per_sm", "Warps", "int", "per SM"),
            ("occupancy_pct", "Occupancy", "pct", "%"),
            ("gain_pct", "Against now", "number", "points"),
            ("CASE WHEN current THEN 'now' END AS current", "Now", "text", ""),
        ),
        order="resource, value",
        joined=("kernel_sol",),
        longest=3,
    ),
    KernelTable(
        "kernel_memory",
        "Memory",
        (
            *_WHICH,
            ("dram_bytes_per_s", "DRAM", "bandwidth", ""),
            ("l2_read_bytes", "L2 to L1", "bytes", ""),
            ("l2_write_bytes", "L1 to L2", "bytes", ""),
            ("l1_hit_pct", "L1 hit", "pct", "%"),
            ("l2_hit_pct", "L2 hit", "pct", "%"),
            ("sectors_per_load", "Sectors per load", "number", ""),
            ("load_bytes_per_sector", "Bytes used per sector", "number", "of 32"),
            ("global_excess_pct", "Uncoalesced excess", "pct", "%"),
            ("shared_conflict_pct", "Bank conflicts", "pct", "%"),
            ("shared_load_conflict_ways", "Ways", "number", ""),
            ("spill_requests", "Spills", "int", ""),
            ("atomic_requests", "Atomics", "int", ""),
            ("compression_success_pct", "Compressed", "pct", "%"),
        ),
    ),
    KernelTable(
        "kernel_hotspots",
        "Source hot spots, the first ten instructions and lines of each kernel",
        (
            *_WHICH,
            ("kind", "Kind", "text", ""),
            ("file", "File", "text", ""),
            ("line", "Line", "int", ""),
            ("pc", "Offset", "int", "bytes"),
            ("text", "Source line", "text", ""),
            ("sass", "Instruction", "text", ""),
            ("stall_pct", "Of stall samples", "pct", "%"),
            ("top_reason", "Mostly", "text", ""),
            ("top_reason_pct", "That reason", "pct", "%"),
        ),
        where="rank <= 10",
        order="kind, rank",
        longest=10,
    ),
    KernelTable(
        "kernel_rules",
        "NVIDIA's rules",
        (
            *_WHICH,
            ("rule", "Rule", "text", ""),
            ("title", "Result", "text", ""),
            ("speedup_pct", "Estimate", "pct", "% of time"),
            ("speedup_kind", "Of", "text", ""),
            ("source", "Source", "text", ""),
            ("message", "Message", "text", ""),
        ),
        where="type = 'OPT' AND NOT secondary",
        order="speedup_pct DESC NULLS LAST, rule, title",
        joined=("kernel_sol",),
    ),
)

#: Shown in HTML and JSON only.
DETAIL = frozenset(
    "kernel_demangled nvtx_path grid block dram_sol_pct l2_sol_pct l1_sol_pct shared_sol_pct waves "
    "registers sm_clock_hz ncu_verdict explanation pct_of_peak_max_clock intensity_band "
    "registers_per_block smem_per_block peak_flop_per_s peak_flop_per_s_max_clock "
    "peak_flop_per_s_nominal bytes_per_s peak_bytes_per_s note limit_warps limit_registers "
    "limit_shared_mem limit_barriers limit_clusters file line pc top_reason_pct message "
    "l2_read_bytes l2_write_bytes shared_load_conflict_ways compression_success_pct "
    "model_intensity".split()
)


def views_used(tables: Sequence[KernelTable]) -> str:
    """Return the names of the views that the tables read, as one text."""
    return " ".join(name for table in tables for name in (table.view, *table.joined))
