"""Columns that tables of tasks share, and a function that builds such a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfpipe.analysis.batch.items import Item
from perfpipe.batchrecord import Batch
from perfpipe.viewmodel import Column, Source, Table, Value

Cells = Sequence[tuple[Column, Callable[[Item], Value]]]

#: Columns that identify a task, with a link to its page.
TASK: Cells = (
    (
        Column("task", "Task", "int", doc="number of the task in the batch, from 0"),
        lambda i: i.index,
    ),
    (
        Column("configuration", "Configuration", "text", doc="its parameters"),
        lambda item: item.state.task.label,
    ),
    (Column("page", "Page", "text", core=False, link_of="configuration"), lambda item: item.page),
    (Column("workload", "Workload", "text"), lambda item: item.state.task.workload),
    (
        Column("state", "State", "text", doc="state of the task"),
        lambda item: item.state.state.value,
    ),
)

NODE: Cells = (
    (Column("node", "Node", "text", doc="node of the last attempt"), lambda item: item.state.node),
)


def table_of(
    batch: Batch,
    title: str,
    doc: str,
    cells: Cells,
    items: Sequence[Item],
    most: int,
    headline: int,
) -> Table:
    """Return the table of some tasks; shows the first `most`."""
    return Table(
        title,
        doc,
        tuple(column for column, _ in cells),
        tuple(tuple(value(item) for _, value in cells) for item in items[:most]),
        len(items),
        source_of(batch),
        headline=headline,
    )


def source_of(batch: Batch) -> Source:
    """Return the source of the values of tasks."""
    return Source("result.json", tuple(run.run_id for run in batch.runs))
