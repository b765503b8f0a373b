"""perfpipe run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from perfpipe.errors import InputError
from pipelines.console import progress, say
from pipelines.options import store_option, the_store
from pipelines.runner import COLLECTORS, Plan, choose_collector, execute, raise_for_status
from pipelines.workload import Scalar, load_workload, tasks


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
    help="Set a parameter of the workload, instead of its values in the file.",
)
@click.option("--dry-run", is_flag=True, help="Print each configuration and command, run nothing.")
@click.option(
    "--html", metavar="FILE", default="report.html", show_default=True, help="HTML report to write."
)
@click.option(
    "--md", metavar="FILE", default="report.md", show_default=True, help="Markdown report to write."
)
@store_option
def run_command(
    workload: Path,
    collector: str,
    settings: tuple[str, ...],
    dry_run: bool,
    html: str,
    md: str,
    store_path: str | None,
) -> None:
    """Launch WORKLOAD (a YAML file) under the profilers, ingest what they record, and report.

    Each configuration is launched plain (it checks its result and is timed), under nsys and under
    ncu, one after another, so that no measurement disturbs another.  Without a GPU a recorded
    capture is replayed, and every page says so.

    \b
    perfpipe run workloads/gemm.yaml
    perfpipe run workloads/gemm.yaml --set m=4096 --set dtype=fp16,bf16 --collector ncu
    """
    loaded = load_workload(workload, _settings(settings))
    kind, reason = choose_collector(collector)
    plan = Plan(loaded, workload, tasks(loaded, workload), kind)
    if dry_run:
        for task in plan.tasks:
            click.echo(f"[{task.index}] {task.label}\n    {json.dumps(list(task.command))}")
        return
    say(f"{loaded.name}: {len(plan.tasks)} configurations; {reason}")
    store = the_store(store_path)
    with progress(loaded.name, len(plan.tasks)) as steps:
        record = execute(plan, store, steps)
    from pipelines.reporting import make_report, output

    output(make_report(store, [record["run_id"]]), html=html, md=md)
    raise_for_status(record)


def _settings(settings: tuple[str, ...]) -> dict[str, list[Scalar]]:
    found: dict[str, list[Scalar]] = {}
    for setting in settings:
        name, equals, values = setting.partition("=")
        if not equals or not name or not values:
            raise InputError(f"--set {setting}: expected NAME=VALUE or NAME=VALUE,VALUE")
        found[name] = [_scalar(value) for value in values.split(",")]
    return found


def _scalar(text: str) -> Scalar:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
