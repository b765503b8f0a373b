"""The table of what jobs used of what they requested."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from perfpipe.analysis.batch.items import Item
from perfpipe.analysis.known import median
from perfpipe.batchrecord import Batch, Usage
from perfpipe.viewmodel import Column, Source, Table, Value


def usage(batch: Batch, items: Sequence[Item]) -> Table:
    """Return the use of CPUs, memory and GPUs by workload; empty without Slurm's accounting."""
    jobs: dict[str, dict[str, Usage]] = defaultdict(dict)
    for item in items:
        if item.usage is not None and item.state.element:
            jobs[item.state.task.workload][item.state.element] = item.usage
    rows: list[tuple[Value, ...]] = []
    for workload, own in sorted(jobs.items()):
        every = [*own.values()]
        if any(part is not None for one in every for part in one):
            rows.append(
                (
                    workload,
                    len(every),
                    median(one.cpu_pct for one in every),
                    max(
                        (one.memory_pct for one in every if one.memory_pct is not None),
                        default=None,
                    ),
                    median(one.gpu_pct for one in every),
                )
            )
    columns = (
        Column("workload", "Workload", "text"),
        Column("jobs", "Jobs", "int", doc="jobs that ended with a record in accounting"),
        Column("cpu_pct", "CPU", "pct", "%", "CPU time / time of the allocated CPUs, median job"),
        Column(
            "memory_pct", "Memory", "pct", "%", "peak memory of a task / requested, largest job"
        ),
        Column("gpu_pct", "GPU", "pct", "%", "GPU utilization as Slurm samples it, median job"),
    )
    doc = "What the jobs used of what they requested, from Slurm's accounting."
    source = Source("sacct", (batch.batch_id,))
    return Table("Use of requested resources", doc, columns, tuple(rows), len(rows), source)
