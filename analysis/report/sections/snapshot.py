"""Memory of PyTorch by line, from a snapshot of its allocator."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, Col, KindTable, Missing, SectionSpec


def _place(prefix: str = "") -> str:
    """Return the SQL of a line as FILE:LINE, without the folders of the file."""
    file, line = f"{prefix}file", f"{prefix}line"
    return f"regexp_extract({file}, '[^/\\\\]*$') || coalesce(':' || {line}, '')"


#: The line that allocated: of the program, and of the library that it called.
_LINE = (
    Col("place", "Line", sql=_place(), doc="innermost line of the program itself"),
    Col("function", "Function"),
    Col("library_place", "Line of a library", sql=_place("library_"), doc="line of the library"),
    Col("file", "File", detail=True, hover_of="place"),
)


class _SnapshotTable(KindTable):
    """A table of the GPUs of memory snapshots."""

    kind = "memory"

    def ordered(self) -> str:
        return f"device, {self.order}"


PEAK = _SnapshotTable(
    "snapshot_peak",
    "Peak of PyTorch's memory",
    (
        *GPU,
        Col("peak_bytes", "Peak", "bytes"),
        Col("peak_ns", "Time of the peak", "ns"),
        Col("reserved_at_peak_bytes", "Reserved at the peak", "bytes"),
        Col("reserved_bytes", "Peak of reserved memory", "bytes", detail=True),
        Col("memory_bytes", "GPU memory", "bytes"),
        Col("before_bytes", "Before the first event", "bytes"),
        Col("end_bytes", "In use at the end", "bytes"),
        Col("end_reserved_bytes", "Reserved at the end", "bytes"),
        Col("split_bytes", "Free between tensors", "bytes"),
        Col("largest_free_bytes", "Largest free block", "bytes"),
        Col("free_blocks", "Free blocks", "int", detail=True),
        Col("rounding_bytes", "Rounding", "bytes", detail=True),
        Col("events", "Events", "int", detail=True),
    ),
    order="peak_bytes DESC",
    key="peak {peak_bytes}",
)

COURSE = _SnapshotTable(
    "snapshot_course",
    "What PyTorch's memory is for, over time",
    (
        *GPU,
        Col("category", "Memory"),
        Col("max_bytes", "Peak", "bytes"),
        Col("at_peak_bytes", "At the peak of all", "bytes"),
        Col("end_bytes", "At the end", "bytes"),
        Col(
            "parts_bytes",
            "In each interval",
            sql="array_to_string(parts_bytes, ' ')",
            detail=True,
            hover_of="category",
        ),
    ),
    order="category NOT IN ('in use', 'held'), max_bytes DESC, category",
    figure="snapshot",
)

OWNERS = _SnapshotTable(
    "snapshot_owners",
    "Lines whose memory is in use at the peak",
    (
        *GPU,
        Col("category", "Memory"),
        *_LINE,
        Col("operator", "Operator"),
        Col("peak_bytes", "At the peak", "bytes"),
        Col("peak_pct", "Share", "pct", "% of the peak"),
        Col("peak_blocks", "Blocks", "int"),
        Col("end_bytes", "At the end", "bytes", detail=True),
        Col("allocations", "Allocations", "int", detail=True),
        Col("modules", "Modules", detail=True),
        Col("stack", "Stack", detail=True, hover_of="function"),
    ),
    order="peak_bytes DESC, category, file, line, library_file, library_line, operator, function",
    where="peak_bytes > 0",
    limit=40,
    headline=1,
    key="{place} {peak_bytes}",
)

GROWTH = _SnapshotTable(
    "snapshot_growth",
    "Lines whose memory grows from step to step",
    (
        *GPU,
        *_LINE,
        Col("bytes_per_step", "Growth", "bytes", "per step"),
        Col("grown_bytes", "Growth in all", "bytes"),
        Col("grown_steps", "Steps with growth", "int"),
        Col("steps", "Steps", "int"),
        Col("blocks", "Blocks in use", "int"),
        Col("example", "Stack", detail=True, hover_of="function"),
    ),
    order="grown_bytes DESC, file, line, library_file, library_line, function",
)

OOMS = _SnapshotTable(
    "snapshot_ooms",
    "Allocations that failed",
    (
        *GPU,
        Col("place", "Line", sql=_place(), doc="innermost line of the program itself"),
        Col("function", "Function"),
        Col("bytes", "Asked for", "bytes"),
        Col("cause", "Cause"),
        Col("allocated_bytes", "In use", "bytes"),
        Col("reserved_bytes", "Reserved", "bytes"),
        Col("between_bytes", "Free between tensors", "bytes"),
        Col("device_free_bytes", "Free in CUDA", "bytes"),
        Col("largest_category", "Largest part"),
        Col("largest_bytes", "Its memory", "bytes"),
        Col("time_ns", "Time", "ns", detail=True),
        Col("file", "File", detail=True, hover_of="place"),
    ),
    order="event",
)

BATCH = _SnapshotTable(
    "snapshot_batch",
    "Whether a larger batch fits",
    (
        *GPU,
        Col("peak_bytes", "Peak", "bytes"),
        Col("later_peak_bytes", "Peak of later steps", "bytes"),
        Col("scaling_bytes", "Scales with the batch", "bytes"),
        Col("unknown_bytes", "Unknown use", "bytes"),
        Col("double_bytes", "Peak with twice the batch", "bytes"),
        Col("capacity_bytes", "Available", "bytes"),
        Col("fits_double", "Fits"),
        Col("factor", "Largest batch", "number", "times this one"),
        Col("capacity_source", "Available according to", detail=True),
    ),
    order="peak_bytes DESC",
    where="scaling_bytes > 0",
)

STEPS = _SnapshotTable(
    "snapshot_steps",
    "PyTorch's memory at the end of each step",
    (
        *GPU,
        Col("step", "Step", "int"),
        Col("bytes", "In use at its end", "bytes"),
        Col("peak_bytes", "Peak within it", "bytes"),
        Col("source", "Ended by", detail=True),
    ),
    order="step",
    folded=True,
)

SECTION = SectionSpec(
    "snapshot",
    "PyTorch memory",
    Missing(
        "no memory snapshot of PyTorch",
        perfpipe="call torch.cuda.memory._record_memory_history() before the program starts, "
        "torch.cuda.memory._dump_snapshot(FILE) at its end, and ingest FILE",
    ),
    (PEAK, COURSE, OWNERS, GROWTH, OOMS, BATCH, STEPS),
)
