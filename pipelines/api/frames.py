"""Tables of a run for pandas: parameters and metrics of each configuration or kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.rows import records_of, rows_of
from perfpipe.analysis.session import Session
from perfpipe.analysis.views import views
from perfpipe.database import quote
from perfpipe.errors import InputError, ToolMissing, did_you_mean
from perfpipe.functions import NAMED
from perfpipe.model import tables
from perfpipe.runrecord import TASK_COLUMNS

if TYPE_CHECKING:
    from pandas import DataFrame

#: Where a metric of a configuration, or of a kernel, is looked up, in this order; ncu's own names
#: come last.
_OF_TASKS = ("run_times", "run_efficiency", "run_tasks")
_OF_KERNELS = ("run_kernels", "kernel_sol", "kernel_bottleneck", "ncu_launches")

#: Columns of a frame unless stated.
_USUAL = (
    *("status", "median_ms", "min_ms", "iterations", "model_flop_per_s", "mfu_pct"),
    *("effective_bytes_per_s", "sol_pct", "kernel_name", "bound"),
)
_USUAL_OF_KERNELS = ("kernel_name", "duration_ns", "max_sol_pct", "bound")

#: Meaning of a column that ncu defines, before its unit.
NCU_METRIC = "ncu metric"

#: Types of columns with numbers.
_NUMBERS = ("double", "bigint", "int64")


@dataclass(frozen=True)
class _Key:
    """Columns that identify a row."""

    columns: tuple[str, ...]

    def of(self, record: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(record[name] for name in self.columns)


_TASK = _Key(("run_id", "task_index"))
_LAUNCH = _Key(("report_id", "launch_id"))


def pandas() -> Any:
    """Return the module pandas; raises ToolMissing if it is not installed."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ToolMissing("a data frame needs pandas: pip install 'perfpipe[notebook]'") from error
    return pandas


def frame_of(
    session: Session, metrics: Sequence[str] | None, more: Sequence[str], *, kernels: bool
) -> DataFrame:
    """Return a row for each configuration of the session's runs, or for each kernel of these.

    Columns are the run, if there are several, the parameters, and the metrics: columns of the views
    in _OF_TASKS and _OF_KERNELS, and names of ncu metrics.  Without `metrics`, they are the usual
    ones and `more`: ncu metrics that were asked for, and may not have been collected.  A kernel's
    metric is, for a configuration, that of its longest launch under ncu.  `attrs["columns"]` has
    the meaning and unit of each column.

    Raises InputError for an unknown metric, ToolMissing without pandas.
    """
    if isinstance(metrics, str):
        raise InputError(f"metrics={metrics!r}: give a list of names")
    make = pandas().DataFrame
    tasks = records_of(
        session.con, _query(session, "run_tasks", (*_TASK.columns, "params", "label"))
    )
    if not tasks:
        raise InputError("no run, so no configurations: frame(VIEW) returns a table or view")
    lookup = _Lookup(session)
    if metrics is None:
        usual = _USUAL_OF_KERNELS if kernels else _USUAL
        metrics = [*usual, *more]
    asked = [name for name in more if name not in lookup.collected]
    known = [_metric(lookup, name, kernels, asked) for name in metrics]
    rows = [*_rows(session, tasks, kernels)]
    parameters = [*dict.fromkeys(name for row in rows for name in row.parameters)]
    runs = ["run_id"] if len({row.run_id for row in rows}) > 1 else []
    values = [lookup.values(metric) for metric in known]
    columns = [*runs, *parameters, *(metric.name for metric in known)]
    data = [
        (
            *([row.run_id] if runs else ()),
            *(row.parameters.get(name) for name in parameters),
            *(
                found.get(row.launch if metric.of_kernel else row.task)
                for metric, found in zip(known, values, strict=True)
            ),
        )
        for row in rows
    ]
    # A metric that is also a parameter is not repeated.
    kept = [at for at, name in enumerate(columns) if columns.index(name) == at]
    frame: DataFrame = make([[row[at] for at in kept] for row in data])
    frame.columns = [columns[at] for at in kept]
    for metric in known:
        if metric.numeric and frame[metric.name].isna().all():
            frame[metric.name] = frame[metric.name].astype("float64")
    frame.attrs["columns"] = {metric.name: metric.doc for metric in known}
    return frame


