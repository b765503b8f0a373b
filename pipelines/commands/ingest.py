"""perfpipe ingest."""

from __future__ import annotations

import click

from perfpipe.cores import cores
from perfpipe.errors import PerfpipeError
from perfpipe.ingest.finding import expand_paths
from perfpipe.ingest.formats import FORMATS
from perfpipe.ingest.outcome import Outcome
from perfpipe.pipelines.console import progress, say
from perfpipe.pipelines.ingesting import TIME_LIMIT_S, Failure, ingest_many
from perfpipe.pipelines.options import memory_option, resolve_store, store_option
from perfpipe.sweeping import sweep
from perfpipe.units import counted
from perfpipe.visible import visible_line

#: The formats, for `--help`.
_READS = ", ".join(form.title for form in FORMATS.values())

_HELP = f"""Read report files into the store; the format is detected from the content.

PATH is a file, a directory or a pattern.  Formats: {_READS}.  Files compressed as .xz, .gz or .zst
are accepted.  A file already in the store is not read again.

Prints one line per file: report id, kind, rows, name.  If a file cannot be read, or if its reader
crashes or hangs, perfpipe still reads the other files, prints an error to stderr, and exits with a
nonzero code.
"""


@click.command("ingest", help=_HELP)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(1),
    help="Number of reader processes [default: $PERFPIPE_CORES, else one per CPU].",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=TIME_LIMIT_S,
    show_default=True,
    help="Time limit for reading one file, seconds.",
)
@memory_option("readers of files")
@click.option(
    "--force",
    is_flag=True,
    help="Reread files that are already in the store, and store the readable part "
    "of damaged files.",
)
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
    sweep(store)
    inputs = expand_paths(list(paths))
    failures: list[Failure] = []
    with progress("ingest", len(inputs)) as steps:
        results = ingest_many(inputs, store, jobs=jobs or cores(), force=force, limit_s=timeout)
        for result in results:
            if isinstance(result, Failure):
                failures.append(result)
                steps.step(f"{result.path.name}: not ingested")
                continue
            steps.step(_line(result))
            path = visible_line(str(result.path))
            click.echo(f"{result.report_id}  {result.kind:4}  {result.rows:>11,}  {path}")
    for failure in failures:
        say(f"perfpipe: {failure.error}")
    if failures:
        raise _combined([failure.error for failure in failures], len(inputs))


def _line(outcome: Outcome) -> str:
    state = f"{outcome.rows:,} rows" if outcome.new else "already in the store"
    doubts = f", {counted(len(outcome.warnings), 'warning')}" if outcome.warnings else ""
    return f"{outcome.path.name}: {state}{doubts}"


def _combined(errors: list[PerfpipeError], total: int) -> PerfpipeError:
    """Return one error for all, with the highest exit code."""
    worst = max(errors, key=lambda error: error.exit_code)
    combined = PerfpipeError(f"{len(errors)} of {total} inputs could not be ingested")
    combined.exit_code = worst.exit_code
    return combined
