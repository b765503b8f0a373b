"""perfpipe config."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from perfpipe.pipelines.options import json_document, json_option
from perfpipe.pipelines.settings import effective, files


@click.group("config")
def config_command() -> None:
    """Show settings and where they come from."""


@config_command.command("show")
@click.argument("workload", required=False, type=click.Path(path_type=Path))
@click.option("--origin", is_flag=True, help="Show where each setting comes from.")
@json_option()
def show_command(workload: Path | None, origin: bool, as_json: bool) -> None:
    """Show the settings in effect here, or for WORKLOAD.

    Order of precedence: option, environment variable, workload file, perfpipe.toml (in this
    directory or a parent directory), ~/.config/perfpipe/config.toml, /etc/perfpipe.toml or
    $PERFPIPE_SITE_CONFIG, default.
    """
    stated = None
    if workload is not None:
        from perfpipe.pipelines.workload import load_workload

        stated = (load_workload(workload), workload)
    settings = effective(stated)
    if as_json:
        click.echo(
            json_document(
                files=[str(path) for path in files()], settings=[asdict(s) for s in settings]
            )
        )
        return
    for setting in settings:
        value = json.dumps(setting.value, ensure_ascii=False) if setting.value is not None else "-"
        click.echo(f"{setting.key:24} {value}{'    ' + setting.origin if origin else ''}")
