"""The page of a workload's history: a figure and a table for each configuration, and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfpipe.analysis.batch.nodes import Compared, odd_places
from perfpipe.analysis.gate.history.series import Course, Step
from perfpipe.units import counted
from perfpipe.viewmodel import Column, Fact, Report, Section, Source, Table, Value

#: Rows of a table: the newest.
_MOST = 200

_COLUMNS = (
    Column("at", "Measured at", "text", "", "start of the first run, UTC"),
    Column("runs", "Runs", "int", "", "number of runs", core=False),
    Column("time_ms", "Time", "ms", "", "geometric mean of the runs' times"),
    Column(
        "low_ms",
        "95 % CI, lower end",
        "ms",
        "",
        "lower end of the 95 % interval, from the run-to-run variation",
    ),
    Column(
        "high_ms",
        "95 % CI, upper end",
        "ms",
        "",
        "upper end of the 95 % interval, from the run-to-run variation",
    ),
    Column(
        "level_ms", "Level", "ms", "", "geometric mean of the runs between two changes of level"
    ),
    Column(
        "change",
        "New level",
        "text",
        "",
        "change of level that begins with this run, with 95 % interval",
    ),
    Column(
        "between",
        "Change between",
        "text",
        "",
        "runs or commits between which the level changed",
        core=False,
    ),
)
_PLACES = (
    Column("tasks", "Runs", "int", "", "runs with the same work on other nodes or GPUs"),
    Column("change_pct", "Change", "change", "%", "time for the same work, relative to the median"),
    Column(
        "low_pct", "95 % CI, lower end", "change", "%", "lower end of the 95 % confidence interval"
    ),
    Column(
        "high_pct", "95 % CI, upper end", "change", "%", "upper end of the 95 % confidence interval"
    ),
    Column(
        "verdict",
        "Verdict",
        "text",
        "",
        "whether the node or GPU is an outlier (adjusted p-value below 5 %)",
    ),
)


def told(step: Step) -> str:
    """Return a change of level as text."""
    return f"{_size(step)} {step.between}"


def _size(step: Step) -> str:
    text = f"{step.change_pct:+.1f} %"
    if step.low_pct is None or step.high_pct is None:
        return text
    return f"{text} ({step.low_pct:+.1f} to {step.high_pct:+.1f} %)"


def sentences(courses: Sequence[Course], order: str) -> Iterator[str]:
    """Yield the sentences of a history: changes of level, their absence, the method and order."""
    for course in courses:
        for step in course.steps:
            yield f"{name_of(course)}: {told(step)}"
    steady = sum(not course.steps for course in courses)
    if steady:
        yield f"{steady} of {counted(len(courses), 'configuration')} have no change of level"
    for method in dict.fromkeys(course.method for course in courses):
        yield f"Changes of level: {method}"
    yield order


def name_of(course: Course) -> str:
    """Return a configuration with its machine."""
    return ", ".join(part for part in (course.label, course.machine) if part)


def page_of(workload: str, courses: Sequence[Course], by: str, order: str) -> Report:
    """Return the page of a history along time; `order` is a sentence on the order of the rows."""
    source = Source("runs", tuple(dict.fromkeys(row.name for c in courses for row in c.rows)))
    tables = tuple(_table(course, by, order, source) for course in courses)
    return _report(workload, [*sentences(courses, order)], tables, source)


def page_of_places(workload: str, compared: Compared, by: str) -> Report:
    """Return the page of nodes or GPUs compared."""
    what = "GPU" if by == "gpu" else "node"
    source = Source("runs", ())
    rows: list[tuple[Value, ...]] = [
        (
            place.name,
            place.tasks,
            *(100 * (ratio - 1) for ratio in (place.ratio, place.low, place.high)),
            place.verdict or "like the others",
        )
        for place in compared.places
    ]
    columns = (Column("place", "GPU" if by == "gpu" else "Node", "text"), *_PLACES)
    title = f"Times of the same work by {what}"
    doc = "Times of the same program, files and commit on the same kind of machine."
    table = Table(title, doc, columns, tuple(rows), len(rows), source, "places")
    told = [*odd_places(compared, "run")] or [compared.reason or f"No {what} is an outlier"]
    return _report(workload, told, (table,) if rows else (), source)


def _table(course: Course, by: str, order: str, source: Source) -> Table:
    steps = {step.row: (_size(step), step.between) for step in course.steps}
    rows = tuple(
        (
            row.name,
            row.at[:16].replace("T", " "),
            row.runs,
            row.time_ms,
            row.low_ms,
            row.high_ms,
            row.level_ms,
            *steps.get(at, (None, None)),
        )
        for at, row in enumerate(course.rows)
    )
    columns = (Column("name", "Commit" if by == "commit" else "Run", "text"), *_COLUMNS)
    title = f"History: {name_of(course)}"
    doc = f"{order}. Changes of level: {course.method}."
    return Table(title, doc, columns, rows[-_MOST:], len(rows), source, "history")


def _report(
    workload: str, told: Sequence[str], tables: tuple[Table, ...], source: Source
) -> Report:
    section = Section("history", "History", tables, "no run was measured")
    return Report(
        title=f"History of {workload}",
        notice=None,
        statements=tuple(Fact("", text, source) for text in told),
        summary=(),
        sections=(section,),
        nothing_found="findings are in the reports of the runs",
    )
