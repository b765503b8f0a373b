"""The tables of failed tasks: by reason, and each task with the end of its log."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from perfpipe.analysis.batch.cells import NODE, TASK, Cells, source_of, table_of
from perfpipe.analysis.batch.items import Item, in_order
from perfpipe.batchrecord import Batch
from perfpipe.viewmodel import Column, Table

#: Rows of each table; a note says what was cut.
MOST = 50


def failures(batch: Batch, items: Sequence[Item]) -> Table:
    """Return the failed tasks with the end of their logs, and the command that shows the rest."""
    cells: Cells = (
        *TASK,
        *NODE,
        (Column("why", "Reason", "lines"), lambda item: item.reason),
        (
            Column("log", "Last lines of its log", "lines"),
            lambda item: item.log or None,
        ),
        (Column("command", "Look further", "text"), lambda item: logs_command(batch, item)),
    )
    doc = f"'{resume_command(batch)}' reruns them."
    failed = [item for item in in_order(items) if item.failed]
    return table_of(batch, "Failed tasks", doc, cells, failed, MOST, 0)


def logs_command(batch: Batch, item: Item) -> str:
    """Return the command that prints the log of a task."""
    return f"perfpipe batch logs {item.index} --batch {batch.batch_id}"


def resume_command(batch: Batch) -> str:
    """Return the command that reruns failed tasks."""
    return f"perfpipe batch resume {batch.batch_id}"


#: Numbers, which differ between two failures of the same kind.
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?", re.IGNORECASE)


def reasons(batch: Batch, items: Sequence[Item]) -> Table:
    """Return failures by state and reason, numbers aside, the most frequent first."""
    groups: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in in_order(items):
        if item.failed:
            groups[item.state.state.value, _NUMBERS.sub("#", item.reason or "")].append(item)
    columns = (
        Column(
            "reason", "Reason", "text", doc="reason of the first task; numbers in it may differ"
        ),
        Column("state", "State", "text"),
        Column("tasks", "Tasks", "int"),
        Column("nodes", "Nodes", "text", doc="nodes of these tasks, most tasks first"),
        Column("workloads", "Workloads", "text", core=False),
        Column("which", "Task numbers", "text"),
        Column("command", "Look further", "text", core=False),
    )
    rows = [
        (
            own[0].reason or "unknown",
            state,
            len(own),
            _most_common(item.state.node or "unknown" for item in own),
            _most_common(item.state.task.workload for item in own),
            _few([str(item.index) for item in own]),
            logs_command(batch, own[0]),
        )
        for (state, _), own in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]
    doc = "Failed tasks by state and reason."
    shown = tuple(rows[:MOST])
    return Table("Failures by reason", doc, columns, shown, len(rows), source_of(batch), headline=1)


def _most_common(values: Iterable[str]) -> str:
    counts = Counter(values)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return _few([f"{name} ({count})" if len(counts) > 1 else name for name, count in ordered])


def _few(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
