"""perfpipe batch submit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfpipe.errors import InputError, PerfpipeError
from perfpipe.pipelines.console import say
from perfpipe.pipelines.options import (
    WithProgram,
    filter_option,
    json_document,
    json_option,
    resolve_store,
    settings_of,
    store_option,
)
from perfpipe.pipelines.plan import COLLECTORS
from perfpipe.scratch import scratch
from perfpipe.units import counted

if TYPE_CHECKING:
    from perfpipe.pipelines.slurm.client import Cluster
    from perfpipe.pipelines.slurm.limits import Limits
    from perfpipe.pipelines.workload import Workload


#: Options that are passed on to Slurm, with their metavar and text.
_SLURM: dict[str, tuple[str, str]] = {
    "partition": ("NAME", "Slurm partition."),
    "account": ("NAME", "Account to charge."),
    "qos": ("NAME", "Slurm quality of service (QOS)."),
    "time": ("TIME", "Time limit of a job: 30m, 1h30m, 2:00:00."),
    "gpus": ("N", "GPUs per node [default: 1, or 0 if nothing is measured]."),
    "cpus": ("N", "CPUs per node."),
    "mem": ("SIZE", "Memory per node, such as 64G."),
    "constraint": ("FEATURES", "Features that nodes must have."),
    "nodes": ("N", "Nodes per task."),
    "ranks-per-node": (
        "N",
        "Processes that srun starts per node [default: one per GPU; one for torchrun].",
    ),
    "job-name": ("NAME", "Name of the jobs."),
    "comment": ("TEXT", "Text to add to the comment that perfpipe gives its jobs."),
    "dependency": ("JOBS", "What the first jobs wait for, such as afterok:1234."),
    "log-dir": ("DIR", "Directory for the logs of jobs."),
    "mail-user": ("NAME", "User who receives an email when the batch is complete."),
    "array-parallelism": ("N", "Maximum number of jobs that run at a time."),
    "tasks-per-job": (
        "N",
        "Number of tasks that a job runs, one after another [default: automatic].",
    ),
}
_NUMBERS = ("gpus", "cpus", "nodes", "ranks-per-node", "array-parallelism", "tasks-per-job")


def slurm_flags(
    names: Collection[str] = tuple(_SLURM),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds options that are passed on to Slurm."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for name, (metavar, text) in reversed(_SLURM.items()):
            if name in names:
                kind = int if name in _NUMBERS else str
                command = click.option(f"--{name}", type=kind, metavar=metavar, help=text)(command)
        return command

    return add


@click.command("submit", cls=WithProgram)
@click.argument("paths", nargs=-1, metavar="[WORKLOAD.yaml|REPORT... | -- PROGRAM...]")
@click.option(
    "--collector",
    type=click.Choice(COLLECTORS),
    default="auto",
    show_default=True,
    help="Profilers to use.  auto: nsys and ncu; replay: read recordings instead of running "
    "programs.",
)
@click.option(
    "--ingest-only",
    is_flag=True,
    help="Only ingest existing reports, without requesting a GPU.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE[,VALUE]",
    help="Override a parameter of the workload files, or warmup, repeats, launches or timeout.",
)
@filter_option
@click.option(
    "--arms",
    metavar="NAME",
    help="Parameter whose values to compare: configurations that differ only in this parameter "
    "run in one job, alternating (A B B A).",
)
@slurm_flags()
@click.option("--exclusive", is_flag=True, default=None, help="Request whole nodes.")
@click.option("--setup", multiple=True, metavar="LINE", help="Shell line to run before each task.")
@click.option("--extra", multiple=True, metavar="OPTION", help="Additional sbatch option.")
@click.option("--no-pages", is_flag=True, help="Do not write a page for each configuration.")
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How many times to submit a task if it is preempted or its node fails.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print the scripts and tasks without submitting them."
)
@json_option("Print the batch, or what --dry-run shows, as JSON.")
@store_option
@click.pass_context
def batch_submit_command(
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
    """Submit workloads, a program, or reports to ingest.

    Returns as soon as the jobs are submitted.  Each configuration is a task of a job array; several
    short tasks share a job.  The last job, the collector, writes the runs and the pages.  The store
    must be on a file system that the login node and the compute nodes share.

    \b
    perfpipe batch submit workloads/gemm.yaml --partition gpu --time 30m
    perfpipe batch submit workloads/*.yaml --array-parallelism 8 --set dtype=fp16
    perfpipe batch submit --gpus 8 --time 20m -- torchrun --nproc-per-node 8 train.py
    perfpipe batch submit captures/ --ingest-only --partition cpu
    perfpipe batch submit workloads/gemm.yaml --dry-run
    """
    from perfpipe.pipelines.batch import freezing, packing, submitting
    from perfpipe.pipelines.batch.disk import BatchDirectory
    from perfpipe.pipelines.batch.settings import given
    from perfpipe.pipelines.claim import claimed
    from perfpipe.pipelines.program import program_of
    from perfpipe.pipelines.settings import slurm_options
    from perfpipe.pipelines.slurm.client import Cluster
    from perfpipe.pipelines.workload import load_workload

    program = ctx.meta["program"]
    if bool(paths) == (program is not None):
        raise click.UsageError(
            "give workload files, reports (with --ingest-only), or a program after --", ctx
        )
    store = resolve_store(store_path)
    flags = given(asked)
    words = ["perfpipe", "batch", "submit", *ctx.meta["args"]]
    common: dict[str, Any] = {
        "store": store,
        "command": words,
        "pages": not no_pages,
        "max_attempts": max_attempts,
        "flags": flags,
    }
    if ingest_only:
        frozen = freezing.freeze_inputs(paths, slurm=slurm_options(flags=flags), **common)
    else:
        chosen = settings_of(settings)
        # A file takes the parameters that it has; others may be for other files.
        wanted = [
            freezing.Wanted(load_workload(Path(path), chosen, alone=len(paths) == 1), Path(path))
            for path in paths
        ]
        _require_known(chosen, [one.workload for one in wanted])
        if program is not None:
            alone = program_of(
                program,
                settings=chosen,
                collector=collector,
                prepared=slurm_options(flags=flags).prepares,
            )
            wanted = [freezing.Wanted(alone.workload(), Path("program"), program)]
        frozen = freezing.freeze(
            wanted,
            collector=collector,
            slurm_of=lambda own: slurm_options(own, flags),
            filters=filters,
            arms=arms,
            **common,
        )
    cluster = Cluster()
    limits = _limits(cluster, dry_run)
    kinds = {run.run_id: run.collector for run in frozen.batch.runs}
    arrays = submitting.arrays_of(
        frozen.tasks,
        {run_id: workload.slurm for run_id, workload in frozen.workloads.items() if workload.slurm},
        packing.expected_seconds(store, frozen.tasks, kinds),
        submitting.largest_array(limits) if limits else submitting.USUAL_ARRAY,
        arms,
    )
    if limits:
        submitting.require_fitting(frozen.batch, arrays, limits)
    if dry_run:
        planned = submitting.scripts(BatchDirectory(store, frozen.batch), arrays)
        _show_plan(frozen.tasks, planned, as_json)
        if limits:
            _check_plan(cluster, [script for what, script in planned if not what.after])
        return
    directory = BatchDirectory.create(store, frozen.batch, frozen.tasks, frozen.workloads)
    batch_id = frozen.batch.batch_id
    try:
        with claimed(directory.path):
            jobs = submitting.submit(directory, cluster, arrays, submitting.FIRST)
    except PerfpipeError as error:
        error.args = (f"{error} (once fixed: perfpipe batch resume {batch_id})",)
        raise
    if as_json:
        click.echo(json_document(batch=asdict(frozen.batch), jobs=jobs))
        return
    tasks = counted(len(frozen.tasks), "task")
    elements = counted(sum(len(array.elements) for array in arrays), "job")
    say(f"{tasks} in {elements}; the collector is job {jobs[-1]}")
    click.echo(batch_id)


def _require_known(settings: Iterable[str], workloads: Sequence[Workload]) -> None:
    """Raise InputError for a setting of --set that is of none of several workloads."""
    from perfpipe.pipelines.tasks import combinations

    if not workloads:
        return
    known = {name for one in workloads for params in combinations(one) for name in params}
    known |= type(workloads[0]).model_fields.keys()
    for name in settings:
        if name not in known:
            raise InputError(f"--set {name}: no parameter of any of the workloads")


def _limits(cluster: Cluster, dry_run: bool) -> Limits | None:
    """Return what the cluster allows; None for a dry run without one."""
    try:
        return cluster.limits()
    except PerfpipeError as error:
        if not dry_run:
            raise
        say(f"Slurm did not check the scripts: {error}")
        return None


def _check_plan(cluster: Cluster, scripts: Iterable[str]) -> None:
    """Ask Slurm whether it would take scripts; raises TaskFailed if not."""
    with scratch() as folder:
        for script in scripts:
            path = folder / "script.sh"
            path.write_text(script, encoding="utf-8")
            say(f"Slurm: {cluster.check(path)}")


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
        size = f", {counted(len(what.elements), 'job')}" if what.elements else ""
        click.echo(f"\n# {what.stage}{size}\n{script}", nl=False)
