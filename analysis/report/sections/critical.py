"""What the time of a step waits for, across ranks, and what shorter parts would save."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, Col, GpuTable, Missing, SectionSpec
from perfpipe.analysis.report.scope import Scope
from perfpipe.units import format_ns
from perfpipe.viewmodel import Table, Value

#: Share of the step from which waiting for another rank is a sentence, %.
_LEAST_PCT = 1.0

_PARTS = (
    *GPU,
    Col("category", "Category"),
    Col("name", "Kernel, operation, call or range"),
    Col("on_rank", "Rank", "int"),
    Col("elsewhere", "On another rank", sql="CASE WHEN elsewhere THEN 'yes' END"),
    Col("segments", "Segments", "int", detail=True),
    Col("time_ns", "Time on the path", "ns"),
    Col("share_pct", "Share", "pct", "% of the step"),
    Col("waits_ns", "Waiting time for this rank", "ns", detail=True),
)


def _waits(_: Scope, table: Table) -> str:
    """Return how long the GPU of each step waits for which rank."""
    names = [column.name for column in table.columns]
    waits: dict[tuple[Value, ...], float] = {}
    steps: dict[tuple[Value, ...], float] = {}
    for row in table.rows:
        own = dict(zip(names, row, strict=True))
        gpu = (own.get("label"), own["device"])
        steps[gpu] = steps.get(gpu, 0) + _number(own["time_ns"])
        key = (*gpu, own["on_rank"])
        waits[key] = waits.get(key, 0) + _number(own["waits_ns"])
    return " ".join(
        f"GPU {device}{f' of {label}' if label else ''} waits {format_ns(ns)} of its step for rank "
        f"{rank}."
        for (label, device, rank), ns in waits.items()
        if 100 * ns >= _LEAST_PCT * steps[label, device] and ns
    )


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


TYPICAL = GpuTable(
    "critical_path_parts",
    "Critical path of a typical step",
    _PARTS,
    order="time_ns DESC, category, name, on_rank",
    where="role = 'median'",
    told=_waits,
    key="{category} {share_pct}",
)

SLOWEST = GpuTable(
    "critical_path_parts",
    "Critical path of the slowest step",
    _PARTS,
    order="time_ns DESC, category, name, on_rank",
    where="role = 'slowest'",
    folded=True,
)

GAINS = GpuTable(
    "critical_path_gains",
    "Time saved by shorter parts",
    (
        *GPU,
        Col("category", "Category"),
        Col("name", "Kernel or operation"),
        Col("on_rank", "Rank", "int"),
        Col("gain10_pct", "10 % shorter", "pct", "% of the step"),
        Col("gain50_pct", "50 % shorter", "pct", "% of the step"),
        Col("gain_pct", "100 % shorter", "pct", "% of the step"),
        Col("step_ns", "Recorded step", "ns", detail=True),
        Col("steps", "Steps", "int", detail=True),
    ),
    order="gain_pct DESC, category, name, on_rank",
)

SECTION = SectionSpec(
    "critical",
    "Critical path",
    Missing(
        "no timeline",
        nsys="collect one with nsys profile --trace=cuda,nvtx",
        torch="trace the program with torch.profiler",
    ),
    (TYPICAL, SLOWEST, GAINS),
)
