"""The command line.  Commands are imported only when called, which keeps --help fast."""

from __future__ import annotations

import importlib
import io
import keyword
import os
import signal
import sys
from typing import Any

import click

from perfpipe.errors import InputError, PerfpipeError, ToolMissing, os_error_sentence
from perfpipe.pipelines import signals
from perfpipe.pipelines.startup import dependency, leave_pandas_out
from perfpipe.visible import visible_line

#: Commands and their one-line help by what they are for, in the order of the help page.
GROUPS = {
    "Start": {
        "run": "Run a program under nsys and ncu, ingest the results, and report.",
        "try": "Try the advice on a program: measure the gain, and compare the results.",
        "report": "Write a report on a run or on ingested profiler reports.",
        "compare": "Show what changed between two runs.",
        "ls": "List runs, trials and reports, the newest first.",
        "doctor": "Check profilers, driver, permissions and disk space.",
        "init": "Copy the example workloads into a directory.",
    },
    "Look closer": {
        "findings": "Show the verdict and every finding with its evidence.",
        "budget": "Break down where GPU time goes, in the steady steps or another window.",
        "plan": "Show which kernels of a timeline to profile with ncu, and how.",
        "query": "Run SQL on the store.",
        "schema": "Show tables, views and columns.",
        "rules": "Run the expert rules of nsys analyze.",
        "tuning": "Summarize an autotuning run.",
        "export": "Export a timeline for another viewer.",
    },
    "Gate": {
        "check": "Check whether runs are slower than a baseline (gate).",
        "ab": "Run an A/B test of two configurations or commits.",
        "bisect": "Find the commit or package version that changed the time of a program.",
        "history": "Show how a workload's run time changed from run to run.",
        "baseline": "Save runs as a baseline for check, and export baselines.",
        "calibrate": "Measure how small a change can be detected.",
        "comment": "Post or update a comment on a pull request from CI.",
    },
    "Cluster": {
        "batch": "Run many configurations on a Slurm cluster.",
    },
    "Calculators": {
        "project": "Estimate the time of a run on another GPU.",
        "specs": "Show vendor-published peak rates of GPUs.",
        "occupancy": "Calculate the occupancy of a kernel without a report.",
    },
    "Data": {
        "ingest": "Read report files into the store.",
        "store": "List, verify and clean up the store.",
        "record": "Turn a run into a recording that replays without a GPU.",
        "scrub": "Write an anonymized copy of a report or store.",
        "work": "Declare the FLOPs and bytes of kernels, to compute MFU.",
    },
    "Agents": {
        "mcp": "Serve the store to an agent over the Model Context Protocol.",
        "evaluate": "Check kernels for correctness and time them.",
    },
    "Settings": {
        "config": "Show settings and where they come from.",
        "completion": "Print shell completion code.",
    },
}

#: All commands.
COMMANDS = {name: text for own in GROUPS.values() for name, text in own.items()}


class _LazyGroup(click.Group):
    """Imports perfpipe.pipelines.commands.NAME only when NAME is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # A module cannot have the name of a keyword.
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"perfpipe.pipelines.commands.{name}")
        command = getattr(module, f"{cmd_name}_command")
        if not isinstance(command, click.Command):
            raise TypeError(f"{module.__name__} has no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), text) for name, text in commands.items()]
                formatter.write_dl(rows)

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
    """Profile GPU workloads and report what limits them.

    \b
    perfpipe run workloads/gemm.yaml      run, profile, report
    perfpipe ingest *.ncu-rep *.sqlite    read existing reports
    perfpipe report --html                show what limits the program, and what to try
    perfpipe query "FROM kernel_sol"      query the results in SQL

    Results go to stdout; progress and messages go to stderr.

    Exit codes: 0 success; 1 a task failed; 2 usage error, configuration error or unreadable input;
    3 regressed (only perfpipe check and ab), and 4 not comparable or inconclusive (only perfpipe
    check, ab, bisect and try); 5 a required tool is missing; 128 + N ended by signal N (130 after
    Ctrl-C, 143 after SIGTERM).
    """


def main() -> None:
    """Run the command line and exit; an expected error is one sentence, never a traceback."""
    leave_pandas_out()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names may contain characters that the terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run_cli(sys.argv[1:]))


def run_cli(args: list[str]) -> int:
    """Run the command line and return the exit code."""
    try:
        signals.check()
        with signals.unwrapped():
            result: Any = cli.main(args, prog_name="perfpipe", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 128 + signal.SIGINT
    except signals.Ended as end:
        click.echo(f"perfpipe: {end}", err=True)
        return end.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except PerfpipeError as error:
        click.echo(f"perfpipe: {visible_line(str(error))}", err=True)
        return error.exit_code
    except ModuleNotFoundError as error:
        if (missing := dependency(error)) is None:
            raise
        click.echo(
            f"perfpipe: {missing} is not installed: this installation has only what a gate needs; "
            "run pip install perfpipe",
            err=True,
        )
        return ToolMissing.exit_code
    except OSError as error:
        sentence = os_error_sentence(error, "cannot use")
        click.echo(f"perfpipe: {visible_line(sentence)}", err=True)
        return InputError.exit_code
    except Exception as error:
        # DuckDB is loaded by then, or the error is not one of its own.
        if "duckdb" not in sys.modules or not isinstance(error, sys.modules["duckdb"].Error):
            raise
        from perfpipe.database import own_error

        click.echo(f"perfpipe: {visible_line(str(own_error(error)))}", err=True)
        return PerfpipeError.exit_code
    return result if isinstance(result, int) else 0
