"""The tables of a batch's page."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from analysis.batch.items import ORDER, Item, gpu_name, in_order
from analysis.batch.nodes import Compared
from perfpipe.batchrecord import Batch
from perfpipe.units import words
from perfpipe.viewmodel import Column, Source, Table, Value

#: Rows of the table of all tasks, and of failed ones with their logs; a note says what was cut.
MOST, MOST_FAILED = 1000, 50

Cells = Sequence[tuple[Column, Callable[[Item], Value]]]

#: What identifies a task, with a link to its page.
_TASK: Cells = (
    (Column("configuration", "Configuration", "text"), lambda item: item.state.task.label),
    (Column("page", "Page", "text", core=False, link_of="configuration"), lambda item: item.page),
    (Column("workload", "Workload", "text"), lambda item: item.state.task.workload),
    (
        Column("task", "Task", "int", doc="number of the task in the batch, from 0"),
        lambda item: item.index,
    ),
    (
        Column("state", "State", "text", doc="what became of the task"),
        lambda item: item.state.state.value,
    ),
)

_NODE: Cells = (
    (Column("node", "Node", "text", doc="where it ran last"), lambda item: item.state.node),
    (
        Column("attempts", "Attempts", "int", doc="how often it was started", core=False),
        lambda item: item.state.attempts,
    ),
)

_MEASURED: Cells = (
    (Column("reason", "Reason", "text", core=False, hover_of="state"), lambda item: item.reason),
    (
        Column("time_ms", "Time", "ms", "ms", "median of an iteration without a profiler"),
        lambda item: item.time_ms,
    ),
    (
        Column("step_ms", "Step", "ms", "ms", "median steady step of the timeline"),
        lambda item: item.step_ms,
    ),
    (
        Column("p95_ms", "p95", "ms", "ms", "95th percentile of these steps", core=False),
        lambda item: item.summary.step_p95_ms if item.step_ms is not None else None,
    ),
    (
        Column("sol_pct", "% of peak", "pct", "%", "time at the lower roof / measured time"),
        lambda item: item.summary.sol_pct,
    ),
    (
        Column("mfu_pct", "MFU", "pct", "%", "declared FLOP/s / dense peak", core=False),
        lambda item: item.summary.mfu_pct,
    ),
    (
        Column("bound", "Bound", "text", doc="largest part of the GPU's time"),
        lambda item: words(item.summary.bound) if item.summary.bound else None,
    ),
    (
        Column("share_pct", "Share", "pct", "%", "share of that part", core=False),
        lambda item: item.summary.share_pct,
    ),
    (
        Column("kernel_bound", "Kernels bound by", "text", doc="what bounds most of kernel time"),
        lambda item: item.summary.kernel_bound,
    ),
)

_AROUND: Cells = (
    (
        Column("gpus", "GPU", "text", doc="UUIDs of the GPUs that it used", core=False),
        lambda item: ", ".join(item.gpus) or None,
    ),
    (
        Column("gpu", "GPU model", "text", core=False, hover_of="node"),
        lambda item: item.summary.gpu,
    ),
    (
        Column("wall_s", "Wall time", "number", "s", "of the last attempt", core=False),
        lambda item: item.state.seconds,
    ),
    (
        Column("finding", "First finding", "text", doc="of the task's report", core=False),
        lambda item: item.summary.finding,
    ),
)


def _table(
    batch: Batch,
    title: str,
    doc: str,
    cells: Cells,
    items: Sequence[Item],
    most: int,
    headline: int,
) -> Table:
    return Table(
        title,
        doc,
        tuple(column for column, _ in cells),
        tuple(tuple(value(item) for _, value in cells) for item in items[:most]),
        len(items),
        _source(batch),
        headline=headline,
    )


def _source(batch: Batch) -> Source:
    return Source("result.json", tuple(run.run_id for run in batch.runs))


def configurations(batch: Batch, items: Sequence[Item]) -> Table:
    """Return the table of all tasks, what failed first."""
    doc = "All tasks, those that failed first; names link to their reports."
    cells = (*_TASK, *_MEASURED, *_NODE, *_AROUND)
    return _table(batch, "Configurations", doc, cells, in_order(items), MOST, 2)


def failures(batch: Batch, items: Sequence[Item]) -> Table:
    """Return the failed tasks with the end of their logs, and the command that shows more."""
    cells: Cells = (
        *_TASK,
        (Column("reason", "Reason", "text"), lambda item: item.reason),
        *_NODE,
        (
            Column("job", "Job", "text", doc="job of the scheduler", core=False),
            lambda item: item.state.element,
        ),
        (
            Column("log", "Last lines of its log", "lines", core=False),
            lambda item: item.log or None,
        ),
        (Column("command", "Look further", "text"), lambda item: logs_command(item.index)),
    )
    doc = f"'{resume_command(batch)}' starts them again."
    failed = [item for item in in_order(items) if item.failed]
    return _table(batch, "Failed tasks", doc, cells, failed, MOST_FAILED, 0)


def logs_command(task: int) -> str:
    """Return the command that prints what a task printed."""
    return f"perfpipe batch logs {task}"


def resume_command(batch: Batch) -> str:
    """Return the command that starts failed tasks again."""
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
        Column("reason", "Reason", "text", doc="that of the first; numbers may differ"),
        Column("state", "State", "text"),
        Column("tasks", "Tasks", "int"),
        Column("nodes", "Nodes", "text", doc="where they ran, most first"),
        Column("workloads", "Workloads", "text", core=False),
        Column("which", "Task numbers", "text"),
        Column("command", "Look further", "text", core=False),
    )
    rows = [
        (
            own[0].reason or "not known",
            state,
            len(own),
            _most_common(item.state.node or "not known" for item in own),
            _most_common(item.state.task.workload for item in own),
            _few([str(item.index) for item in own]),
            logs_command(own[0].index),
        )
        for (state, _), own in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]
    doc = "Failed tasks by what became of them and why."
    shown = tuple(rows[:MOST_FAILED])
    return Table(
        "Failures by reason", doc, columns, shown, len(rows), _source(batch), headline=1
    )


def _most_common(values: Iterable[str]) -> str:
    counts = Counter(values)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return _few([f"{name} ({count})" if len(counts) > 1 else name for name, count in ordered])


def _few(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def progress(batch: Batch, items: Sequence[Item], pages: Mapping[str, str]) -> Table:
    """Return how each run of the batch stands; `pages` are those of runs, by run id."""
    of_run: dict[str, list[Item]] = {run.run_id: [] for run in batch.runs}
    for item in items:
        of_run[item.state.task.run_id].append(item)
    present = [state for state in ORDER if any(item.state.state is state for item in items)]
    columns = (
        Column("workload", "Workload", "text"),
        Column("page", "Page", "text", core=False, link_of="workload"),
        Column("run_id", "Run", "text", core=False),
        Column("tasks", "Tasks", "int"),
        *(Column(state.name.lower(), state.value.capitalize(), "int") for state in present[::-1]),
        Column("wall_s", "Wall time", "number", "s", "median of a task"),
        Column("hours", "Total", "number", "h", "wall time of all its tasks"),
    )
    rows = []
    for run in batch.runs:
        own = of_run[run.run_id]
        times = [item.state.seconds for item in own if item.state.seconds is not None]
        counts = Counter(item.state.state for item in own)
        rows.append(
            (
                run.workload,
                pages.get(run.run_id),
                run.run_id,
                len(own),
                *(counts[state] for state in present[::-1]),
                statistics.median(times) if times else None,
                sum(times) / 3600 if times else None,
            )
        )
    return Table(
        "Progress", "Tasks of each run by state.", columns, tuple(rows), len(rows), _source(batch)
    )


def extremes(batch: Batch, items: Sequence[Item]) -> Table:
    """Return the best and the worst configuration of each workload, by % of peak, else by time."""
    measures: tuple[tuple[str, Callable[[Item], float | None], bool], ...] = (
        ("% of peak", lambda item: item.summary.sol_pct, True),
        ("MFU", lambda item: item.summary.mfu_pct, True),
        ("time", lambda item: item.time_ms, False),
        ("step", lambda item: item.step_ms, False),
    )
    of_workload: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        if item.done:
            of_workload[item.state.task.workload].append(item)
    rows = []
    for workload, own in of_workload.items():
        for name, measure, more_is_better in measures:
            known = [(value, item) for item in own if (value := measure(item)) is not None]
            if len(known) > 1:
                # Of equal ones the first, whichever way they are sorted.
                known.sort(key=lambda pair: (pair[0], pair[1].index), reverse=False)
                ends = (known[-1], known[0]) if more_is_better else (known[0], known[-1])
                middle = statistics.median(value for value, _ in known)
                rows.append((workload, name, len(known), *_end(*ends[0]), *_end(*ends[1]), middle))
                break
    columns = (
        Column("workload", "Workload", "text"),
        Column("by", "By", "text", "", "% of peak, MFU (%); else time or step (ms), shortest best"),
        Column("known", "Configurations", "int", doc="how many of its tasks this is known of"),
        Column("best", "Best", "text"),
        Column("best_page", "Page", "text", core=False, link_of="best"),
        Column("best_value", "of best", "number"),
        Column("worst", "Worst", "text"),
        Column("worst_page", "Page", "text", core=False, link_of="worst"),
        Column("worst_value", "of worst", "number"),
        Column("median", "Median", "number", core=False),
    )
    doc = "The best and the worst configuration of each workload."
    return Table("Best and worst", doc, columns, tuple(rows), len(rows), _source(batch), headline=3)


def _end(value: float, item: Item) -> tuple[Value, ...]:
    return (item.state.task.label, item.page, value)


def places(batch: Batch, items: Sequence[Item], compared: Compared, *, by_gpu: bool) -> Table:
    """Return nodes or GPUs with their tasks, and how they compare on the same work."""
    of_place: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        names = [item.state.node] if item.state.node else []
        if by_gpu:
            names = [gpu_name(item.state.node, uuid) for uuid in item.gpus]
        for name in names:
            of_place[name].append(item)
    known = {place.name: place for place in compared.places}
    rows = []
    for name, own in of_place.items():
        place = known.get(name)
        numbers: tuple[Value, ...] = (None,) * 4
        if place is not None:
            ends = (100 * (ratio - 1) for ratio in (place.ratio, place.low, place.high))
            numbers = (place.tasks, *ends)
        verdict = None if place is None else place.verdict or "like the others"
        done, failed = (sum(getattr(item, what) for item in own) for what in ("done", "failed"))
        rows.append((name, len(own), done, failed, *numbers, verdict))
    rows.sort(key=lambda row: (row[-1] in (None, "like the others"), -(row[5] or 0), row[0]))
    what = "GPU" if by_gpu else "node"
    columns = (
        Column("place", "GPU" if by_gpu else "Node", "text"),
        Column("tasks", "Tasks", "int"),
        Column("done", "Done", "int"),
        Column("failed", "Failed", "int"),
        Column("compared", "Compared", "int", doc=f"tasks whose work ran on another {what} too"),
        Column("change_pct", "Slower by", "number", "%", f"than the median {what}, same work"),
        Column("low_pct", "CI low", "number", "%", "lower end of the 95 % confidence interval"),
        Column("high_pct", "CI high", "number", "%", "upper end of the 95 % confidence interval"),
        Column("verdict", "Verdict", "text", doc="whether it stands out"),
    )
    doc = f"Time of a {what} over that of the median {what}, for the same configurations."
    doc += f" Not compared: {compared.reason}." if compared.reason else ""
    title = "GPUs compared" if by_gpu else "Nodes compared"
    shown = tuple(rows[:MOST])
    return Table(title, doc, columns, shown, len(rows), _source(batch), headline=5 if by_gpu else 4)
