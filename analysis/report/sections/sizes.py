"""The configurations of a run: times, rates by size, and what each profiler says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analysis.report.declare import Col, Given, RunTable, Scope, SectionSpec
from analysis.report.facts import device_of
from analysis.runs import class_change, task_table
from perfpipe.viewmodel import Table


def _configurations(scope: Scope) -> Iterator[Table]:
    if scope.run is not None and scope.run.tasks:
        device = device_of(scope.con, scope.reports)
        yield replace(task_table(scope.run, device), headline=2)


def _change(table: Table) -> str:
    at = [[column.name for column in table.columns].index(n) for n in ("size", "bound", "subclass")]
    return class_change([tuple(row[i] for i in at) for row in table.rows])


RUN_EFFICIENCY = RunTable(
    "run_efficiency",
    "Sizes",
    (
        Col("label", "Configuration"),
        Col("size", "Size", "int"),
        Col("size_class", "Group", detail=True),
        Col("model_flop_per_s", "Rate", "flops"),
        Col("mfu_pct", "MFU", "pct", "% of dense peak"),
        Col("hfu_pct", "HFU", "pct", "% of dense peak", detail=True),
        Col("bound", "Bound"),
        Col("subclass", "Where"),
        Col("intensity", "Intensity", "number", "FLOP/B"),
        Col("intensity_band", "Band", detail=True),
        Col("ridge", "Ridge", "number", "FLOP/B"),
        Col("roof", "Roof"),
        Col("sol_pct", "Of the roof", "pct", "%"),
        Col("effective_bytes_per_s", "Effective bandwidth", "bandwidth"),
        Col("actual_bytes_per_s", "Actual bandwidth", "bandwidth"),
        Col("registers", "Registers", "int", "per thread", detail=True),
        Col("smem_per_block", "Shared memory", "bytes", "per block", detail=True),
    ),
    order="size, task_index",
    limit=None,
    figure="sizes",
    told=_change,
)

RUN_AGREEMENT = RunTable(
    "run_agreement",
    "Timing, nsys and ncu of an iteration",
    (
        Col("label", "Configuration"),
        Col("timed_ms", "Timed", "ms", "ms"),
        Col("traced_ms", "nsys", "ms", "ms"),
        Col("traced_span_ms", "nsys, span", "ms", "ms"),
        Col("profiled_ms", "ncu", "ms", "ms"),
        Col("traced_pct", "nsys against timed", "number", "%", sql="round(traced_pct, 1)"),
        Col("profiled_pct", "ncu against timed", "number", "%", sql="round(profiled_pct, 1)"),
        Col("explanation", "Why"),
    ),
    order="task_index",
    where="timed_ms IS NOT NULL AND (traced_ms IS NOT NULL OR profiled_ms IS NOT NULL)",
    limit=None,
)

SECTION = SectionSpec(
    "sizes",
    "Sizes and sweeps",
    "no run of a workload; perfpipe run WORKLOAD.yaml times a sweep",
    (Given(_configurations), RUN_EFFICIENCY, RUN_AGREEMENT),
)
