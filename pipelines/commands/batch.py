"""perfpipe batch."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfpipe.errors import InputError, PerfpipeError, TaskFailed
from pipelines.console import say
from pipelines.options import filter_option, json_document, json_option, resolve_store, store_option
from pipelines.plan import COLLECTORS

if TYPE_CHECKING:
    from pipelines.batch.disk import BatchDirectory
    from pipelines.batch.state import BatchState

#: How often the scheduler is asked, s: many of us may share it.
_TICK_S = 15.0

_batch = click.argument("batch", required=False)
_interval = click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=_TICK_S,
    show_default=True,
    metavar="SECONDS",
    help="How often Slurm is asked; one call for all jobs.",
)
_of = click.option("--batch", metavar="BATCH", help="The batch [default: the newest].")


@click.group("batch")
def batch_command() -> None:
    """Run many configurations as jobs of a Slurm cluster, and report on all of them.

    \b
    perfpipe batch submit workloads/gemm.yaml workloads/attention.yaml --partition gpu
    perfpipe batch submit runs/*.nsys-rep --ingest-only
    perfpipe batch status
    perfpipe batch wait && perfpipe report BATCH --html

    Results lie in the store and are what counts; Slurm is asked about those that are missing.
    BATCH is an id or the beginning of one; without it, the newest batch is meant.
    """


def _slurm_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that are passed on to Slurm."""
    texts = {
        "partition": ("NAME", "Partition."),
        "account": ("NAME", "Account to charge."),
        "qos": ("NAME", "Quality of service."),
        "time": ("TIME", "Time limit of a job: 30m, 1h30m, 2:00:00."),
        "gpus": ("N", "GPUs per node [default: 1; 0 where nothing is measured]."),
        "cpus": ("N", "CPUs per node."),
        "mem": ("SIZE", "Memory per node, such as 64G."),
        "constraint": ("FEATURES", "Features that nodes must have."),
        "nodes": ("N", "Nodes per task."),
        "array-parallelism": ("N", "Most jobs to run at a time."),
        "tasks-per-job": ("N", "Tasks that a job runs in turn [default: chosen]."),
    }
    numbers = ("gpus", "cpus", "nodes", "array-parallelism", "tasks-per-job")
    for name, (metavar, text) in reversed(texts.items()):
        kind = int if name in numbers else str
        command = click.option(f"--{name}", type=kind, metavar=metavar, help=text)(command)
    return command


@batch_command.command("submit")
@click.argument("paths", nargs=-1, required=True, metavar="WORKLOAD.yaml|REPORT...")
@click.option(
    "--collector",
    type=click.Choice(COLLECTORS),
    default="auto",
    show_default=True,
    help="What to collect with; auto profiles with nsys and ncu, replay reads the recordings.",
)
@click.option("--ingest-only", is_flag=True, help="Read existing reports; no GPU is asked for.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE[,VALUE]",
    help="Override a parameter of the files (or warmup, repeats, launches, timeout).",
)
@filter_option
@click.option(
    "--arms",
    metavar="NAME",
    help="Parameter whose values are compared: they share a job, and their launches take turns "
    "(A B B A).",
)
@_slurm_options
@click.option("--exclusive", is_flag=True, default=None, help="Ask for whole nodes.")
@click.option("--setup", multiple=True, metavar="LINE", help="Shell line before each task.")
@click.option("--extra", multiple=True, metavar="OPTION", help="Another option of sbatch.")
@click.option("--no-pages", is_flag=True, help="Make no page for each configuration.")
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often a task is submitted whose node failed or that was preempted.",
)
@click.option("--dry-run", is_flag=True, help="Print the scripts and tasks; submit nothing.")
@json_option("Print the batch, or what --dry-run shows, as JSON.")
@store_option
@click.pass_context
def submit_command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    collector: str,
    ingest_only: bool,
    settings: tuple[str, ...],
    filters: dict[str, list[str]],
    arms: str | None,
    no_pages: bool,
    max_attempts: int,
    dry_run: bool,
    as_json: bool,
    store_path: str | None,
    **asked: Any,
) -> None:
    """Submit workloads as job arrays, or existing reports to read, and return at once.

    Each configuration is a task; several short ones share a job.  A last job collects: it writes
    the runs and the pages.  The store must be on a file system that the nodes share.

    \b
    perfpipe batch submit workloads/gemm.yaml --partition gpu --time 30m
    perfpipe batch submit workloads/*.yaml --array-parallelism 8 --set dtype=fp16
    perfpipe batch submit captures/ --ingest-only --partition cpu
    perfpipe batch submit workloads/gemm.yaml --dry-run
    """
    from pipelines.batch import freezing, packing, submitting
    from pipelines.batch.disk import BatchDirectory
    from pipelines.batch.settings import given, site_defaults
    from pipelines.claim import claimed
    from pipelines.commands.run import settings_of
    from pipelines.slurm.client import Cluster
    from pipelines.slurm.options import merged
    from pipelines.workload import load_workload

    store = resolve_store(store_path)
    slurm, defaults = given(asked), site_defaults()
    words = ["perfpipe", *_words(ctx)]
    common: dict[str, Any] = {
        "store": store,
        "command": words,
        "pages": not no_pages,
        "max_attempts": max_attempts,
    }
    if ingest_only:
        frozen = freezing.freeze_inputs(paths, slurm=merged(defaults, slurm), **common)
    else:
        chosen = settings_of(settings)
        wanted = [freezing.Wanted(load_workload(Path(path), chosen), Path(path)) for path in paths]
        frozen = freezing.freeze(
            wanted,
            collector=collector,
            slurm=slurm,
            defaults=defaults,
            filters=filters,
            arms=arms,
            **common,
        )
    cluster = Cluster()
    kinds = {run.run_id: run.collector for run in frozen.batch.runs}
    arrays = submitting.arrays_of(
        frozen.tasks,
        {run_id: workload.slurm for run_id, workload in frozen.workloads.items() if workload.slurm},
        packing.expected_seconds(store, frozen.tasks, kinds),
        _largest(cluster, dry_run),
        arms,
    )
    if dry_run:
        planned = submitting.scripts(BatchDirectory(store, frozen.batch), arrays)
        _show_plan(frozen.tasks, planned, as_json)
        return
    directory = BatchDirectory.create(store, frozen.batch, frozen.tasks, frozen.workloads)
    batch_id = frozen.batch.batch_id
    try:
        with claimed(directory.path):
            jobs = submitting.submit(directory, cluster, arrays, "submit")
    except PerfpipeError as error:
        error.args = (f"{error} (when mended: perfpipe batch resume {batch_id})",)
        raise
    if as_json:
        click.echo(json_document(batch=asdict(frozen.batch), jobs=jobs))
        return
    count = sum(len(array.elements) for array in arrays)
    say(f"{len(frozen.tasks)} tasks in {count} jobs; the collector is job {jobs[-1]}")
    click.echo(batch_id)


def _largest(cluster: Any, dry_run: bool) -> int:
    """Return the most elements of an array; for a dry run without Slurm, the usual number."""
    from pipelines.batch.submitting import USUAL_ARRAY, largest_array

    try:
        return largest_array(cluster.limits())
    except PerfpipeError:
        if not dry_run:
            raise
        return USUAL_ARRAY


def _words(ctx: click.Context) -> list[str]:
    return ["batch", "submit", *ctx.meta.get("args", [])]


def _show_plan(tasks: Any, planned: Any, as_json: bool) -> None:
    if as_json:
        click.echo(
            json_document(
                tasks=[asdict(task) for task in tasks],
                submissions=[{**asdict(what), "script": script} for what, script in planned],
            )
        )
        return
    for task in tasks:
        click.echo(f"[{task.index}] {task.workload} {task.label}")
    for what, script in planned:
        size = f", {len(what.elements)} jobs" if what.elements else ""
        click.echo(f"\n# {what.stage}{size}\n{script}", nl=False)


@batch_command.command("status")
@_batch
@click.option("--watch", is_flag=True, help="Print again what changes, until all is done.")
@_interval
@json_option("Print every task as JSON.")
@store_option
def status_command(
    batch: str | None, watch: bool, interval: float, as_json: bool, store_path: str | None
) -> None:
    """Show how many tasks are done, run, wait and failed, and why.

    \b
    perfpipe batch status
    perfpipe batch status --watch
    perfpipe batch status batch-2026 --json
    """
    from pipelines.batch.state import state_of
    from pipelines.batch.telling import status_lines, task_document
    from pipelines.slurm.client import Cluster

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
@json_option("Print the outcome as JSON.")
@store_option
def wait_command(batch: str | None, interval: float, as_json: bool, store_path: str | None) -> None:
    """Wait until a batch is collected; exit with 0 if every task succeeded, else 1.

    \b
    perfpipe batch wait && perfpipe report BATCH --html
    """
    from pipelines.batch.waiting import wait_for
    from pipelines.slurm.client import Cluster

    directory = _find(batch, store_path)
    outcome = wait_for(directory, Cluster(), interval)
    if as_json:
        click.echo(json_document(outcome=asdict(outcome)))
    else:
        click.echo(str(directory.path / "report.html"))
    if not outcome.ok:
        counts = ", ".join(f"{number} {name}" for name, number in outcome.counts.items())
        raise TaskFailed(f"{directory.batch.batch_id}: {counts}")


@batch_command.command("logs")
@click.argument("task", type=int)
@_of
@store_option
def logs_command(task: int, batch: str | None, store_path: str | None) -> None:
    """Print the output of a task's job, and name the files that its program left.

    TASK is the number that `batch status` shows.

    \b
    perfpipe batch logs 7
    """
    from pipelines.batch.state import state_of
    from pipelines.batch.telling import log_lines
    from pipelines.slurm.client import Cluster

    directory = _find(batch, store_path)
    if not 0 <= task < directory.batch.tasks:
        raise InputError(f"{task}: the batch has the tasks 0 to {directory.batch.tasks - 1}")
    found = state_of(directory, Cluster()).tasks[task]
    for line in log_lines(directory, found):
        click.echo(line)


@batch_command.command("cancel")
@click.argument("tasks", required=False)
@_of
@store_option
def cancel_command(tasks: str | None, batch: str | None, store_path: str | None) -> None:
    """Cancel tasks, such as 3,7-9, or all that have not ended; what is done stays.

    Tasks of one job end together.

    \b
    perfpipe batch cancel
    perfpipe batch cancel 3,7-9
    """
    from pipelines.batch.canceling import cancel
    from pipelines.slurm.client import Cluster

    directory = _find(batch, store_path)
    ended = cancel(directory, Cluster(), tasks)
    numbers = ", ".join(str(index) for index in ended[:20]) + (", ..." if len(ended) > 20 else "")
    click.echo(f"{len(ended)} tasks canceled" + (f": {numbers}" if ended else ""))


@batch_command.command("resume")
@_batch
@click.option(
    "--only",
    multiple=True,
    metavar="STATE",
    help="Only tasks in this state, such as timeout, 'node failure', lost.",
)
@json_option("Print the jobs as JSON.")
@store_option
def resume_command(
    batch: str | None, only: tuple[str, ...], as_json: bool, store_path: str | None
) -> None:
    """Submit again what did not succeed; what is done or still runs is left alone.

    \b
    perfpipe batch resume
    perfpipe batch resume --only timeout --only 'out of memory'
    """
    from pipelines.batch.resuming import resume, states_named
    from pipelines.slurm.client import Cluster

    directory = _find(batch, store_path)
    again, jobs = resume(directory, Cluster(), states_named(only))
    if as_json:
        click.echo(json_document(tasks=[task.task.index for task in again], jobs=jobs))
    elif jobs:
        click.echo(f"{len(again)} tasks submitted again; the collector is job {jobs[-1]}")
    else:
        click.echo("nothing to resume: every task is done or still runs")


@batch_command.command("ls")
@json_option()
@store_option
def ls_command(as_json: bool, store_path: str | None) -> None:
    """List the batches of the store, newest first, by what is on disk."""
    from pipelines.batch.disk import BatchDirectory
    from pipelines.batch.telling import listing

    store = resolve_store(store_path, must_exist=True)
    every = [BatchDirectory.read(store, batch_id) for batch_id in store.batch_ids()]
    every.sort(key=lambda one: (one.batch.created_at, one.batch.batch_id), reverse=True)
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
    """Run the tasks of this array element."""
    from pipelines.batch.task import run_element

    at = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    if not at.isdigit():
        raise InputError("SLURM_ARRAY_TASK_ID is not set: this runs as an element of a job array")
    if not run_element(_find(batch, store_path), number, int(at)):
        raise TaskFailed("not every task succeeded")


@batch_command.command("_collect", hidden=True)
@click.argument("batch")
@click.argument("number", type=int)
@store_option
def collect_command(batch: str, number: int, store_path: str | None) -> None:
    """Collect the results of a batch."""
    from pipelines.batch.collecting import collect
    from pipelines.slurm.client import Cluster

    outcome = collect(_find(batch, store_path), number, Cluster())
    if outcome is None:
        say("a later collector finishes this batch")
    elif not outcome.ok and not outcome.resubmitted:
        raise TaskFailed(f"tasks failed: {shlex.join(_counted(outcome.counts))}")


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"{name}={number}" for name, number in counts.items()]


def _collecting(state: BatchState) -> bool:
    from pipelines.slurm.states import State as JobIs

    return state.collector is not None and state.collector.state in (
        JobIs.PENDING,
        JobIs.RUNNING,
    )


def _find(batch: str | None, store_path: str | None) -> BatchDirectory:
    from pipelines.batch.disk import BatchDirectory

    return BatchDirectory.find(resolve_store(store_path, must_exist=True), batch)
