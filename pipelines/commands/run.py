"""perfpipe run."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

import click

from pipelines.console import progress, say
from pipelines.launcher import Launcher
from pipelines.options import (
    filter_option,
    json_document,
    json_option,
    pairs,
    resolve_store,
    step_range_option,
    store_option,
)
from pipelines.plan import COLLECTORS, Plan, choose_collector, planned_tasks
from pipelines.runner import execute, raise_for_status
from pipelines.tasks import Task, directory_of
from pipelines.workload import Scalar, load_workload


@click.command("run")
@click.argument("workload", type=click.Path(path_type=Path))
@click.option(
    "--collector",
    type=click.Choice(COLLECTORS),
    default="auto",
    show_default=True,
    help="auto measures where there is a GPU and replays the recording elsewhere.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE[,VALUE]",
    help="Set a parameter (or warmup, repeats, launches, timeout) instead of its values in the "
    "file.",
)
@filter_option
@click.option("--dry-run", is_flag=True, help="Print each configuration and command, run nothing.")
@click.option(
    "--resume",
    is_flag=True,
    help="Resume the latest run of this workload: launch only what it lacks, or what has changed "
    "since.",
)
@click.option(
    "--rerun-failed", is_flag=True, help="Like --resume, and launch again what failed there."
)
@json_option("Print the run record, or the plan of --dry-run, as one JSON document.")
@click.option(
    "--html", metavar="FILE", default="report.html", show_default=True, help="HTML report to write."
)
@click.option(
    "--md", metavar="FILE", default="report.md", show_default=True, help="Markdown report to write."
)
@step_range_option
@click.option("--no-report", is_flag=True, help="Write no report; perfpipe report writes it later.")
@store_option
def run_command(
    workload: Path,
    collector: str,
    settings: tuple[str, ...],
    filters: dict[str, list[str]],
    dry_run: bool,
    resume: bool,
    rerun_failed: bool,
    as_json: bool,
    html: str,
    md: str,
    step_range: str | None,
    no_report: bool,
    store_path: str | None,
) -> None:
    """Launch WORKLOAD (a YAML file) under the profilers, ingest what they record, and report.

    Each configuration is launched plain (it checks its result and is timed), under nsys and under
    ncu, one after another, so that no measurement disturbs another.  Without a GPU a recorded
    capture is replayed, and every page says so.  A workload with `tune` is searched for its
    quickest parameters, generation by generation.

    \b
    perfpipe run workloads/gemm.yaml
    perfpipe run workloads/gemm.yaml --set size=4096 --set dtype=fp16,bf16 --collector ncu
    perfpipe run workloads/gemm.yaml --filter dtype=fp16 --dry-run
    perfpipe run workloads/fused_matmul_tuning.yaml --resume
    """
    loaded = load_workload(workload, _settings(settings))
    planned = planned_tasks(loaded, workload, filters)
    if dry_run:
        _show(planned, as_json)
        return
    launcher = Launcher(loaded.execution, directory_of(loaded, workload))
    kind, reason = choose_collector(collector, launcher)
    plan = Plan(loaded, workload, planned, kind, resume or rerun_failed, rerun_failed)
    say(f"{loaded.name}: {plan.launches} configurations; {reason}")
    store = resolve_store(store_path)
    with progress(loaded.name, plan.launches) as steps:
        record = execute(plan, store, steps)
    if as_json:
        click.echo(json_document(run=asdict(record)))
    if not no_report:
        from pipelines.reporting import make_report, output

        report = make_report(store, [record.run_id], step_range=step_range)
        output(report, html=html, md=md, quiet=as_json)
    raise_for_status(record)


def _show(planned: list[Task], as_json: bool) -> None:
    if as_json:
        names = ("index", "label", "params", "command", "key", "flops", "bytes", "dtype")
        shown = [{name: getattr(task, name) for name in names} for task in planned]
        click.echo(json_document(tasks=shown))
        return
    for task in planned:
        click.echo(f"[{task.index}] {task.label}\n    {shlex.join(task.command)}")


def _settings(settings: tuple[str, ...]) -> dict[str, list[Scalar]]:
    return {name: [_scalar(value) for value in values] for name, values in pairs("--set", settings)}


def _scalar(text: str) -> Scalar:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
