"""perfpipe scrub."""

from __future__ import annotations

from pathlib import Path

import click

from perfpipe.errors import InputError, StoreError, os_error_sentence
from perfpipe.files import replacing
from perfpipe.store import Store
from pipelines.console import say


@click.command("scrub")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    help="File or store to write; .xz compresses a file.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def scrub_command(source: Path, target: Path, force: bool) -> None:
    """Copy SOURCE without what tells who made it where, so that it can be given away.

    SOURCE is an nsys SQLite export, an .ncu-rep, a torch.profiler trace, or a store.  Environment
    variables, user and host names, directories of paths, serial numbers of GPUs and tables that
    perfpipe does not know are left out.  Names of kernels and NVTX ranges stay: look at them.
    """
    from ingest.scrub import scrub_file, scrub_store

    if (source / "reports").is_dir():
        count = scrub_store(Store(source), Store(target))
        click.echo(f"{target}: {count} reports")
        return
    if target.exists() and not force:
        raise InputError(f"{target} is there already; --force overwrites it")
    try:
        with replacing(target) as temporary:
            left_out = scrub_file(source, temporary)
            if target.suffix == ".xz":
                import lzma

                temporary.write_bytes(lzma.compress(temporary.read_bytes(), preset=9))
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot write")) from error
    if left_out:
        say(f"left out: {', '.join(left_out)}")
    click.echo(target)
