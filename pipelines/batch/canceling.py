"""Cancels tasks of a batch by their jobs."""

from __future__ import annotations

from perfpipe.errors import InputError
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.state import state_of
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.pipelines.slurm.render import compact_array
from perfpipe.pipelines.slurm.states import State as JobIs
from perfpipe.pipelines.slurm.states import indices


def cancel(directory: BatchDirectory, cluster: Cluster, wanted: str | None) -> list[int]:
    """Cancel tasks, such as 3,7-9, or all that may still run; return the canceled ones.

    Other tasks of the same job end with them.  The collector keeps running and reports the results
    so far.  Raises InputError for an invalid list of tasks.
    """
    numbers = None if wanted is None else _numbers(wanted, directory.batch.tasks)
    live = [task for task in state_of(directory, cluster).tasks if task.state.in_flight]
    chosen = {task.element for task in live if numbers is None or task.task.index in numbers}
    chosen.discard(None)
    elements = sorted(one for one in chosen if one)
    if elements:
        directory.write_ended(dict.fromkeys(elements, JobIs.CANCELLED.value))
        cluster.cancel(_compact(elements))
    return sorted(task.task.index for task in live if task.element in chosen)


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
