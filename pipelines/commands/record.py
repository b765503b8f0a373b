"""perfpipe record."""

from __future__ import annotations

from pathlib import Path

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.options import filter_option, resolve_store, store_option
from perfpipe.units import format_bytes

#: Largest size of a recording, MB.
_LIMIT_MB = 3.0


@click.command("record")
@click.argument("run", required=False)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    help="Directory to create, such as workloads/recordings/NAME.",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=_LIMIT_MB,
    show_default=True,
    help="Maximum size of the recording, MB.",
)
@filter_option
@click.option("--force", is_flag=True, help="Replace an existing recording.")
@store_option
def record_command(
    run: str | None,
    target: Path,
    limit: float,
    filters: dict[str, list[str]],
    force: bool,
    store_path: str | None,
) -> None:
    """Turn a run (default: the latest) into a recording that replays without a GPU.

    Reports are anonymized (no environment variables, user names, host names or absolute paths),
    checked to give the same rows as the originals, and compressed.  To use the recording, set
    `recording` in the workload file to the directory of the recording.

    \b
    perfpipe run workloads/gemm.yaml
    perfpipe record --to workloads/recordings/gemm-h200
    """
    from perfpipe.pipelines.recorder import record_run
    from perfpipe.pipelines.selection import chosen

    store = resolve_store(store_path, must_exist=True)
    found = chosen(store, [run] if run else []).run
    if found is None:
        raise InputError("no run to record; use 'perfpipe run' first")
    size = record_run(store, found, target, filters=filters, limit=int(limit * 1e6), force=force)
    click.echo(f"{target}: {format_bytes(size)}")
