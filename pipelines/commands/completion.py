"""perfpipe completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print completion code for SHELL: eval "$(perfpipe completion bash)"."""
    from perfpipe.pipelines.cli import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(cli, {}, "perfpipe", "_PERFPIPE_COMPLETE").source())
