"""What the time of a step waits for, across ranks, and what shorter parts would save."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, Col, GpuTable, Missing, SectionSpec
from perfpipe.analysis.report.scope import Scope
from perfpipe.units import format_ns, words
from perfpipe.viewmodel import Table, Value

#: Share of the step from which waiting for another rank is a sentence, %.
_LEAST_PCT = 1.0

#: Trials that have a sentence; the table has all.
_SENTENCES = 4

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


def _agreement(_: Scope, table: Table) -> str:
    """Return what trials gained, against what the replay saves."""
    names = [column.name for column in table.columns]
    said = []
    for row in table.rows:
        own = dict(zip(names, row, strict=True))
        gained, replayed = _number(own["gain_pct"]), _number(own["replayed_pct"])
        did = f"saved {gained:.1f} %" if gained >= 0 else f"lost {-gained:.1f} %"
        how = "within" if own["within"] == "yes" else "more than"
        said.append(
            f"{own['lever']} {did}, {how} the {replayed:.1f} % that the replay saves if "
            f"{words(str(own['category']))} takes no time."
        )
    return " ".join(dict.fromkeys(said[:_SENTENCES]))


TRIALS = GpuTable(
    "critical_path_trials",
    "Replays compared with trials",
    (
        *GPU,
        Col("lever", "Lever"),
        Col("category", "Part"),
        Col("replayed_pct", "Replay without this part", "pct", "% of the step"),
        Col("gain_pct", "Measured", "pct", "%"),
        Col("low_pct", "From", "pct", "%"),
        Col("high_pct", "To", "pct", "%"),
        Col("within", "Within the replay", sql="if(within, 'yes', 'no')"),
        Col("trial_id", "Trial", detail=True),
    ),
    order="trial_id DESC, gain_pct DESC, lever",
    told=_agreement,
)

SECTION = SectionSpec(
    "critical",
    "Critical path",
    Missing(
        "no timeline",
        nsys="collect one with nsys profile --trace=cuda,nvtx",
        torch="trace the program with torch.profiler",
    ),
    (TYPICAL, SLOWEST, GAINS, TRIALS),
)
