"""Packs tasks into the elements of job arrays: few jobs for short tasks, within the limits."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from perfpipe.batchrecord import BatchTask
from perfpipe.store import Store

#: Shortest useful job, s: shorter ones load the scheduler too much.  Sites ask for at most about
#: ten starts a minute.
WORTH_A_JOB_S = 60.0

#: Assumed upper bound for reading a report or replaying a recording, s.
READING_S = 5.0

#: Most arrays of one call: sbatch can time out with more.
MOST_ARRAYS = 8


def packed(
    tasks: Iterable[BatchTask],
    shape_of: Callable[[BatchTask], Hashable],
    expected_s: Mapping[int, float],
    per_job: Callable[[BatchTask], int | None],
    largest_array: int,
    arms: str | None = None,
) -> list[list[tuple[int, ...]]]:
    """Return arrays of elements of task indices; an array has tasks of one shape.

    `expected_s` has the expected durations of tasks, if known; `per_job` is the number of tasks per
    job, if the user sets it.  An element's tasks are in the batch's order.  Tasks that differ only
    in the parameter `arms` are in one element, whatever that number is.
    """
    shapes: dict[Hashable, list[BatchTask]] = defaultdict(list)
    for task in tasks:
        shapes[shape_of(task)].append(task)
    arrays = []
    for alike in shapes.values():
        asked = per_job(alike[0])
        size = asked or _size(alike, expected_s, largest_array * MOST_ARRAYS // len(shapes))
        # Equal sizes keep repeats, which are far apart, out of the same job on the same node.
        size = math.ceil(len(alike) / math.ceil(len(alike) / size))
        elements: list[tuple[int, ...]] = []
        for group in in_turn(alike, arms):
            numbers = tuple(task.index for task in group)
            if elements and len(elements[-1]) + len(numbers) <= size:
                elements[-1] += numbers
            else:
                elements.append(numbers)
        arrays += [
            elements[at : at + largest_array] for at in range(0, len(elements), largest_array)
        ]
    return arrays


def in_turn(tasks: Iterable[BatchTask], arms: str | None) -> list[list[BatchTask]]:
    """Return groups of tasks that are measured alternately: they differ only in `arms`."""
    groups: dict[Hashable, list[BatchTask]] = defaultdict(list)
    for task in tasks:
        fixed = tuple((name, value) for name, value in task.params.items() if name != arms)
        alone = arms is None or arms not in task.params
        groups[(task.run_id, fixed, task.index if alone else None)].append(task)
    return list(groups.values())


def _size(tasks: Sequence[BatchTask], expected_s: Mapping[int, float], most: int) -> int:
    """Return the number of tasks per job that gives long enough and few enough jobs."""
    known = [expected_s[task.index] for task in tasks if task.index in expected_s]
    enough = 1
    if len(known) == len(tasks):
        enough = math.ceil(WORTH_A_JOB_S / max(statistics.fmean(known), 0.1))
    return max(1, enough, math.ceil(len(tasks) / max(most, 1)))


def reads_long(store: Store, tasks: Iterable[BatchTask]) -> bool:
    """Return whether reading such reports is worth a separate job, by earlier runs."""
    keys = {task.key for task in tasks}
    known = {own.key: own.reading_s for run in store.runs() for own in run.tasks if own.key in keys}
    took = [seconds for seconds in known.values() if seconds is not None]
    return bool(took) and statistics.median(took) > WORTH_A_JOB_S


def expected_seconds(
    store: Store, tasks: Sequence[BatchTask], kinds: Mapping[str, str]
) -> dict[int, float]:
    """Return the expected durations of tasks from earlier runs of the same configurations, s.

    `kinds` has the collector of each run.  Replays and report reading do not need earlier runs.
    """
    measured = {run_id for run_id, kind in kinds.items() if kind not in ("replay", "ingest")}
    earlier: dict[str, float] = {}
    if measured:
        for run in store.runs():
            for result in run.tasks:
                took = (*result.seconds, *result.profiler_s.values())
                if took:
                    earlier[result.key] = sum(took)
    expected = {}
    for task in tasks:
        if task.run_id not in measured:
            expected[task.index] = READING_S
        elif task.key in earlier:
            expected[task.index] = earlier[task.key]
    return expected
