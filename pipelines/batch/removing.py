"""Removes a batch from the store; what it measured stays."""

from __future__ import annotations

import contextlib
import shutil

from perfpipe.directories import storing
from perfpipe.errors import InputError
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.resuming import adopt_orphans
from perfpipe.pipelines.batch.state import BatchState, state_of
from perfpipe.pipelines.claim import claimed
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.units import counted


def remove(directory: BatchDirectory, cluster: Cluster) -> None:
    """Remove a batch: its record, scripts, logs and page, and runs that were never recorded.

    Recorded runs and their reports stay.  Raises InputError while jobs of the batch may run,
    TaskFailed if Slurm does not say whether they do.
    """
    store, batch = directory.store, directory.batch
    with claimed(directory.path):
        if directory.submissions():
            adopt_orphans(directory, cluster)
            _require_ended(directory, state_of(directory, cluster))
        recorded = {*store.run_ids()}
        unseen = [run.run_id for run in batch.runs if run.run_id not in recorded]
        with storing(directory.path):
            # The batch goes first: what is left behind then belongs to no batch, and is swept.
            trash = store.trash_of(directory.path)
            directory.path.rename(trash)
            shutil.rmtree(trash)
            for run_id in unseen:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(store.runs_dir / run_id)


def _require_ended(directory: BatchDirectory, state: BatchState) -> None:
    state.require_answer()
    running = sum(task.state.in_flight for task in state.tasks)
    if running or state.collecting:
        what = counted(running, "task") if running else "the collector"
        raise InputError(
            f"{directory.batch.batch_id}: {what} may still run; 'perfpipe batch cancel "
            f"--batch {directory.batch.batch_id}' ends {'them' if running else 'it if it waits'}"
        )
