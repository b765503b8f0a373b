"""What a memory snapshot of PyTorch shows, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import in_list
from perfpipe.units import counted, format_bytes

#: Views that are read here.
VIEWS = (
    "snapshot_batch",
    "snapshot_course",
    "snapshot_growth",
    "snapshot_ooms",
    "snapshot_owners",
    "snapshot_peak",
)

#: What follows the bytes of a category.
_WORDS = {
    "forward": "that forward passes allocated",
    "backward": "that a backward pass allocated",
    "earlier": "from before the first event",
    "unknown": "of unknown use",
    "temporary": "for temporary tensors",
}

#: Categories of the sentence about the peak, and lines that grow.
_PARTS, _GROWING = 3, 2

#: How many times the peak later steps need before the report says so.
_MORE = 1.01


class Peak(NamedTuple):
    """The peak of the GPU with the highest peak."""

    report: str
    device: int
    bytes: int
    reserved: int
    end_bytes: int
    end_reserved: int
    split: int
    largest_free: int
    expandable: int | None
    memory: int | None


def peak_of(scope: Scope) -> Peak | None:
    """Return the highest peak of the snapshots; None without one."""
    if not scope.kinds.get("memory"):
        return None
    sql = f"""
        SELECT report_id, device, peak_bytes, reserved_at_peak_bytes, end_bytes, end_reserved_bytes,
            split_bytes, largest_free_bytes, expandable, memory_bytes
        FROM snapshot_peak WHERE report_id IN {in_list(scope.reports)}
        ORDER BY peak_bytes DESC, report_id, device LIMIT 1
    """
    rows = rows_of(scope.con, sql)
    return Peak(*rows[0]) if rows else None


def sentences(scope: Scope) -> Iterator[str]:
    """Yield what the memory of the fullest GPU is for, what grows, what failed, and what fits."""
    peak = peak_of(scope)
    if peak is None:
        return
    yield from _failed(scope, peak)
    yield _parts(scope, peak)
    yield from _growing(scope, peak)
    yield from _fragmented(peak)
    yield from _larger(scope, peak)


def parts_of(scope: Scope, peak: Peak) -> list[tuple[str, int]]:
    """Return the categories of the memory at the peak with their bytes, largest first."""
    return _rows(
        scope,
        peak,
        "category, at_peak_bytes",
        "snapshot_course",
        "category NOT IN ('in use', 'held') AND at_peak_bytes > 0 ORDER BY 2 DESC, 1",
    )


def _parts(scope: Scope, peak: Peak) -> str:
    """Return the sentence about the peak, by category, with the largest line."""
    parts = [
        f"{format_bytes(size)} ({100 * size / max(peak.bytes, 1):.0f} %) {_used(category)}"
        for category, size in parts_of(scope, peak)[:_PARTS]
    ]
    text = f"At the peak, tensors use {format_bytes(peak.bytes)} of GPU {peak.device}"
    if peak.memory:
        text += f", which is {100 * peak.bytes / peak.memory:.0f} % of its memory"
    if parts:
        text += f": {', '.join(parts)}"
    owned = _rows(
        scope,
        peak,
        "category, file, line, peak_bytes",
        "snapshot_owners",
        "file IS NOT NULL AND peak_bytes > 0 ORDER BY peak_bytes DESC, category, file, line",
    )
    if owned:
        category, file, line, size = owned[0]
        text += f"; the largest line is {_place(file, line)} with {format_bytes(size)} "
        text += _used(category)
    return f"{text}."


def _used(category: str) -> str:
    """Return what memory of a category is, as words after a number of bytes."""
    return _WORDS.get(category, f"for {category}")


def _growing(scope: Scope, peak: Peak) -> Iterator[str]:
    """Yield the lines whose memory grows from step to step."""
    columns = "file, line, library_file, library_line, bytes_per_step, steps, blocks"
    where = "true ORDER BY grown_bytes DESC, file, line, library_file, library_line"
    rows = _rows(scope, peak, columns, "snapshot_growth", where)
    for file, line, inner, inner_line, growth, steps, blocks in rows[:_GROWING]:
        place = _place(file, line) if file else _place(inner, inner_line)
        yield (
            f"Memory from {place or 'a stack without lines'} grows by {format_bytes(growth)} per "
            f"step over {counted(steps, 'step')}, and {counted(blocks, 'block')} of it "
            f"{'is' if blocks == 1 else 'are'} in use at the end."
        )


def _failed(scope: Scope, peak: Peak) -> Iterator[str]:
    """Yield the last allocation that failed, and why."""
    columns = (
        "file, line, bytes, cause, allocated_bytes, reserved_bytes, between_bytes, "
        "device_free_bytes"
    )
    rows = _rows(scope, peak, columns, "snapshot_ooms", "true ORDER BY event DESC")
    for file, line, size, cause, used, reserved, between, free in rows[:1]:
        at = f" at {_place(file, line)}" if file else ""
        left = "" if free is None else f", and CUDA has {format_bytes(free)}"
        text = f"An allocation of {format_bytes(size)}{at} fails"
        if cause == "fragmentation":
            yield (
                f"{text}: {format_bytes(between)} of the reserved {format_bytes(reserved)} is "
                f"free, but not in one piece{left}. "
                "expandable_segments:True avoids such fragmentation."
            )
        elif cause == "limit":
            yield f"{text} although CUDA has {format_bytes(free)}: a limit of the process applies."
        else:
            yield f"{text}: tensors use {format_bytes(used)}{left}."


def _fragmented(peak: Peak) -> Iterator[str]:
    """Yield how much more the allocator holds than tensors use, if it is much."""
    free = peak.reserved - peak.bytes
    limits = thresholds()
    much = free >= limits["snapshot.fragmented_bytes"]
    if not much or 100 * free < limits["snapshot.fragmented_pct"] * peak.reserved:
        return
    text = (
        f"The allocator holds {format_bytes(peak.reserved)} at the peak, "
        f"{100 * free / peak.reserved:.0f} % of which no tensor uses"
    )
    if not peak.expandable and peak.split:
        text += "; expandable_segments:True lets segments grow instead"
    yield f"{text}."


def _larger(scope: Scope, peak: Peak) -> Iterator[str]:
    """Yield what later steps need, and whether a batch of twice the size fits if what holds."""
    columns = (
        "later_peak_bytes, double_bytes, capacity_bytes, capacity_source, fits_double, factor, "
        "unknown_bytes"
    )
    rows = _rows(scope, peak, columns, "snapshot_batch", "scaling_bytes > 0")
    for later, double, capacity, source, fits, factor, unknown in rows:
        if later > _MORE * peak.bytes:
            yield (
                "The optimizer allocates its state in this snapshot, and later steps hold it "
                f"from the start: they need about {format_bytes(later)}."
            )
        assumed = "if activations and temporary memory scale with the batch"
        if unknown:
            assumed += f", and {format_bytes(unknown)} of unknown use does not"
        text = f"A batch of twice the size needs about {format_bytes(double)}, {assumed}"
        if fits is None:
            yield f"{text}."
            continue
        of = "the GPU has" if source == "gpu" else "the process could have"
        said = "fits" if fits == "yes" else "does not fit"
        most = "" if factor is None else f" (up to {factor:.2g} times this batch)"
        yield f"{text}; it {said} in the {format_bytes(capacity)} that {of}{most}."


def _rows(scope: Scope, peak: Peak, columns: str, view: str, where: str) -> list[tuple[Any, ...]]:
    """Return columns of a view on the GPU of the peak."""
    sql = f"""
        SELECT {columns} FROM {view}
        WHERE report_id IN {in_list((peak.report,))} AND device = {peak.device} AND {where}
    """
    return rows_of(scope.con, sql)


def _place(file: str | None, line: int | None) -> str:
    name = (file or "").replace("\\", "/").rpartition("/")[2]
    return name if line is None else f"{name}:{line}"
