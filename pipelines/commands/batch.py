"""perfpipe batch."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.commands.batch_doctor import batch_doctor_command
from perfpipe.pipelines.commands.batch_submit import batch_submit_command, slurm_flags
from perfpipe.pipelines.console import say
from perfpipe.pipelines.options import (
    json_document,
    json_option,
    resolve_store,
    settings_of,
    store_option,
)
from perfpipe.units import counted

if TYPE_CHECKING:
    from perfpipe.pipelines.batch.disk import BatchDirectory
    from perfpipe.pipelines.batch.state import BatchState

#: Time between queries of the scheduler, s: many users may share it.
_TICK_S = 15.0

_batch = click.argument("batch", required=False)
_interval = click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=_TICK_S,
    show_default=True,
    metavar="SECONDS",
    help="Time between queries to Slurm; one query covers all jobs.",
)
_of = click.option("--batch", metavar="BATCH", help="Batch to use [default: the newest batch].")


@click.group("batch")
def batch_command() -> None:
    """Run many configurations as Slurm jobs, and report on all of them.

    \b
    perfpipe batch submit workloads/gemm.yaml workloads/attention.yaml --partition gpu
    perfpipe batch submit runs/*.nsys-rep --ingest-only
    perfpipe batch status
    perfpipe batch wait && perfpipe report BATCH --html

    A task whose results are in the store is finished.  perfpipe queries Slurm only about the other
    tasks.  BATCH is the id of a batch or a prefix of the id (default: the newest batch).
    """


batch_command.add_command(batch_submit_command)
batch_command.add_command(batch_doctor_command)


@batch_command.command("status")
@_batch
@click.option("--watch", is_flag=True, help="Print every change until all tasks have finished.")
@_interval
@json_option("Print every task as JSON.")
@store_option
def status_command(
    batch: str | None, watch: bool, interval: float, as_json: bool, store_path: str | None
) -> None:
    """Show the progress of a batch, and why tasks are waiting or failed.

    \b
    perfpipe batch status
    perfpipe batch status --watch
    perfpipe batch status batch-2026 --json
    """
    from perfpipe.pipelines.batch.state import state_of
    from perfpipe.pipelines.batch.telling import status_lines, task_document
    from perfpipe.pipelines.slurm.client import Cluster

    directory = _find(batch, store_path)
    before: list[str] = []
    while True:
        state = state_of(directory, Cluster())
        if as_json:
            click.echo(json_document(**task_document(directory, state)))
        elif (lines := status_lines(directory, state)) != before:
            click.echo("\n".join(lines))
            before = lines
        if not watch or (state.finished and not _collecting(state)):
            return
        time.sleep(interval)


@batch_command.command("wait")
@_batch
@_interval
@click.option("-q", "--quiet", is_flag=True, help="Do not print tasks as they finish.")
@json_option("Print the outcome as JSON.")
@store_option
def wait_command(
    batch: str | None, interval: float, quiet: bool, as_json: bool, store_path: str | None
) -> None:
    """Wait until a batch is complete.

    The exit code is 0 if every task succeeded, else 1.

    \b
    perfpipe batch wait && perfpipe report BATCH --html
    """
    from perfpipe.pipelines.batch.waiting import wait_for
    from perfpipe.pipelines.slurm.client import Cluster

    directory = _find(batch, store_path)
    outcome = wait_for(directory, Cluster(), interval, quiet=quiet)
    if as_json:
        click.echo(json_document(outcome=asdict(outcome)))
    else:
        click.echo(str(directory.path / "report.html"))
    if not outcome.ok:
        raise TaskFailed(f"{directory.batch.batch_id}: {_counted(outcome.counts)}")


@batch_command.command("logs")
@click.argument("task", type=int)
@_of
@store_option
def logs_command(task: int, batch: str | None, store_path: str | None) -> None:
    """Print the output of a task's job, and list the task's files.

    TASK is the number that `batch status` shows.

    \b
    perfpipe batch logs 7
    """
    from perfpipe.pipelines.batch.state import state_of
    from perfpipe.pipelines.batch.telling import log_lines
    from perfpipe.pipelines.slurm.client import Cluster

    directory = _find(batch, store_path)
    if not 0 <= task < directory.batch.tasks:
        raise InputError(f"no task {task}: the batch has tasks 0 to {directory.batch.tasks - 1}")
    found = state_of(directory, Cluster()).tasks[task]
    for line in log_lines(directory, found):
        click.echo(line)


@batch_command.command("cancel")
@click.argument("tasks", required=False)
@_of
@store_option
def cancel_command(tasks: str | None, batch: str | None, store_path: str | None) -> None:
    """Cancel tasks such as 3,7-9, or all unfinished tasks.

    Results of finished tasks are kept, and the collector reports them.  Canceling one task of a job
    also cancels the other unfinished tasks of that job.  The collector is canceled too if there are
    no results, or if all tasks have ended and it still waits.

    \b
    perfpipe batch cancel
    perfpipe batch cancel 3,7-9
    """
    from perfpipe.pipelines.batch.canceling import cancel
    from perfpipe.pipelines.slurm.client import Cluster

    directory = _find(batch, store_path)
    done = cancel(directory, Cluster(), tasks)
    ended = done.tasks
    numbers = ", ".join(str(index) for index in ended[:20]) + (", ..." if len(ended) > 20 else "")
    what = f"{counted(len(ended), 'task')} canceled" + (f": {numbers}" if ended else "")
    click.echo(f"{what}; so is the collector" if done.collector else what)


@batch_command.command("resume")
@_batch
@click.option(
    "--only",
    multiple=True,
    metavar="STATE",
    help="Resubmit only tasks in this state, such as timeout, 'node failure' or lost.",
)
@slurm_flags(("partition", "account", "qos", "time", "cpus", "mem", "constraint", "tasks-per-job"))
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="timeout=SECONDS",
    help="Change the time limit of an execution.",
)
@json_option("Print the jobs as JSON.")
@store_option
def resume_command(
    batch: str | None,
    only: tuple[str, ...],
    settings: tuple[str, ...],
    as_json: bool,
    store_path: str | None,
    **asked: Any,
) -> None:
    """Resubmit tasks that did not succeed and are not running.

    The new jobs get the Slurm options that apply now: those of perfpipe.toml and of the workload
    file, which may have been edited, then those of 'batch submit', then those given here.
    Later jobs of the batch keep these options.

    \b
    perfpipe batch resume
    perfpipe batch resume --only timeout --time 2h
    perfpipe batch resume --only timeout --set timeout=1200
    perfpipe batch resume --partition gpu-long --qos normal
    """
    from perfpipe.pipelines.batch.changing import timeout_of
    from perfpipe.pipelines.batch.resuming import resume, states_named
    from perfpipe.pipelines.batch.settings import given
    from perfpipe.pipelines.slurm.client import Cluster

    # Options are checked before there must be a batch.
    states, flags, timeout = states_named(only), given(asked), timeout_of(settings_of(settings))
    done = resume(_find(batch, store_path), Cluster(), states, flags, timeout)
    if as_json:
        numbers = [task.task.index for task in done.tasks]
        click.echo(json_document(tasks=numbers, jobs=[*done.jobs], changes=[*done.changes]))
    elif done.jobs:
        for change in done.changes:
            say(change)
        click.echo(
            f"{counted(len(done.tasks), 'task')} resubmitted; the collector is job {done.jobs[-1]}"
        )
    else:
        click.echo("nothing to resume: every task is done, waiting, running or unknown")


@batch_command.command("rm")
@click.argument("batches", nargs=-1, required=True, metavar="BATCH...")
@store_option
def rm_command(batches: tuple[str, ...], store_path: str | None) -> None:
    """Remove batches whose jobs have ended: records, scripts, logs and pages.

    Runs and reports stay; 'perfpipe store rm' removes reports.

    \b
    perfpipe batch rm batch-20261126
    """
    from perfpipe.pipelines.batch.removing import remove
    from perfpipe.pipelines.slurm.client import Cluster

    for name in batches:
        directory = _find(name, store_path)
        remove(directory, Cluster())
        click.echo(f"removed {directory.batch.batch_id}")


@batch_command.command("ls")
@json_option()
@store_option
def ls_command(as_json: bool, store_path: str | None) -> None:
    """List the batches in the store, newest first, without querying Slurm."""
    from perfpipe.pipelines.batch.disk import BatchDirectory
    from perfpipe.pipelines.batch.telling import listing

    every = BatchDirectory.every(resolve_store(store_path, must_exist=True))
    if as_json:
        click.echo(json_document(batches=[asdict(one.batch) for one in every]))
        return
    for line in listing(every):
        click.echo(line)


@batch_command.command("_task", hidden=True)
@click.argument("batch")
@click.argument("number", type=int)
@store_option
def task_command(batch: str, number: int, store_path: str | None) -> None:
    """Run the tasks of one element of a job array (Slurm jobs call this command)."""
    from perfpipe.pipelines.batch.task import run_element

    at = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    if not at.isdigit():
        raise InputError(
            "SLURM_ARRAY_TASK_ID is not set: this command runs only in a Slurm job array"
        )
    if not run_element(_find(batch, store_path), number, int(at)):
        raise TaskFailed("not every task succeeded")


@batch_command.command("_collect", hidden=True)
@click.argument("batch")
@click.argument("number", type=int)
@store_option
def collect_command(batch: str, number: int, store_path: str | None) -> None:
    """Collect the results of a batch (the last Slurm job calls this command)."""
    from perfpipe.pipelines.batch.collecting import collect
    from perfpipe.pipelines.slurm.client import Cluster

    outcome = collect(_find(batch, store_path), number, Cluster())
    if outcome is None:
        say("a later collector job will finish this batch")
    elif not outcome.ok and not outcome.resubmitted:
        raise TaskFailed(f"not every task succeeded: {_counted(outcome.counts)}")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def _collecting(state: BatchState) -> bool:
    from perfpipe.pipelines.slurm.states import State as JobIs

    return state.collector is not None and state.collector.state in (
        JobIs.PENDING,
        JobIs.RUNNING,
    )


def _find(batch: str | None, store_path: str | None) -> BatchDirectory:
    from perfpipe.pipelines.batch.disk import BatchDirectory

    return BatchDirectory.find(resolve_store(store_path, must_exist=True), batch)
