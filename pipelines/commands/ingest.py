"""perfpipe ingest."""

from __future__ import annotations

import click

from ingest.finding import expand_paths
from ingest.formats import FORMATS
from ingest.outcome import Outcome
from perfpipe.errors import PerfpipeError
from pipelines.console import progress, say
from pipelines.ingesting import TIME_LIMIT_S, Failure, default_jobs, ingest_many
from pipelines.options import resolve_store, store_option

#: What `--help` says of the formats.
_READS = ", ".join(form.title for form in FORMATS.values())

_HELP = f"""Read report files into the store; what a file is, is told from its content.

PATH is a file, a directory or a pattern: {_READS}; .xz, .gz and .zst are opened.  The same bytes
are never read twice.

Prints one line for each file: report id, kind, rows, name.  A file that cannot be read, or whose
reader crashes or hangs, is said on stderr and ends the command with an exit code other than 0; the
others are read all the same.
"""


@click.command("ingest", help=_HELP)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Processes (default: one a processor).")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=TIME_LIMIT_S,
    show_default=True,
    help="Seconds that reading one file may take.",
)
@click.option("--force", is_flag=True, help="Read again what is in the store already.")
@store_option
def ingest_command(
    paths: tuple[str, ...],
    jobs: int | None,
    timeout: float,
    force: bool,
    store_path: str | None,
) -> None:
    """Read report files into the store."""
    store = resolve_store(store_path)
    inputs = expand_paths(list(paths))
    failures: list[Failure] = []
    with progress("ingest", len(inputs)) as steps:
        results = ingest_many(
            inputs, store, jobs=jobs or default_jobs(), force=force, limit_s=timeout
        )
        for result in results:
            if isinstance(result, Failure):
                failures.append(result)
                steps.step(f"{result.path.name}: not ingested")
                continue
            steps.step(_line(result))
            click.echo(f"{result.report_id}  {result.kind:4}  {result.rows:>11,}  {result.path}")
    for failure in failures:
        say(f"perfpipe: {failure.error}")
    if failures:
        raise _combined([failure.error for failure in failures], len(inputs))


def _line(outcome: Outcome) -> str:
    state = f"{outcome.rows:,} rows" if outcome.new else "already there"
    doubts = f", {len(outcome.warnings)} warnings" if outcome.warnings else ""
    return f"{outcome.path.name}: {state}{doubts}"


def _combined(errors: list[PerfpipeError], total: int) -> PerfpipeError:
    """Return one error for all, with the gravest exit code."""
    worst = max(errors, key=lambda error: error.exit_code)
    combined = PerfpipeError(f"{len(errors)} of {total} inputs could not be ingested")
    combined.exit_code = worst.exit_code
    return combined
