"""Cancels tasks of a batch by their jobs."""

from __future__ import annotations

from dataclasses import dataclass

from perfpipe.errors import InputError
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.state import state_of
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.pipelines.slurm.render import compact_array
from perfpipe.pipelines.slurm.states import State as JobIs
from perfpipe.pipelines.slurm.states import indices


@dataclass(frozen=True)
class Canceled:
    """What was canceled: tasks, and the collector's job."""

    tasks: list[int]
    collector: str | None = None


def cancel(directory: BatchDirectory, cluster: Cluster, wanted: str | None) -> Canceled:
    """Cancel tasks, such as 3,7-9, or all that may still run.

    Other tasks of the same job end with them.  The collector stays and reports the results so far,
    unless all are canceled and there is none, or only a waiting collector is left.  Raises
    InputError for an invalid list of tasks.
    """
    numbers = None if wanted is None else _numbers(wanted, directory.batch.tasks)
    state = state_of(directory, cluster)
    live = [task for task in state.tasks if task.state.in_flight]
    chosen = {task.element for task in live if numbers is None or task.task.index in numbers}
    chosen.discard(None)
    elements = sorted(one for one in chosen if one)
    if elements:
        directory.write_ended(dict.fromkeys(elements, JobIs.CANCELLED.value))
        cluster.cancel(_compact(elements))
    ended = sorted(task.task.index for task in live if task.element in chosen)
    collector = state.collector
    if wanted is not None or collector is None or collector.state != JobIs.PENDING:
        return Canceled(ended)
    if live and state.results:
        return Canceled(ended)
    cluster.cancel([collector.job])
    return Canceled(ended, collector.job)


def _numbers(text: str, count: int) -> frozenset[int]:
    found = indices(text)
    if not found or len(text.split(",")) > len(found):
        raise InputError(f"{text}: expected tasks such as 3,7-9")
    if outside := [number for number in found if number >= count]:
        raise InputError(f"{outside[0]}: no such task; the batch has tasks 0 to {count - 1}")
    return frozenset(found)


def _compact(elements: list[str]) -> list[str]:
    """Return array elements in compact form: 12_3, 12_4 as 12_[3-4]."""
    arrays: dict[str, list[int]] = {}
    for element in elements:
        job, _, at = element.partition("_")
        arrays.setdefault(job, []).append(int(at))
    return [f"{job}_[{compact_array(held)}]" for job, held in sorted(arrays.items())]
