"""A workload's times over its runs: values with intervals, and changes of level.

The sample is the run.  Runs scatter about the level of their segment; an interval is that of a mean
with the scatter of all runs of the configuration.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from perfpipe.analysis.batch.nodes import Timed
from perfpipe.analysis.distributions import student_quantile
from perfpipe.analysis.gate.history.changepoints import segments_of
from perfpipe.analysis.gate.history.order import Order, order_of
from perfpipe.analysis.gate.judging import change_of
from perfpipe.analysis.gate.timed import comparable_runs
from perfpipe.runrecord import RunRecord, TaskResult

_ALPHA = 0.05

#: Groups of a history along time, and places that can be compared.
COURSES, PLACES = ("time", "commit"), ("node", "gpu")


@dataclass(frozen=True)
class Point:
    """A configuration in a run: its time, machine and settings.

    `work` is the same if the program, its files and its environment are the same.  `commit` is the
    name of a commit, `revision` its whole id.
    """

    run_id: str
    at: str
    label: str
    time_ms: float
    work: str
    machine: str = ""
    commit: str = ""
    revision: str = ""
    dirty: bool = False
    committed_at: str = ""
    node: str = ""
    gpu: str = ""
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Row:
    """A group of runs: their mean, with its 95 % interval (None if the scatter is unknown).

    `level_ms` is the mean of the segment, and `name` the run or the commit.
    """

    name: str
    at: str
    runs: int
    time_ms: float
    low_ms: float | None
    high_ms: float | None
    segment: int
    level_ms: float


@dataclass(frozen=True)
class Step:
    """A change of level, %: its first row, its 95 % interval, and the differences.

    `between` says which commits or runs it lies between.
    """

    row: int
    before_ms: float
    after_ms: float
    change_pct: float
    low_pct: float | None
    high_pct: float | None
    between: str


@dataclass(frozen=True)
class Course:
    """A configuration on a kind of machine over its runs; `method` says how steps were found."""

    label: str
    machine: str
    rows: tuple[Row, ...]
    steps: tuple[Step, ...]
    method: str


def points_of(runs: Iterable[RunRecord]) -> list[Point]:
    """Return the measurements of runs, oldest first.

    Replayed and failed tasks are excluded, and arms with another environment or interpreter.
    """
    return [
        point
        for run in comparable_runs(sorted(runs, key=lambda run: (run.started_at, run.run_id)))
        if not run.replayed
        for task in run.tasks
        if task.done and not task.variant and task.generation is None
        if (point := _point(run, task)) is not None
    ]


def _point(run: RunRecord, task: TaskResult) -> Point | None:
    wall = None if task.wall_s is None else 1e3 * task.wall_s
    time = task.median_ms if task.median_ms is not None else wall
    if time is None or time <= 0:
        return None
    ran = task.ran
    git = ran.git if ran else None
    commit = git.name if git else ""
    gpus = (ran.gpus or ()) if ran else ()
    return Point(
        run_id=run.run_id,
        at=ran.started_at if ran else run.started_at,
        label=task.label,
        time_ms=time,
        work=f"{task.key} {commit}",
        machine=(ran.machine or "") if ran else "",
        commit=commit,
        revision=git.commit if git else "",
        dirty=git is not None and git.dirty,
        committed_at=(git.committed_at or "") if git else "",
        node=(ran.host or "") if ran else "",
        gpu=gpus[0] if len(gpus) == 1 else "",
        versions=tuple(sorted(_versions(task).items())),
    )


def _versions(task: TaskResult) -> dict[str, str]:
    """Return the settings of a task: packages, environment variables, and its own statements."""
    ran = task.ran
    environment = (ran.environment or {}) if ran else {}
    packages = (ran.packages or {}) if ran else {}
    return {**environment, **packages, **(task.software or {})}


def courses_of(points: Sequence[Point], by: str, order: Order | None = None) -> list[Course]:
    """Return the course of each configuration on each kind of machine, by time or commit.

    Commits are in an order; without one, that in which they were first measured.
    """
    found: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        found.setdefault((point.label, point.machine), []).append(point)
    courses = []
    for (label, machine), own in sorted(found.items()):
        ordered = by_time(own)
        if by == "commit":
            ordered.sort(key=(order or order_of(ordered, {})).key)
        courses.append(_course(label, machine, ordered, by))
    return courses


def by_time(points: Iterable[Point]) -> list[Point]:
    """Return points in the order of their measurement, oldest first."""
    return sorted(points, key=lambda point: (point.at, point.run_id))


def _course(label: str, machine: str, ordered: Sequence[Point], by: str) -> Course:
    logs = [math.log(point.time_ms) for point in ordered]
    found = segments_of(logs)
    segments = [sum(start <= at for start in found.starts) for at in range(len(logs))]
    levels = [
        statistics.fmean(log for log, of in zip(logs, segments, strict=True) if of == segment)
        for segment in range(len(found.starts) + 1)
    ]
    rest = [log - levels[of] for log, of in zip(logs, segments, strict=True)]
    freedom = len(logs) - len(levels)
    deviation = math.sqrt(math.fsum(r**2 for r in rest) / freedom) if freedom else None
    rows: list[Row] = []
    first_row = {}
    at = 0
    for name, own in itertools.groupby(ordered, key=lambda point: _name(point, by)):
        group = [*own]
        mean = statistics.fmean(logs[at : at + len(group)])
        margin = _margin(deviation, freedom, len(group))
        for number in range(at, at + len(group)):
            first_row[number] = len(rows)
        low, high = (None if margin is None else math.exp(mean + sign * margin) for sign in (-1, 1))
        level = math.exp(levels[segments[at]])
        size, time = len(group), math.exp(mean)
        rows.append(Row(name, group[0].at, size, time, low, high, segments[at], level))
        at += len(group)
    bounds = (0, *found.starts, len(logs))
    steps = tuple(
        _step(ordered, bounds[at - 1 : at + 2], first_row[bounds[at]])
        for at in range(1, len(bounds) - 1)
    )
    return Course(label, machine, tuple(rows), steps, found.method)


def _name(point: Point, by: str) -> str:
    return (point.commit or "no commit") if by == "commit" else point.run_id


def _margin(deviation: float | None, freedom: int, runs: int) -> float | None:
    """Return half of the 95 % interval of a mean of logarithms."""
    if deviation is None:
        return None
    return student_quantile(freedom, 1 - _ALPHA / 2) * deviation / math.sqrt(runs)


def _step(points: Sequence[Point], bounds: Sequence[int], row: int) -> Step:
    """Return the change at the middle one of three bounds."""
    begin, start, end = bounds
    before = [point.time_ms for point in points[begin:start]]
    after = [point.time_ms for point in points[start:end]]
    change = change_of(before, after)
    return Step(
        row=row,
        before_ms=statistics.geometric_mean(before),
        after_ms=statistics.geometric_mean(after),
        change_pct=100 * change.ratio,
        low_pct=None if change.low is None else 100 * change.low,
        high_pct=None if change.high is None else 100 * change.high,
        between=_between(points[start - 1], points[start]),
    )


def _between(last: Point, first: Point) -> str:
    """Return the commits or runs around a change, and other differences between them."""
    runs = f"runs {last.run_id} ({last.at}) and {first.run_id} ({first.at})"
    if last.commit != first.commit and last.commit and first.commit:
        text = f"between commits {last.commit} and {first.commit}"
    elif last.commit and last.commit == first.commit:
        text = f"within commit {last.commit}, between {runs}: the code is the same"
    else:
        text = f"between {runs}"
    others = [*_differences(last, first)]
    return f"{text}; {', '.join(others)}" if others else text


def _differences(last: Point, first: Point) -> Iterator[str]:
    old, new = dict(last.versions), dict(first.versions)
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            yield f"{name} {old[name]} before, {new[name]} after"
    if last.node and first.node and last.node != first.node:
        yield f"on {last.node} before, on {first.node} after"


def times_of(points: Iterable[Point], by: str) -> list[Timed]:
    """Return the times by node or GPU; the same work is the same program at the same commit."""
    found = []
    for point in points:
        place = point.node if by == "node" else f"{point.node or '-'} {point.gpu}"
        if point.node if by == "node" else point.gpu:
            found.append(
                Timed(f"{point.label}\0{point.machine}\0{point.work}", place, point.time_ms)
            )
    return found
