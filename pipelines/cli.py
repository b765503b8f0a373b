"""The command line: its commands, and what ends it."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Any

import click

from perfpipe import __version__, early
from perfpipe.errors import InputError, PerfpipeError, ToolMissing, os_error_sentence
from perfpipe.pipelines import signals
from perfpipe.pipelines.lazy import LazyGroup
from perfpipe.pipelines.startup import dependency, leave_pandas_out
from perfpipe.visible import visible_line

#: Commands and their one-line help by what they are for, in the order of the help page.
GROUPS = {
    "Start": {
        "run": "Run a program under nsys and ncu, ingest the results, and report.",
        "attach": "Show what a program that already runs is doing, without stopping it.",
        "try": "Try the advice on a program: measure the gain, and compare the results.",
        "report": "Write a report on a run or on ingested profiler reports.",
        "compare": "Show what changed between two runs.",
        "ls": "List runs, trials and reports, the newest first.",
        "doctor": "Check profilers, driver, permissions and disk space.",
        "init": "Copy the example workloads into a directory.",
    },
    "Look closer": {
        "budget": "Break down where GPU time goes, in the steady steps or another window.",
        "plan": "Show which kernels of a timeline to profile with ncu, and how.",
        "show": "Show the numbers behind a finding.",
        "query": "Run SQL on the store.",
        "schema": "Show tables, views and columns.",
        "export": "Export a timeline for another viewer.",
    },
    "Gate": {
        "check": "Check whether runs are slower than a baseline (gate).",
        "ab": "Run an A/B test of two configurations or commits.",
        "bisect": "Find the commit or package version that changed the time of a program.",
        "history": "Show how a workload's run time changed from run to run.",
        "gate": "Manage baselines, calibrate the gate, and comment on pull requests.",
    },
    "Cluster": {
        "batch": "Run many configurations on a Slurm cluster.",
    },
    "Calculators": {
        "project": "Estimate the time of a run on another GPU.",
        "gpu": "Show the peak rates of GPUs, or calculate the occupancy of a kernel.",
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
        "search": "Search for a faster kernel with an agent, by hand, or over parameters.",
    },
}

#: Commands for the set-up of perfpipe itself, which docs/cli.md describes.
UNLISTED = ("config", "completion")

#: Former names of commands, which still work.
MOVED = {
    "findings": "report --findings",
    "rules": "report --rules",
    "tuning": "report --tuning",
    "baseline": "gate baseline",
    "calibrate": "gate calibrate",
    "comment": "gate comment",
    "specs": "gpu",
    "occupancy": "gpu occupancy",
}


@click.group(
    cls=LazyGroup,
    sections=GROUPS,
    unlisted=UNLISTED,
    moved=MOVED,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="perfpipe")
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
        early.raise_interrupts()
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