@dataclass(frozen=True)
class _Row:
    run_id: str
    task: tuple[Any, ...]
    launch: tuple[Any, ...] | None
    parameters: dict[str, Any]


def _rows(session: Session, tasks: list[dict[str, Any]], kernels: bool) -> Iterator[_Row]:
    """Yield the rows, each with its longest kernel, or with each of its kernels."""
    columns = (*_TASK.columns, *_LAUNCH.columns, "longest")
    launches: dict[Any, list[dict[str, Any]]] = {}
    for record in records_of(session.con, _query(session, "run_kernels", columns)):
        if kernels or record["longest"]:
            launches.setdefault(_TASK.of(record), []).append(record)
    for task in sorted(tasks, key=_TASK.of):
        key = _TASK.of(task)
        found: list[Any] = launches.get(key, [] if kernels else [None])
        parameters = {name: _value(value) for name, value in json.loads(task["params"]).items()}
        for launch in found:
            yield _Row(task["run_id"], key, launch and _LAUNCH.of(launch), parameters)


def _value(value: Any) -> Any:
    """Return a parameter, which a workload has as text if it is True, False or None."""
    return NAMED.get(value, value)


@dataclass(frozen=True)
class _Metric:
    """A column of a view, or an ncu metric if there is no view; `doc` ends with the unit."""

    name: str
    view: str
    doc: str
    numeric: bool
    of_kernel: bool


class _Lookup:
    """Finds metrics and their values."""

    def __init__(self, session: Session) -> None:
        self._session = session
        sql = _query(session, "ncu_metrics", ("DISTINCT metric", "unit"))
        self.collected = {str(name): str(unit or "") for name, unit in rows_of(session.con, sql)}

    def values(self, metric: _Metric) -> dict[Any, Any]:
        """Return the value of each configuration or launch."""
        key = _LAUNCH if metric.of_kernel else _TASK
        columns, where = (*key.columns, f'"{metric.name}" AS x'), ""
        if not metric.view:
            columns, where = (*key.columns, "value", "text"), f"metric = {quote(metric.name)}"
        sql = _query(self._session, metric.view or "ncu_metrics", columns, where)
        return {
            key.of(record): record["x"]
            if metric.view
            else record["value"] if record["value"] is not None else record["text"]
            for record in records_of(self._session.con, sql)
        }  # fmt: skip


def _metric(lookup: _Lookup, name: str, kernels: bool, asked: Sequence[str]) -> _Metric:
    """Return what a name means; raises InputError if nothing has this name.

    Metrics that were `asked` for have no values if they were not collected.
    """
    order = (*_OF_KERNELS, *_OF_TASKS) if kernels else (*_OF_TASKS, *_OF_KERNELS)
    for view in order:
        if name in (columns := _columns(view)):
            kind, doc = columns[name]
            return _Metric(name, view, doc, kind.lower() in _NUMBERS, view in _OF_KERNELS)
    if name in lookup.collected:
        unit = lookup.collected[name]
        doc = f"{NCU_METRIC}, {unit}" if unit else NCU_METRIC
        return _Metric(name, "", doc, numeric=False, of_kernel=True)
    if name in asked:
        doc = f"{NCU_METRIC} that was not collected"
        return _Metric(name, "", doc, numeric=True, of_kernel=True)
    known = {column for view in order for column in _columns(view)} | lookup.collected.keys()
    if "__" in name and not did_you_mean(name, known):
        raise InputError(
            f"{name} was not collected: run again with metrics=[{name!r}], or see ncu_metrics for "
            "what there is"
        )
    raise InputError(f"no metric {name}{did_you_mean(name, known)}")


def _columns(view: str) -> dict[str, tuple[str, str]]:
    """Return the columns of a view or table with their type and meaning."""
    if view == "run_tasks":
        return {name: (kind, doc) for name, kind, doc in TASK_COLUMNS}
    if view in views():
        types = views()[view].types
        return {name: (types[name], doc) for name, doc in views()[view].columns.items()}
    return {column.name: (column.type, column.doc) for column in tables()[view].columns}


def _query(session: Session, view: str, columns: Sequence[str], where: str = "") -> str:
    session.use(view)
    return f"SELECT {', '.join(columns)} FROM {view}{f' WHERE {where}' if where else ''}"
