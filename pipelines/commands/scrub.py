"""perfpipe scrub."""

from __future__ import annotations

from pathlib import Path

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.console import say
from perfpipe.pipelines.writing import written
from perfpipe.store import Store
from perfpipe.units import counted


@click.command("scrub")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    help="File or store to write; a file ending in .xz is compressed.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def scrub_command(source: Path, target: Path, force: bool) -> None:
    """Write an anonymized copy of SOURCE that is safe to share.

    SOURCE is an nsys SQLite export, an .ncu-rep, a torch.profiler trace, or a store.  Removes
    environment variables, user and host names, directories in paths, GPU serial numbers, and tables
    that perfpipe does not know.  Names of kernels, NVTX ranges, functions and source files are
    kept: review them before you share the copy.
    """
    from perfpipe.ingest.compressed import xz
    from perfpipe.ingest.scrub import scrub_file, scrub_store

    if (source / "reports").is_dir():
        count = scrub_store(Store(source), Store(target))
        click.echo(f"{target}: {counted(count, 'report')}")
        return
    if target.exists() and not force:
        raise InputError(f"{target} already exists; --force overwrites it")
    with written(target) as temporary:
        left_out = scrub_file(source, temporary)
        if target.suffix == ".xz":
            temporary.write_bytes(xz(temporary.read_bytes()))
    if left_out:
        say(f"removed: {', '.join(left_out)}")
    click.echo(target)
