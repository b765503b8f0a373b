"""The tables of a batch's page, except those of failures."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from perfpipe.analysis.batch.cells import NODE, TASK, Cells, source_of, table_of
from perfpipe.analysis.batch.items import ORDER, Item, gpu_name, in_order
from perfpipe.analysis.batch.nodes import Compared
from perfpipe.batchrecord import Batch
from perfpipe.units import words
from perfpipe.viewmodel import Column, Table, Value

#: Rows of a table; a note says what was cut.
MOST = 1000


def _why(item: Item) -> str | None:
    """Return the reason for a task's state, and the number of starts if more than one."""
    again = f"started {item.state.attempts} times" if item.state.attempts > 1 else None
    return "; ".join(filter(None, (item.reason, again))) or None


def _finding(item: Item) -> str | None:
    """Return the share of a task's bound, and the first finding of its report."""
    share = item.summary.share_pct
    said = f"{share:.0f} % of the time" if share is not None else None
    return "; ".join(filter(None, (said, item.summary.finding))) or None


_MEASURED: Cells = (
    (Column("reason", "Reason", "text", core=False, hover_of="state"), _why),
    (
        Column("time_ms", "Time", "ms", "ms", "median time of an iteration without a profiler"),
        lambda item: item.time_ms,
    ),
    (
        Column("step_ms", "Step", "ms", "ms", "median steady step of the timeline"),
        lambda item: item.step_ms,
    ),
    (
        Column("p95_ms", "p95", "ms", "ms", "95th percentile of the steady steps", core=False),
        lambda item: item.summary.step_p95_ms if item.step_ms is not None else None,
    ),
    (
        Column(
            "sol_pct",
            "% of peak",
            "pct",
            "",
            "time at the lower of the compute and memory roofs / measured time",
        ),
        lambda item: item.summary.sol_pct,
    ),
    (
        Column(
            "mfu_pct",
            "MFU",
            "pct",
            "%",
            "declared FLOP/s as a percentage of the dense peak, if no bytes are declared",
        ),
        lambda item: item.summary.mfu_pct if item.summary.sol_pct is None else None,
    ),
    (
        Column("bound", "Bound", "text", doc="largest part of the GPU's time"),
        lambda item: words(item.summary.bound) if item.summary.bound else None,
    ),
    (Column("finding", "First finding", "text", core=False, hover_of="bound"), _finding),
    (
        Column(
            "kernel_bound", "Kernels bound by", "text", doc="what bounds most of the kernel time"
        ),
        lambda item: item.summary.kernel_bound,
    ),
)

_AROUND: Cells = (
    (
        Column("gpus", "GPUs", "text", core=False, hover_of="node"),
        lambda item: "; ".join(filter(None, (item.summary.gpu, *item.gpus))) or None,
    ),
    (
        Column("wall_s", "Wall time", "number", "s", "wall time of the last attempt", core=False),
        lambda item: item.state.seconds,
    ),
)


def configurations(batch: Batch, items: Sequence[Item]) -> Table:
    """Return the table of all tasks, failed ones first."""
    doc = "All tasks, failed ones first; names link to their reports."
    cells = (*TASK, *_MEASURED, *NODE, *_AROUND)
    return table_of(batch, "Configurations", doc, cells, in_order(items), MOST, 2)


def progress(batch: Batch, items: Sequence[Item], pages: Mapping[str, str]) -> Table:
    """Return the state of each run of the batch; `pages` are those of runs, by run id."""
    of_run: dict[str, list[Item]] = {run.run_id: [] for run in batch.runs}
    for item in items:
        of_run[item.state.task.run_id].append(item)
    present = [state for state in ORDER if any(item.state.state is state for item in items)]
    columns = (
        Column("workload", "Workload", "text"),
        Column("page", "Page", "text", core=False, link_of="workload"),
        Column("run_id", "Run", "text", core=False, hover_of="workload"),
        Column("tasks", "Tasks", "int"),
        *(Column(state.name.lower(), state.value.capitalize(), "int") for state in present[::-1]),
        Column("wall_s", "Wall time", "number", "s", "median over the tasks"),
        Column("hours", "Total wall time", "number", "h", "wall time of all tasks of the run"),
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
        "Runs",
        "Number of tasks of each run by state.",
        columns,
        tuple(rows),
        len(rows),
        source_of(batch),
    )


