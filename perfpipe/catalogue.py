"""Tables created from manifests and records of runs and trials: their columns, and their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpipe.columns import utf8
from perfpipe.database import ColumnSpec
from perfpipe.manifest import Manifest
from perfpipe.runrecord import RUN_COLUMNS, TASK_COLUMNS
from perfpipe.trialrecord import TRIAL_COLUMNS

#: Tables created from manifests and records of runs and trials: name -> (column, type, meaning).
CATALOGUE: dict[str, tuple[ColumnSpec, ...]] = {
    "reports": (
        ("report_id", "VARCHAR", "report"),
        (
            "run_id",
            "VARCHAR",
            "latest run that produced the report; NULL if the user ingested the report",
        ),
        (
            "kind",
            "VARCHAR",
            "kind of report: ncu, nsys, torch, modules (from perfpipe run --modules), attached "
            "(from perfpipe attach), serving (requests of a load), hang (what was recorded of a "
            "job that hangs), or memory (a snapshot of PyTorch)",
        ),
        ("format", "VARCHAR", "format of the input file"),
        ("source_name", "VARCHAR", "name of the input file"),
        ("sha256", "VARCHAR", "SHA-256 of the decompressed input file"),
        ("tool_version", "VARCHAR", "version of the profiler"),
        ("export_schema", "VARCHAR", "version of the nsys export schema"),
        ("captured_at", "VARCHAR", "start of the capture, UTC"),
        (
            "started_ns",
            "BIGINT",
            "origin of the report's timestamps, ns since 1970-01-01 UTC",
        ),
        ("directory", "VARCHAR", "directory from which the input file was ingested"),
        ("host", "VARCHAR", "name of the host on which the program was profiled"),
        ("command", "VARCHAR", "profiled command"),
        (
            "gpu",
            "VARCHAR",
            "model of the GPU that ran the work; the busiest GPU's model if the models differ",
        ),
        ("sm_count", "BIGINT", "number of SMs of the GPU in column gpu"),
        (
            "recorded",
            "BOOLEAN",
            "whether the report was replayed from a recording rather than measured",
        ),
        ("warnings", "VARCHAR[]", "warnings that were issued when the report was ingested"),
        ("lost_pct", "DOUBLE", "percentage of lost or damaged rows in the most affected table"),
        (
            "missed_pct",
            "DOUBLE",
            "percentage of the GPU work that the profiler recorded incorrectly or not at all",
        ),
        ("missed", "VARCHAR", "what missed_pct counts; empty if it is 0"),
    ),
    "runs": RUN_COLUMNS,
    "run_tasks": TASK_COLUMNS,
    "trials": TRIAL_COLUMNS,
    "launch_work": (
        ("report_id", "VARCHAR", "report"),
        (
            "kernel",
            "VARCHAR",
            "regular expression that matches full kernel names; NULL for all kernels",
        ),
        ("nvtx", "VARCHAR", "regular expression that matches NVTX paths; NULL for all paths"),
        ("flop", "DOUBLE", "FLOPs per kernel launch"),
        ("bytes", "DOUBLE", "minimum number of bytes that a kernel launch must move"),
        ("dtype", "VARCHAR", "data type that determines the peak FLOP rate"),
    ),
    "collection_gaps": (
        ("report_id", "VARCHAR", "report"),
        ("table_name", "VARCHAR", "table that is empty or incomplete"),
        (
            "column_name",
            "VARCHAR",
            "column that is always NULL; empty if the whole table is affected",
        ),
        ("reason", "VARCHAR", "why the data is missing"),
    ),
}

CATALOGUE_DOCS = {
    "reports": "Ingested reports, one row per report.",
    "runs": "Runs that perfpipe executed or replayed, one row per run.",
    "run_tasks": "Configurations within each run, one row per configuration.",
    "trials": "What 'perfpipe try' measured: one row per lever of each trial, and one for the "
    "levers that help together.",
    "launch_work": "FLOPs and bytes per kernel launch, as declared with 'perfpipe work'.",
    "collection_gaps": "Data missing from each report, and why. Missing values are NULL, never 0.",
}


#: Columns of `reports` that come from runs; the others come from manifests.
_OF_RUNS = ("run_id", "recorded")

MANIFEST_COLUMNS = tuple(spec for spec in CATALOGUE["reports"] if spec[0] not in _OF_RUNS)


def manifest_row(m: Manifest) -> tuple[Any, ...]:
    """Return the row of `reports` for a manifest, in the order of MANIFEST_COLUMNS."""
    facts = m.facts
    return (
        m.report_id,
        m.kind,
        m.format,
        utf8(m.source_name),
        m.sha256,
        utf8(facts.tool_version),
        utf8(facts.export_schema),
        utf8(facts.captured_at),
        facts.started_ns,
        utf8(str(Path(m.source_path).parent)),
        utf8(facts.host),
        utf8(facts.command),
        utf8(facts.gpu),
        facts.sm_count,
        [*map(utf8, m.warnings)],
        m.lost_pct,
        m.missed_pct,
        utf8(m.missed),
    )


def gap_rows(m: Manifest) -> list[tuple[str, ...]]:
    """Return the rows of `collection_gaps` for a report."""
    return [(m.report_id, *map(utf8, (gap.table, gap.column, gap.reason))) for gap in m.missing]
