"""JUnit XML of a batch for CI systems: each task is a test."""

from __future__ import annotations

from collections.abc import Sequence

from perfpipe.analysis.batch.failures import logs_command
from perfpipe.analysis.batch.items import Item
from perfpipe.batchrecord import Batch, State
from perfpipe.pipelines.junit import Case, Outcome, Suite, xml


def junit(batch: Batch, items: Sequence[Item]) -> str:
    """Return JUnit XML: a suite for each run, a case for each task.

    A task that failed by itself is a failure.  A task that the cluster ended, or that has no
    result, is an error.  A canceled task is skipped.
    """
    of_run: dict[str, list[Case]] = {run.run_id: [] for run in batch.runs}
    for item in items:
        of_run[item.state.task.run_id].append(_case(batch, item))
    at = batch.created_at.removesuffix("Z")
    return xml(
        batch.batch_id,
        [Suite(run.workload, of_run[run.run_id], run.run_id, at) for run in batch.runs],
    )


def _case(batch: Batch, item: Item) -> Case:
    task, state = item.state.task, item.state.state.value
    where = f"node: {item.state.node or 'unknown'}\njob: {item.state.element or '-'}"
    return Case(
        task.workload,
        f"{task.label} [{task.index}]",
        item.state.seconds or 0,
        _outcome(item),
        state,
        f"{state}: {item.reason}" if item.reason else state,
        f"{where}\n{item.log or 'no log'}\n{logs_command(batch, item)}",
    )


def _outcome(item: Item) -> Outcome | None:
    """Return the failure of a task; None if it passed."""
    if item.done:
        return None
    known = {State.FAILED: Outcome.FAILURE, State.CANCELLED: Outcome.SKIPPED}
    return known.get(item.state.state, Outcome.ERROR)