def extremes(batch: Batch, items: Sequence[Item]) -> Table:
    """Return the best and the worst configuration of each workload, by % of peak, else by time."""
    of_workload: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        if item.done:
            of_workload[item.state.task.workload].append(item)
    rows = []
    for workload, own in of_workload.items():
        for measure in _MEASURES:
            known = _medians(own, measure)
            if len(known) > 1:
                known = known if measure.more_is_better else known[::-1]
                ends = (*_end(known[-1]), *_end(known[0]))
                middle = statistics.median(value for value, _ in known)
                rows.append((workload, measure.name, len(known), *ends, middle))
                break
    columns = (
        Column("workload", "Workload", "text"),
        Column(
            "by", "Ranked by", "text", "", "% of peak, MFU (%); else the shortest time or step (ms)"
        ),
        Column("known", "Configurations", "int", doc="number of configurations with a value"),
        Column("best", "Best configuration", "text"),
        Column("best_page", "Page", "text", core=False, link_of="best"),
        Column("best_value", "Best value", "number"),
        Column("worst", "Worst configuration", "text"),
        Column("worst_page", "Page", "text", core=False, link_of="worst"),
        Column("worst_value", "Worst value", "number"),
        Column("median", "Median", "number", core=False, doc="median over the configurations"),
    )
    doc = "The best and the worst configuration of each workload, by the median of their repeats."
    title = "Best and worst configurations"
    return Table(title, doc, columns, tuple(rows), len(rows), source_of(batch), headline=3)


class _Measure(NamedTuple):
    """The measure by which configurations are compared."""

    name: str
    value: Callable[[Item], float | None]
    more_is_better: bool


_MEASURES = (
    _Measure("% of peak", lambda item: item.summary.sol_pct, True),
    _Measure("MFU", lambda item: item.summary.mfu_pct, True),
    _Measure("time", lambda item: item.time_ms, False),
    _Measure("step", lambda item: item.step_ms, False),
)


def _medians(items: Sequence[Item], measure: _Measure) -> list[tuple[float, Item]]:
    """Return the median over the repeats of each configuration with its first task, sorted."""
    repeats: dict[str, list[tuple[float, Item]]] = defaultdict(list)
    for item in items:
        if (value := measure.value(item)) is not None:
            repeats[item.state.task.label].append((value, item))
    medians = [
        (statistics.median(value for value, _ in own), own[0][1]) for own in repeats.values()
    ]
    return sorted(medians, key=lambda pair: (pair[0], pair[1].index))


def _end(end: tuple[float, Item]) -> tuple[Value, ...]:
    value, item = end
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
        Column(
            "compared", "Compared tasks", "int", doc=f"tasks whose work also ran on another {what}"
        ),
        Column(
            "change_pct",
            "Slower by",
            "change",
            "%",
            f"time relative to the median {what}, same work",
        ),
        Column(
            "low_pct",
            "95 % CI, lower end",
            "change",
            "%",
            "lower end of the 95 % confidence interval",
        ),
        Column(
            "high_pct",
            "95 % CI, upper end",
            "change",
            "%",
            "upper end of the 95 % confidence interval",
        ),
        Column("verdict", "Verdict", "text", doc=f"whether the {what} is an outlier"),
    )
    doc = f"Time of each {what} relative to the median {what}, for the same configurations."
    doc += f" Not compared: {compared.reason}." if compared.reason else ""
    shown = tuple(rows[:MOST])
    if by_gpu:
        title, figure, headline = "GPUs compared", "", 5
    else:
        title, figure, headline = "Nodes compared", "places", 4
    return Table(title, doc, columns, shown, len(rows), source_of(batch), figure, headline)
