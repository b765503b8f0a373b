"""Which times of executions can be compared: those of the same kind.

A program prints its times in every execution or in none, but whether perfpipe could observe the
steps may differ: an execution may have too few steps, or be older than the observation of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfpipe.runrecord import OBSERVED, RunRecord, TaskResult


def comparable(groups: Sequence[Sequence[TaskResult]]) -> list[tuple[TaskResult, ...]]:
    """Return results without observed steps, unless every successful result has times.

    The wall times are compared instead.
    """
    whole = all(result.times_ms for group in groups for result in group if result.done)
    return [tuple(result if whole else _walled(result) for result in group) for group in groups]


def comparable_runs(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return runs with comparable results."""
    results = comparable([run.tasks for run in runs])
    return [replace(run, tasks=own) for run, own in zip(runs, results, strict=True)]


def _walled(result: TaskResult) -> TaskResult:
    if result.timing_method != OBSERVED:
        return result
    return replace(result, times_ms=(), launches_ms=(), timing_method=None)
