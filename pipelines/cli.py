"""The command line: commands are loaded when they are called, so that --help is quick."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

import click

from perfpipe.errors import InputError, PerfpipeError, os_error_sentence

#: Commands and what they do, in the order of the help page.
COMMANDS = {
    "run": "Launch a workload under nsys and ncu, ingest, and report.",
    "ingest": "Read report files into the store.",
    "report": "Write a report of a run, or of ingested reports.",
    "query": "Run SQL over the store.",
    "schema": "Show tables, views and columns.",
    "specs": "Show vendor peaks of GPUs.",
    "occupancy": "Calculate occupancy, without a report.",
    "work": "State the work of kernels in a report.",
    "budget": "Say where the GPU's time went, also in a part of it.",
    "rules": "Run the expert rules of nsys analyze.",
    "record": "Turn a run into a recording that replays without a GPU.",
    "scrub": "Copy a report without what tells who made it where.",
    "tuning": "Tell the story of a search for the quickest parameters.",
    "export": "Write a timeline for another viewer.",
    "doctor": "Check profilers, driver, permissions and disk.",
    "init": "Copy the workloads that come with perfpipe here.",
    "store": "List, verify and clean the store.",
    "completion": "Print shell completion code.",
}


class _LazyGroup(click.Group):
    """Imports pipelines.commands.NAME only when NAME is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"pipelines.commands.{cmd_name}")
        command = getattr(module, f"{cmd_name}_command")
        if not isinstance(command, click.Command):
            raise TypeError(f"{module.__name__} holds no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="perfpipe")
def cli() -> None:
    """GPU workloads from launch to verdict.

    \b
    perfpipe run workloads/gemm.yaml      launch, profile, report
    perfpipe ingest *.ncu-rep *.sqlite    read reports that you have
    perfpipe report --html                what bounds it, and what to do
    perfpipe query "FROM kernel_sol"      ask anything in SQL

    Results go to stdout, progress and messages to stderr.  Exit codes: 0 done; 1 a task failed;
    2 usage, configuration or unreadable input; 5 a needed tool is missing; 130 interrupted.
    """


def main() -> None:
    """Run the command line and exit; an expected error is one sentence, never a traceback."""
    sys.exit(run_cli(sys.argv[1:]))


def run_cli(args: list[str]) -> int:
    """Run the command line and return the exit code."""
    try:
        result: Any = cli.main(args, prog_name="perfpipe", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except PerfpipeError as error:
        click.echo(f"perfpipe: {error}", err=True)
        return error.exit_code
    except OSError as error:
        click.echo(f"perfpipe: {os_error_sentence(error, 'cannot use')}", err=True)
        return InputError.exit_code
    return result if isinstance(result, int) else 0
