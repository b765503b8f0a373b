"""perfpipe batch doctor."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from perfpipe.pipelines.checks import NEEDS, require
from perfpipe.pipelines.console import say
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option


@click.command("doctor")
@click.option("--partition", metavar="NAME", help="Slurm partition.")
@click.option("--account", metavar="NAME", help="Account to charge.")
@click.option("--qos", metavar="NAME", help="Slurm quality of service (QOS).")
@click.option("--constraint", metavar="FEATURES", help="Features that the node must have.")
@click.option("--gpus", type=int, metavar="N", help="GPUs to request [default: 1].")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Cancel the job if it has not reported a result after this time.",
)
@click.option(
    "--need",
    multiple=True,
    type=click.Choice(NEEDS),
    help="What the node must have; exit with code 5 if it is missing (repeat for several).",
)
@json_option()
@store_option
def batch_doctor_command(
    timeout: float, need: tuple[str, ...], as_json: bool, store_path: str | None, **asked: Any
) -> None:
    """Check whether a compute node is ready for profiling.

    Submits a short job that runs the checks.  Drivers, profilers and counter permissions of compute
    nodes often differ from those of the login node.

    \b
    perfpipe batch doctor --partition gpu
    perfpipe batch doctor --partition gpu --need ncu --need gpu
    """
    from perfpipe.pipelines.batch.settings import given
    from perfpipe.pipelines.settings import slurm_options
    from perfpipe.pipelines.slurm.doctor import doctor_job

    slurm = slurm_options(flags=given(asked))
    inside = slurm.container.image is not None
    program = ("perfpipe",) if inside else (sys.executable, "-m", "perfpipe")
    found = doctor_job(slurm, program, resolve_store(store_path).root, timeout, say)
    if as_json:
        checks = [asdict(check) for check in found.checks]
        click.echo(json_document(job=found.job, node=found.node, checks=checks))
    else:
        click.echo(f"{found.node or 'the node'} (job {found.job}):")
        for check in found.checks:
            click.echo(str(check))
    require(found.checks, need)
